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
from reprieve_operator.cluster.writes import Effects
from reprieve_policy.kube.timestamp import render
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

CONDITION = "PodsNotMatchingPriority"
_NOT_SERVED = (403, 404)
"""Switched off, or on since our rights were given: nothing to see either way."""
_GONE_OR_CHANGED = (404, 409)
_PAGE = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spec:
    priority: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Status:
    conditions: Sequence[dict[str, Any]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """The part of one that is read; conditions are kept as they are, because a patch replaces them all."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)


class PodGroups:
    """Reads PodGroups and writes their condition."""

    def __init__(self, api: Api, effects: Effects, clock: Clock) -> None:
        self._api = api
        self._effects = effects
        self._clock = clock

    async def by_namespace(self) -> Mapping[str, Sequence[PodGroup]]:
        """Return all that there are; none where the API server does not serve them."""
        found: dict[str, list[PodGroup]] = defaultdict(list)
        try:
            async for groups, _ in self._api.pages(object_path("podgroups"), PodGroup, limit=_PAGE):
                for group in groups:
                    found[group.metadata.namespace or ""].append(group)
        except ApiError as error:
            if error.status not in _NOT_SERVED:
                raise
            return {}
        return found

    async def show(self, group: PodGroup, misfits: int) -> bool:
        """Write the condition where it would say something else, and return whether it says so now."""
        conditions = _conditions(group, misfits, render(self._clock.now().replace(microsecond=0)))
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


def _conditions(group: PodGroup, misfits: int, now: str) -> list[dict[str, Any]] | None:
    """Return all conditions as they should be, `None` where they are; what was never true is never written."""
    all_before = {str(found.get("type")): found for found in group.status.conditions or ()}
    before = all_before.get(CONDITION, {})
    wanted = {
        "status": "True" if misfits else "False",
        "reason": "PodsOfAnotherPriority" if misfits else "PodsMatch",
        "message": _message(group, misfits),
    }
    if wanted.items() <= before.items() or not (before or misfits):
        return None
    is_transition = wanted["status"] != before.get("status")
    since = now if is_transition else before.get("lastTransitionTime", now)
    ours = {"type": CONDITION, **wanted, "lastTransitionTime": since}
    return list((all_before | {CONDITION: ours}).values())


def _message(group: PodGroup, misfits: int) -> str:
    if not misfits:
        return f"all pods have the group's priority {group.spec.priority}"
    return f"pods of another priority than the group's {group.spec.priority}: {misfits}"
