"""Native PodGroups, where the cluster serves them, and the condition that says whether their pods have their priority.

Document 003 wants `PodsNotMatchingPriority` on a Workload's status. No 1.37 Workload has a status, and of its groups it is
the PodGroup that has conditions and the priority.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.pods import VersionedMeta
from reprieve_operator.cluster.writes import Writes
from reprieve_policy.kube.timestamp import render
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

CONDITION = "PodsNotMatchingPriority"
_NOT_SERVED = (403, 404)
"""Switched off, or on since our rights were given: nothing to see either way."""
_GONE_OR_CHANGED = (404, 409)
_PAGE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _PodGroupSpec:
    priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _PodGroupStatus:
    conditions: Sequence[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionedPodGroup:
    """The part of one that is read; conditions are kept as they are, because a patch replaces them all."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: _PodGroupSpec = field(default_factory=_PodGroupSpec)
    status: _PodGroupStatus = field(default_factory=_PodGroupStatus)


class PodGroupConditions:
    """Reads PodGroups and writes their condition."""

    def __init__(self, api: Api, effects: Writes, clock: Clock) -> None:
        self._api = api
        self._effects = effects
        self._clock = clock

    async def list_by_namespace(self) -> Mapping[str, Sequence[VersionedPodGroup]]:
        """Return all that there are; none where the API server does not serve them."""
        found: dict[str, list[VersionedPodGroup]] = defaultdict(list)
        try:
            async for groups, _ in self._api.list_pages(
                object_path("podgroups"), VersionedPodGroup, limit=_PAGE
            ):
                for group in groups:
                    found[group.metadata.namespace or ""].append(group)
        except ApiError as error:
            if error.status not in _NOT_SERVED:
                raise
            return {}
        return found

    async def write_condition(self, group: VersionedPodGroup, mismatches: int) -> bool:
        """Write the condition where it would say something else, and return whether it says so now."""
        conditions = _desired_conditions(
            group, mismatches, render(self._clock.now().replace(microsecond=0))
        )
        if conditions is None:
            return True
        path = object_path("podgroups", group.metadata.namespace, group.metadata.name, "status")
        try:
            await self._effects.write_conditions(path, group.metadata, conditions)
        except ApiError as error:
            if error.status not in _GONE_OR_CHANGED:
                raise
            return False
        return True


def _desired_conditions(
    group: VersionedPodGroup, mismatches: int, now: str
) -> list[dict[str, Any]] | None:
    """Return all conditions as they should be, `None` where they are; what was never true is never written."""
    all_before = {str(found.get("type")): found for found in group.status.conditions or ()}
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


def _message(group: VersionedPodGroup, mismatches: int) -> str:
    if not mismatches:
        return f"all pods have the group's priority {group.spec.priority}"
    return f"pods of another priority than the group's {group.spec.priority}: {mismatches}"
