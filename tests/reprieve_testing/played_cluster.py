"""An API server that is played, with the reconcilers of the operator."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims.registry import ReconcilerRegistry
from reprieve_operator.victims.victim_sets import VictimSets
from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.objects import annotations_of
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_runtime.client.api import ApiError
from reprieve_testing.operator_parts import a_registry
from reprieve_testing.servers.stub_api import until

SAVES = {keys.CHECKPOINT_HINT: "annotation:"}
"""The annotations of a pod that answers in an annotation."""
_MARK = mark.Mark(initiator=mark.GUARD_INITIATOR, reason="preemption")
_SAVED = {"state": "saved"}
_WITNESS = "witness"


@dataclass
class PlayedCluster:
    """Accepts every write, and shows it at once; a deleted pod stays until the test ends it."""

    ceiling_seconds: int = 10**6
    resync_seconds: float = 30.0
    pods: dict[str, VictimPod] = field(default_factory=dict)
    deleted: dict[str, int | None] = field(default_factory=dict)
    """The grace period of each pod that was deleted, in order."""
    deleted_witnesses: set[str] = field(default_factory=set)
    is_left: set[str] = field(default_factory=set)
    """The uids of victims whose preemptor left their node."""
    events: list[tuple[str, str]] = field(default_factory=list)
    growing_seconds: float = 0.0
    lost_answers: set[tuple[str, Phase]] = field(default_factory=set)
    """Writes of states that are carried out once, and answered by a closed connection."""
    lost_deletions: set[str] = field(default_factory=set)
    """Pods that are deleted, and whose deletion is so answered."""
    late_deletions: set[str] = field(default_factory=set)
    """Pods whose deletion has no answer, and is carried out only before the next one."""
    lost_deletion: ApiError = field(
        default_factory=lambda: ApiError(0, "ClientOSError", "the connection was closed")
    )
    sets: VictimSets = field(init=False)
    registry: ReconcilerRegistry = field(init=False)
    policy: Any = field(init=False)
    _version: int = 0

    def __post_init__(self) -> None:
        self.sets = VictimSets(Clock(), growing_seconds=self.growing_seconds)
        recorder: Any = SimpleNamespace(
            event=lambda about, reason, *_, **__: self.events.append((about.name, reason))
        )
        namespaces: Any = SimpleNamespace(
            get=lambda _: NamespacePolicy(), is_terminating=lambda _: False
        )
        self.policy = SimpleNamespace(current=PolicySettings(ceiling_seconds=self.ceiling_seconds))

        async def nothing(*_: object, **__: object) -> None: ...

        bare: Any = SimpleNamespace(store_replacement=nothing, on_victim_gone=lambda *_, **__: None)
        preemptors: Any = SimpleNamespace(
            has_left=self.is_left.__contains__, is_node_wanted=lambda _: False
        )
        ledger: Any = SimpleNamespace(record=nothing, retract=nothing, publish_checkpoint=nothing)
        self.registry = a_registry(
            writes=self,
            policy=self.policy,
            namespaces=namespaces,
            ledger=ledger,
            bare_pods=bare,
            recorder=recorder,
            victim_sets=self.sets,
            preemptors=preemptors,
            settings=OperatorSettings(identity="a", resync_interval_seconds=self.resync_seconds),
        )

    def is_busy(self, _: str) -> bool:
        return False

    async def list_pages(self, *_: object, **__: object) -> AsyncIterator[list[VictimPod]]:
        yield list(self.pods.values())

    async def read_pod(self, _: str, name: str, *__: object) -> VictimPod | None:
        return self.pods.get(name)

    async def write_state(
        self, pod: VictimPod, state: Eviction, *_: object, **__: bool
    ) -> VictimPod:
        return self._write(pod, state, label=state.phase.value)

    async def write_disruption_target(
        self, pod: VictimPod, state: Eviction, **_: bool
    ) -> VictimPod:
        return await self.write_state(pod, state)

    async def write_cancelled(self, pod: VictimPod, state: Eviction) -> VictimPod:
        gone = {keys.KOORDINATOR_SOFT_EVICTION: "", keys.PREEMPTOR: ""}
        return self._write(pod, state, label="", annotations=gone)

    async def write_finished(self, pod: VictimPod, state: Eviction) -> VictimPod:
        return self._write(pod, state, label="")

    async def delete_pod(self, pod: VictimPod, state: Eviction) -> bool:
        name = pod.metadata.name or ""
        if name in self.late_deletions:
            self.late_deletions.remove(name)
            self.lost_deletions.add(name)
            raise ApiError(0, "TimeoutError", "no answer")
        if name.startswith(_WITNESS):
            self.deleted_witnesses.add(name)
        else:
            self.deleted[name] = state.grace_seconds
        if name in self.lost_deletions:
            self.lost_deletions.remove(name)
            self.delete(name, seconds=state.grace_seconds or 0)
            raise self.lost_deletion
        return True

    def create(self, name: str, *, node: str = "node", **metadata: dict[str, str]) -> None:
        """Create a pod that runs."""
        document = {
            "metadata": {"namespace": "team", "name": name, "uid": f"uid-of-{name}"},
            "spec": {"nodeName": node},
            "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"},
        }
        self.pods[name] = msgspec.convert(document, VictimPod)
        self.change(name, **metadata)

    def mark(
        self,
        name: str,
        annotations: dict[str, str] | None = None,
        *,
        preemptor: str = "uid-of-high",
        node: str = "node",
        state: Eviction | None = None,
        victims: int | None = None,
    ) -> None:
        """Create a pod that is marked for this preemptor, and show it to the operator."""
        self.create(name, node=node)
        text = mark.render(replace(_MARK, victims=victims))
        marks = {keys.KOORDINATOR_SOFT_EVICTION: text, keys.PREEMPTOR: preemptor}
        written = {} if state is None else {keys.EVICTION: eviction.render(state)}
        phase = mark.MARKED if state is None else state.phase.value
        self.show(
            name,
            labels={keys.SOFT_EVICTION: phase},
            annotations=marks | (annotations or {}) | written,
        )

    def show(self, name: str, **changes: dict[str, str]) -> None:
        """Change a pod, and show it to the operator."""
        self.registry.on_pod_update(self.change(name, **changes))

    def answer(self, name: str, answer: dict[str, str] = _SAVED) -> None:
        self.show(name, annotations={keys.CHECKPOINT_ANSWER: json.dumps(answer)})

    def delete(self, name: str, *, seconds: int) -> None:
        """Show that a pod is being deleted, with this grace period."""
        ends_at = timestamp.render(Clock().now() + timedelta(seconds=seconds))
        pod = self.pods[name]
        metadata = replace(pod.metadata, deletionTimestamp=ends_at)
        self.pods[name] = replace(pod, metadata=metadata)
        self.show(name)

    def end(self, name: str) -> None:
        """Let a pod be gone."""
        del self.pods[name]
        self.registry.on_pod_delete(f"uid-of-{name}")

    def change(self, name: str, **changes: dict[str, str]) -> VictimPod:
        self._version += 1
        pod = self.pods[name]
        merged: Any = {
            kind: {
                key: text
                for key, text in ((getattr(pod.metadata, kind) or {}) | added).items()
                if text
            }
            for kind, added in changes.items()
        }
        metadata = replace(pod.metadata, resourceVersion=str(self._version), **merged)
        self.pods[name] = replace(pod, metadata=metadata)
        return self.pods[name]

    def _write(
        self, pod: VictimPod, state: Eviction, *, label: str, annotations: Mapping[str, str] = {}
    ) -> VictimPod:
        name = pod.metadata.name or ""
        written = self.change(
            name,
            labels={keys.SOFT_EVICTION: label},
            annotations={keys.EVICTION: eviction.render(state), **annotations},
        )
        if (name, state.phase) in self.lost_answers:
            self.lost_answers.remove((name, state.phase))
            raise ApiError(0, "ClientOSError", "the connection was closed")
        return written

    def phase(self, name: str) -> Phase | None:
        text = annotations_of(self.pods[name].metadata).get(keys.EVICTION)
        state = None if text is None else eviction.parse(text)
        return None if state is None else state.phase

    async def is_held(self, *names: str) -> bool:
        """Return whether none of these pods is deleted, while a pod in no set was."""
        self._version += 1
        witness = f"{_WITNESS}-{self._version}"
        self.mark(witness, preemptor="")
        await until(lambda: witness in self.deleted_witnesses)
        return not self.deleted.keys() & set(names)
