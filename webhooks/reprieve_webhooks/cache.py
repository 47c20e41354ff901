"""Cluster knowledge kept by watches, and one read of the API server for what no watch has seen yet.

Facts are as old as a watch is behind, which is milliseconds where all is well. A Namespace or PriorityClass that is new to
us is read once, so that the first pod of a new Namespace is already judged by its policy. What cannot be read then is
not guessed: the review fails and the `failurePolicy` decides.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from reprieve_policy import namespace
from reprieve_policy import settings as policy_settings
from reprieve_policy.facts import Facts
from reprieve_policy.keys import LEDGER, PREEMPTION_PRIORITY_CLASS
from reprieve_policy.ledger import OWNERS, Ledger
from reprieve_policy.namespace import NamespacePolicy
from reprieve_policy.objects import ObjectMeta, Resource, annotations_of, controller_of, labels_of, pod_views
from reprieve_policy.settings import PolicySettings
from reprieve_runtime.api import Api, ApiError, PartialObject
from reprieve_runtime.paths import object_path
from reprieve_runtime.reflector import Reflector

from .ledgers import Ledgers
from .review import Request

_LOG = logging.getLogger(__name__)
_NOT_FOUND = 404
_NO_LEDGER: Ledger = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _ConfigMap:
    metadata: ObjectMeta
    data: Mapping[str, str] | None = None


class PriorityClasses(Mapping[str, Resource]):
    """The PriorityClasses by name, as the watch has them now; never copied."""

    def __init__(self, reflector: Reflector[Resource, Resource]) -> None:
        self._reflector = reflector

    def __getitem__(self, name: str) -> Resource:
        return self._reflector.items["", name]

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._reflector.items)

    def __len__(self) -> int:
        return len(self._reflector.items)


class PolicyReader:
    """Reads the ConfigMap; one that cannot be read leaves the last good one in force."""

    def __init__(self, count_error: Callable[[], None]) -> None:
        self._count_error = count_error
        self._last_good = PolicySettings()

    def keep(self, config_map: _ConfigMap) -> PolicySettings:
        """Return the settings that hold with this ConfigMap."""
        parsed = policy_settings.parse(config_map.data or {})
        if isinstance(parsed, PolicySettings):
            self._last_good = parsed
        else:
            self._count_error()
            reasons = [str(violation) for violation in parsed]
            _LOG.error("policy ConfigMap refused, the last good one stays in force", extra={"reasons": reasons})
        return self._last_good


class ClusterFacts:
    """The `FactsSource` of a running cluster."""

    def __init__(
        self,
        api: Api,
        own_namespace: str,
        config_map: str,
        *,
        lookup_timeout_seconds: float,
        count_policy_error: Callable[[], None],
    ) -> None:
        self._api = api
        self._lookup_timeout_seconds = lookup_timeout_seconds
        self._namespaces = Reflector(api, object_path("namespaces"), Resource, _keep_namespace)
        self._priority_classes = Reflector(api, object_path("priorityclasses"), Resource, _keep)
        self._by_name = PriorityClasses(self._priority_classes)
        self._policies = Reflector(
            api,
            object_path("configmaps", own_namespace),
            _ConfigMap,
            PolicyReader(count_policy_error).keep,
            params={"fieldSelector": f"metadata.name={config_map}"},
        )
        self._ledgers = Ledgers()
        self._owners = {
            owner.resource: Reflector(
                api,
                object_path(owner.resource),
                PartialObject,
                self._ledgers.keeper_of(kind),
                params={"labelSelector": f"{LEDGER}=true"},
            )
            for kind, owner in OWNERS.items()
        }
        self._policy_key = (own_namespace, config_map)
        self._without_policy = PolicySettings()

    @property
    def is_synced(self) -> bool:
        """True once every collection has been listed."""
        return not self.unsynced

    @property
    def unsynced(self) -> tuple[str, ...]:
        """Return the collections that have not been listed yet."""
        return tuple(name for name, reflector in self._reflectors().items() if not reflector.is_synced)

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors().values():
                tasks.create_task(reflector.run())

    async def facts_for(self, request: Request, resource: Resource) -> Facts:
        """Return the facts for one review; `ApiError` where one had to be read and could not."""
        # Only what is missing is waited for: this runs in every review, and nearly always all is known.
        policy = self._known_policy(request, resource)
        unknown = self._unknown_priority_classes(resource)
        return Facts(
            settings=self._policies.items.get(self._policy_key, self._without_policy),
            namespace=await self._look_up_policy(request.namespace) if policy is None else policy,
            priority_classes=await self._look_up_priority_classes(unknown) if unknown else self._by_name,
            owner_ledger=self._ledger_for(request.namespace, resource),
        )

    def _known_policy(self, request: Request, resource: Resource) -> NamespacePolicy | None:
        if resource.kind == "Namespace" or not request.namespace:
            # The API server names a Namespace as its own namespace. What it says is checked whatever its enforcement
            # is: whoever switches that on again relies on a policy that can be read.
            return _UNSAID
        return self._namespaces.items.get(("", request.namespace))

    async def _look_up_policy(self, name: str) -> NamespacePolicy:
        found = await self._look_up(object_path("namespaces", name=name))
        return _UNSAID if found is None else _keep_namespace(found)

    def _unknown_priority_classes(self, resource: Resource) -> list[str]:
        known = self._priority_classes.items
        return [name for name in _priority_class_names(resource) if ("", name) not in known and _IS_NAME(name)]

    async def _look_up_priority_classes(self, names: list[str]) -> Mapping[str, Resource]:
        found = {name: await self._look_up(object_path("priorityclasses", name=name)) for name in names}
        return {**self._by_name, **{name: item for name, item in found.items() if item is not None}}

    async def _look_up(self, path: str) -> Resource | None:
        try:
            text = await self._api.request("GET", path, timeout_seconds=self._lookup_timeout_seconds)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return msgspec.json.decode(text, type=Resource)

    def _ledger_for(self, in_namespace: str, resource: Resource) -> Ledger:
        owner = controller_of(resource.metadata) if resource.kind == "Pod" else None
        return _NO_LEDGER if owner is None else self._ledgers.of(owner, in_namespace)

    def _reflectors(self) -> Mapping[str, Reflector[Any, Any]]:
        return {
            "namespaces": self._namespaces,
            "priorityclasses": self._priority_classes,
            "policy": self._policies,
            **self._owners,
        }


_UNSAID = NamespacePolicy()
_IS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?").fullmatch
"""What can be the name of an object. Users write it: without this, `..` would ask for another path."""


def _priority_class_names(resource: Resource) -> Iterator[str]:
    if resource.kind == "PriorityClass":
        named = annotations_of(resource.metadata).get(PREEMPTION_PRIORITY_CLASS)
        if named is not None and named != resource.metadata.name:
            yield named
    for view in pod_views(resource):
        if view.spec.priorityClassName:
            yield view.spec.priorityClassName
        if PREEMPTION_PRIORITY_CLASS in view.annotations:
            yield view.annotations[PREEMPTION_PRIORITY_CLASS]


def _keep(resource: Resource) -> Resource:
    return resource


def _keep_namespace(resource: Resource) -> NamespacePolicy:
    return namespace.read_leniently(labels_of(resource.metadata), annotations_of(resource.metadata))
