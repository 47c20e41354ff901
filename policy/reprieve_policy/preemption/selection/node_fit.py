"""Whether a pod may run on a node at all, however empty: selector, required affinity and taints.

Mirrors kube-scheduler's NodeUnschedulable, NodeAffinity and TaintToleration. Requests and host
ports, which depend on other pods, are in `node_capacity`; pod affinity, topology spread and volumes
are not evaluated.
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
"""The taint that a cordoned node has for the scheduler."""

_KEEPS_OUT = frozenset({"NoSchedule", "NoExecute"})
_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  # nothing is bound: it is what a pod's spec says


def satisfies_constraints(constraints: SchedulingConstraints, node_info: NodeInfo) -> bool:
    """True if the pod may run on the node."""
    return (
        _tolerates_all(constraints.tolerations, node_info)
        and all(
            node_info.labels.get(key) == value for key, value in constraints.node_selector.items()
        )
        and (
            constraints.node_affinity_terms is None
            or any(_holds(term, node_info) for term in constraints.node_affinity_terms)
        )
    )


def satisfies(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """True if the labels satisfy the requirement; no labels satisfy an unknown operator."""
    check = _OPERATORS.get(requirement.operator)
    return check is not None and check(labels.get(requirement.key), requirement.values)


def anti_affinity_matches(
    anti_affinity: AntiAffinity, namespace: str, labels: Mapping[str, str]
) -> bool:
    """True if the anti-affinity may concern a pod of this Namespace with these labels."""
    is_of_namespace = anti_affinity.namespaces is None or namespace in anti_affinity.namespaces
    return is_of_namespace and all(satisfies(one, labels) for one in anti_affinity.requirements)


def ports_conflict(first: frozenset[HostPortInfo], second: frozenset[HostPortInfo]) -> bool:
    """True if both use the same port of the node."""
    return any(
        mine.number == its.number
        and mine.protocol == its.protocol
        and _overlap(mine.address, its.address)
        for mine in first
        for its in second
    )


def _overlap(first: str, second: str) -> bool:
    return first == second or _EVERY_ADDRESS in (first, second)


def _tolerates_all(tolerations: Sequence[TaintToleration], node_info: NodeInfo) -> bool:
    taints = [*node_info.taints, UNSCHEDULABLE] if node_info.is_unschedulable else node_info.taints
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


def _holds(term: NodeAffinityTerm, node_info: NodeInfo) -> bool:
    if not term.label_requirements and not term.name_requirements:
        return False
    name = {"metadata.name": node_info.name}
    return all(satisfies(one, node_info.labels) for one in term.label_requirements) and all(
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
