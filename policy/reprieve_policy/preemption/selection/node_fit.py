"""Whether a pod may run on a node at all, however empty that is: its selector, required node affinity and taints.

Mirrors kube-scheduler's plugins NodeUnschedulable, NodeAffinity and TaintToleration. What depends on other pods (requests,
host ports) is `selecting`'s; pod affinity, topology spread and volumes are nobody's here.
"""

from collections.abc import Callable, Mapping, Sequence

from reprieve_policy.kube import go_int

from .snapshot import (
    AntiAffinity,
    HostPortInfo,
    NodeAffinityTerm,
    NodeInfo,
    Requirement,
    SchedulingConstraints,
    Taint,
    TaintToleration,
)

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""What a cordoned node is as if it were tainted with, for the scheduler."""

_KEEPS_OUT = frozenset({"NoSchedule", "NoExecute"})
_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  # nothing is bound: it is what a pod's spec says


def satisfies_constraints(wish: SchedulingConstraints, room: NodeInfo) -> bool:
    """True where the pod may run on the node."""
    return (
        _tolerates_all(wish.tolerations, room)
        and all(room.labels.get(key) == value for key, value in wish.node_selector.items())
        and (
            wish.node_affinity_terms is None
            or any(_holds(term, room) for term in wish.node_affinity_terms)
        )
    )


def satisfies(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """True where the labels say what is required; an operator that nobody knows is satisfied by none."""
    check = _OPERATORS.get(requirement.operator)
    return check is not None and check(labels.get(requirement.key), requirement.values)


def anti_affinity_matches(
    repulsion: AntiAffinity, namespace: str, labels: Mapping[str, str]
) -> bool:
    """True where a pod of this Namespace, with these labels, may be one of those that are kept away."""
    is_of_namespace = repulsion.namespaces is None or namespace in repulsion.namespaces
    return is_of_namespace and all(satisfies(one, labels) for one in repulsion.requirements)


def ports_conflict(first: frozenset[HostPortInfo], second: frozenset[HostPortInfo]) -> bool:
    """True where both want one port of the node."""
    return any(
        mine.number == its.number
        and mine.protocol == its.protocol
        and _overlap(mine.address, its.address)
        for mine in first
        for its in second
    )


def _overlap(first: str, second: str) -> bool:
    return first == second or _EVERY_ADDRESS in (first, second)


def _tolerates_all(tolerations: Sequence[TaintToleration], room: NodeInfo) -> bool:
    taints = [*room.taints, UNSCHEDULABLE] if room.is_unschedulable else room.taints
    return all(
        any(_tolerates(toleration, taint) for toleration in tolerations)
        for taint in taints
        if taint.effect in _KEEPS_OUT
    )


def _tolerates(toleration: TaintToleration, taint: Taint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("", "Equal") and toleration.value == taint.value


def _holds(term: NodeAffinityTerm, room: NodeInfo) -> bool:
    if not term.label_requirements and not term.name_requirements:
        return False
    name = {"metadata.name": room.name}
    return all(satisfies(one, room.labels) for one in term.label_requirements) and all(
        satisfies(one, name) for one in term.name_requirements
    )


def _compare(said: str | None, values: Sequence[str], sign: int) -> bool:
    if said is None or len(values) != 1:
        return False
    its, bound = go_int.parse(said, 64), go_int.parse(values[0], 64)
    return its is not None and bound is not None and (its - bound) * sign > 0


_OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda said, values: said in values,
    "NotIn": lambda said, values: said not in values,
    "Exists": lambda said, _values: said is not None,
    "DoesNotExist": lambda said, _values: said is None,
    "Gt": lambda said, values: _compare(said, values, 1),
    "Lt": lambda said, values: _compare(said, values, -1),
}
