"""Native PodGroups, if the cluster serves them, and their condition `PodsNotMatchingPriority`.

The condition tells whether all pods of the group have its priority. Document 003 puts it on a
Workload's status. A Workload of Kubernetes 1.37 has no status; its PodGroups have conditions and
the priority.

Of a group, only what is used is decoded and kept. Without this, a tenant's groups with very many
labels would take all memory of the operator: one may have 1.5 MB, and takes ten times its size.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.pods import PAGE_SIZE
from reprieve_operator.cluster.writes import Writes
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_policy.kube.pod_groups import PodGroupStatus
from reprieve_policy.kube.values.timestamp import render
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

_log = logging.getLogger(__name__)

CONDITION = "PodsNotMatchingPriority"
_NOT_SERVED = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
"""The API is disabled, or was enabled after the operator's role was made: nothing to read."""
_MAX_CONDITIONS_BYTES = 16 * 1024
"""Of all conditions of a group; a usual one has some hundreds of bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroupMeta:
    """The identity and version of a group."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""  # noqa: N815 - the API's own name


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGroupSpec:
    """The priority of a group."""

    priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPodGroup:
    """A PodGroup, narrower than `PodGroup`: all groups of the cluster are kept at once."""

    metadata: ListedGroupMeta = field(default_factory=ListedGroupMeta)
    spec: ListedGroupSpec | None = None
    status: PodGroupStatus = field(default_factory=PodGroupStatus)

    @property
    def priority(self) -> int | None:
        """The priority of all its pods; `None` if it states none."""
        return None if self.spec is None else self.spec.priority

    @property
    def is_usual(self) -> bool:
        """False for a group whose conditions are too large to keep, and to write again."""
        return len(msgspec.json.encode(self.status.conditions)) <= _MAX_CONDITIONS_BYTES


class PodGroupConditions:
    """Reads PodGroups and writes their condition."""

    def __init__(self, api: Api, writes: Writes, clock: Clock) -> None:
        self._api = api
        self._writes = writes
        self._clock = clock

    async def list_by_namespace(self) -> Mapping[str, Sequence[ListedPodGroup]]:
        """Return the usual PodGroups; none if the API server does not serve them."""
        by_namespace: dict[str, list[ListedPodGroup]] = defaultdict(list)
        try:
            async for groups, _ in self._api.list_pages(
                object_path("podgroups"), ListedPodGroup, limit=PAGE_SIZE
            ):
                for group in groups:
                    if group.is_usual:
                        by_namespace[group.metadata.namespace].append(group)
                    else:
                        _log_left_out(group.metadata)
        except ApiError as error:
            if error.status not in _NOT_SERVED:
                raise
            return {}
        return by_namespace

    async def write_condition(self, group: ListedPodGroup, mismatches: int) -> bool:
        """Write the condition if it changes; return whether the group now has it."""
        conditions = _desired_conditions(
            group, mismatches, render(self._clock.now().replace(microsecond=0))
        )
        if conditions is None:
            return True
        listed = group.metadata
        path = object_path("podgroups", listed.namespace, listed.name, "status")
        version = VersionedMeta(uid=listed.uid, resourceVersion=listed.resourceVersion)
        try:
            await self._writes.write_conditions(path, version, conditions)
        except ApiError as error:
            if not error.is_gone_or_changed:
                raise
            return False
        return True


def _log_left_out(metadata: ListedGroupMeta) -> None:
    extra = {"podgroup": f"{metadata.namespace}/{metadata.name}"}
    _log.warning("a PodGroup has conditions of more than 16 KiB; it is left out", extra=extra)


def _desired_conditions(
    group: ListedPodGroup, mismatches: int, now: str
) -> list[Mapping[str, str | int | None]] | None:
    """Return all conditions to write, `None` if nothing changes.

    A condition that was never true is never written.
    """
    all_before = {str(each.get("type")): each for each in group.status.conditions or ()}
    before = all_before.get(CONDITION, {})
    wanted = {
        "status": "True" if mismatches else "False",
        "reason": "PodsOfAnotherPriority" if mismatches else "PodsMatch",
        "message": _message(group, mismatches),
    }
    if wanted.items() <= before.items() or not (before or mismatches):
        return None
    is_transition = wanted["status"] != before.get("status")
    since = now if is_transition else before.get("lastTransitionTime", now)
    ours = {"type": CONDITION, **wanted, "lastTransitionTime": since}
    return list((all_before | {CONDITION: ours}).values())


def _message(group: ListedPodGroup, mismatches: int) -> str:
    if not mismatches:
        return f"all pods have the group's priority {group.priority}"
    return f"pods with another priority than the group's {group.priority}: {mismatches}"
