"""Native PodGroups, if the cluster serves them, and their condition `PodsNotMatchingPriority`.

The condition tells whether all pods of the group have its priority. Document 003 puts it on a
Workload's status. A Workload of Kubernetes 1.37 has no status; its PodGroups have conditions and
the priority.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.pods import PAGE_SIZE
from reprieve_operator.cluster.writes import Writes
from reprieve_policy.kube.pod_groups import PodGroup
from reprieve_policy.kube.values.timestamp import render
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

CONDITION = "PodsNotMatchingPriority"
_NOT_SERVED = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
"""The API is disabled, or was enabled after the operator's role was made: nothing to read."""


class PodGroupConditions:
    """Reads PodGroups and writes their condition."""

    def __init__(self, api: Api, writes: Writes, clock: Clock) -> None:
        self._api = api
        self._writes = writes
        self._clock = clock

    async def list_by_namespace(self) -> Mapping[str, Sequence[PodGroup]]:
        """Return all PodGroups; none if the API server does not serve them."""
        by_namespace: dict[str, list[PodGroup]] = defaultdict(list)
        try:
            async for groups, _ in self._api.list_pages(
                object_path("podgroups"), PodGroup, limit=PAGE_SIZE
            ):
                for group in groups:
                    by_namespace[group.metadata.namespace or ""].append(group)
        except ApiError as error:
            if error.status not in _NOT_SERVED:
                raise
            return {}
        return by_namespace

    async def write_condition(self, group: PodGroup, mismatches: int) -> bool:
        """Write the condition if it changes; return whether the group now has it."""
        conditions = _desired_conditions(
            group, mismatches, render(self._clock.now().replace(microsecond=0))
        )
        if conditions is None:
            return True
        path = object_path("podgroups", group.metadata.namespace, group.metadata.name, "status")
        try:
            await self._writes.write_conditions(path, group.metadata, conditions)
        except ApiError as error:
            if not error.is_gone_or_changed:
                raise
            return False
        return True


def _desired_conditions(group: PodGroup, mismatches: int, now: str) -> list[dict[str, Any]] | None:
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


def _message(group: PodGroup, mismatches: int) -> str:
    if not mismatches:
        return f"all pods have the group's priority {group.priority}"
    return f"pods with another priority than the group's {group.priority}: {mismatches}"
