"""Watches nodes and pods, only while gangs wait for room.

The cost: a list of all nodes and of all pods that have not ended when the first gang waits, and
then one event for each change. The watches are kept for five minutes after the last gang has found
its room, so that gangs that come one after another cost one list.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from enum import Enum, auto
from http import HTTPStatus
from typing import Any, TypeVar

from reprieve_operator.background import run_until_one_ends
from reprieve_operator.clock import Clock
from reprieve_operator.cluster import kept_pods
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_policy.facts import Facts
from reprieve_policy.kube.nodes import Node
from reprieve_policy.kube.objects import Resource
from reprieve_policy.kube.pods import Pod
from reprieve_policy.kube.values import timestamp
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.snapshot import ScheduledPod
from reprieve_runtime.client.api import Api, Params
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Key, Reflector
from reprieve_runtime.client.reflector_store import HasMetadata

from .room_store import PendingPod, RoomStore

_log = logging.getLogger(__name__)

_NOT_ENDED = {"fieldSelector": "status.phase!=Succeeded,status.phase!=Failed"}
_PAGE = 100
_IDLE_SECONDS = 300.0
_ABSENT_RETRY_SECONDS = 60.0
"""How often a right that is missing is tried again."""
_MAX_SILENCE_SECONDS = 150.0
"""Bookmarks come once a minute, and a watch that is silent for 90 s is restarted."""
_RESTART_SECONDS = 5.0
_CLASSES_SECONDS = 5.0
"""For the list of PriorityClasses, before the pods are listed."""
_FORBIDDEN = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
T = TypeVar("T", bound=HasMetadata)
V = TypeVar("V")

NODES, PODS, PRIORITY_CLASSES = "nodes", "pods", "priorityclasses"


class RoomKnowledge(Enum):
    """Whether the room of the cluster is known."""

    NOT_YET = auto()
    """No watch runs, its first list is not complete, or it has been silent for too long."""
    KNOWN = auto()
    FORBIDDEN = auto()
    """The operator may not list nodes or pods."""


class RoomWatch:
    """The room of the cluster, for as long as it is asked for."""

    def __init__(
        self,
        api: Api,
        policy: PolicySource,
        namespaces: NamespacePolicies,
        clock: Clock,
        *,
        on_list: Callable[[], None] = lambda: None,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        """`on_list` is called once the room is known, or known to be forbidden."""
        self._api, self._policy, self._namespaces = api, policy, namespaces
        self._clock, self._on_list, self._idle_seconds = clock, on_list, idle_seconds
        self._wanted = asyncio.Event()
        self._wanted_at = 0.0
        self._reflectors: Mapping[str, Reflector[Any, Any]] = {}
        self._store = RoomStore()

    @property
    def is_watching(self) -> bool:
        """True from the start of the watches to their end, also before their first lists."""
        return bool(self._reflectors)

    @property
    def knowledge(self) -> RoomKnowledge:
        """Whether `store` can be used."""
        watched = [self._reflectors[name] for name in (NODES, PODS) if name in self._reflectors]
        if not watched or not all(one.is_synced for one in watched):
            return RoomKnowledge.NOT_YET
        if max(one.age_seconds for one in watched) > _MAX_SILENCE_SECONDS:
            return RoomKnowledge.NOT_YET
        is_served = all(one.is_served for one in watched)
        return RoomKnowledge.KNOWN if is_served else RoomKnowledge.FORBIDDEN

    @property
    def store(self) -> RoomStore:
        """What the watches know; only while the room is known."""
        return self._store

    def want(self) -> None:
        """Start the watches, or keep them."""
        self._wanted_at = self._clock.monotonic()
        self._wanted.set()

    def facts_of(self, namespace: str | None) -> Facts:
        """Return the facts by which the pods of a Namespace are read."""
        classes = self._reflectors.get(PRIORITY_CLASSES)
        by_name = {} if classes is None else {key[1]: one for key, one in classes.items.items()}
        return Facts(
            settings=self._policy.current,
            namespace=self._namespaces.get(namespace),
            priority_classes=by_name,
        )

    async def run(self) -> None:
        """Watch while the room is wanted, until cancelled."""
        while True:
            await self._wanted.wait()
            self._reflectors = self._make_reflectors(self._store)
            try:
                await run_until_one_ends(
                    self._reflectors[PRIORITY_CLASSES].run, self._watch_nodes_and_pods
                )
            except Exception:  # noqa: BLE001 - gangs wait for these watches
                _log.exception("watches of the room failed; restarting")
                await asyncio.sleep(_RESTART_SECONDS)
            finally:
                self._reflectors, self._store = {}, RoomStore()

    async def _watch_nodes_and_pods(self) -> None:
        # Without the classes, the tolerations of the first pods would not be known.
        await self._wait_synced(PRIORITY_CLASSES, _CLASSES_SECONDS)
        await run_until_one_ends(
            self._reflectors[NODES].run, self._reflectors[PODS].run, self._wait_until_idle
        )

    async def _wait_until_idle(self) -> None:
        for name in (NODES, PODS):
            await self._wait_synced(name, self._idle_seconds)
        self._on_list()
        left = self._idle_seconds
        while left > 0:
            await asyncio.sleep(left)
            left = self._wanted_at + self._idle_seconds - self._clock.monotonic()
        self._wanted.clear()

    async def _wait_synced(self, name: str, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await self._reflectors[name].wait_synced(seconds)

    def _make_reflectors(self, store: RoomStore) -> Mapping[str, Reflector[Any, Any]]:
        def keep_node(node: Node) -> None:
            store.put_node(snapshot_builder.node_info_of(node))

        def keep_pod(pod: Pod) -> None:
            key = (pod.metadata.namespace or "", pod.metadata.name or "")
            store.put_pod(key, self._classify(pod))

        def watch(
            name: str,
            kind: type[T],
            keep: Callable[[T], V],
            forget: Callable[[Key], None] = lambda _: None,
            params: Params | None = None,
        ) -> Reflector[T, V]:
            return Reflector(
                self._api,
                object_path(name),
                kind,
                keep,
                on_delete=forget,
                params=params,
                absent_retry_seconds=_ABSENT_RETRY_SECONDS,
                page=_PAGE,
                absent_statuses=_FORBIDDEN,
            )

        return {
            PRIORITY_CLASSES: watch(PRIORITY_CLASSES, Resource, lambda one: one),
            NODES: watch(NODES, Node, keep_node, store.remove_node),
            PODS: watch(PODS, Pod, keep_pod, store.remove_pod, _NOT_ENDED),
        }

    def _classify(self, pod: Pod) -> ScheduledPod | PendingPod | None:
        pod = kept_pods.prune(pod)
        facts = self.facts_of(pod.metadata.namespace)
        if pod.occupies_node:
            return snapshot_builder.scheduled_pod_of(pod, facts, now=self._clock.now())
        if not pod.is_pending:
            return None
        created_at = timestamp.parse(pod.metadata.creationTimestamp)
        return PendingPod(snapshot_builder.preemptor_of(pod, facts), created_at)
