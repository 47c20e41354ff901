"""What a pod's spec requires of a node: selector, affinity, tolerations, host ports."""

from collections.abc import Iterator, Sequence

from reprieve_policy.kube.objects import NodeSelectorRequirement

from .api_objects import Container, LabelSelector, PodAffinity, PodAffinityTerm, PodSpec
from .snapshot import (
    AntiAffinity,
    HostPortInfo,
    NodeAffinityTerm,
    Requirement,
    SchedulingConstraints,
    TaintToleration,
)

_EVERY_ADDRESS = "0.0.0.0"  # noqa: S104  # nothing is bound: an absent `hostIP` means it

_MOST_TERMS = 16
"""Terms of one pod's anti-affinity that are evaluated; a pod with more keeps all others away.

More would take too long, as they are evaluated for every preemptor.
"""


_REPELS_ALL = AntiAffinity(None, ())


def scheduling_constraints_of(spec: PodSpec) -> SchedulingConstraints:
    """Return which nodes the pod may run on at all."""
    affinity = None if spec.affinity is None else spec.affinity.nodeAffinity
    required = None if affinity is None else affinity.requiredDuringSchedulingIgnoredDuringExecution
    return SchedulingConstraints(
        node_selector=spec.nodeSelector or {},
        node_affinity_terms=None
        if required is None
        else tuple(
            NodeAffinityTerm(_requirements(term.matchExpressions), _requirements(term.matchFields))
            for term in required.nodeSelectorTerms or ()
        ),
        tolerations=tuple(
            TaintToleration(found.key, found.operator, found.value, found.effect)
            for found in spec.tolerations or ()
        ),
    )


def host_ports_of(spec: PodSpec) -> frozenset[HostPortInfo]:
    """Return the node's ports that the pod uses: its containers' and its sidecars'."""
    return frozenset(
        HostPortInfo(port.hostIP or _EVERY_ADDRESS, port.protocol or "TCP", port.hostPort)
        for container in _running(spec)
        for port in container.ports or ()
        if port.hostPort > 0
    )


def depends_on_other_pods(spec: PodSpec) -> bool:
    """True if the pod may not fit despite enough room: that depends on other pods near it."""
    affinity = spec.affinity
    spreads = any(
        found.whenUnsatisfiable != "ScheduleAnyway"
        for found in spec.topologySpreadConstraints or ()
    )
    is_near = affinity is not None and bool(
        _required(affinity.podAffinity) or _required(affinity.podAntiAffinity)
    )
    return spreads or is_near or bool(spec.resourceClaims)


def anti_affinity_of(spec: PodSpec, namespace: str) -> tuple[AntiAffinity, ...]:
    """Return which other pods a pod of this Namespace keeps away."""
    terms = () if spec.affinity is None else _required(spec.affinity.podAntiAffinity)
    if len(terms) > _MOST_TERMS:
        return (_REPELS_ALL,)
    return tuple(
        _anti_affinity(term, namespace) for term in terms if term.labelSelector is not None
    )


def requirements_of(selector: LabelSelector | None) -> tuple[Requirement, ...]:
    """Return a label selector's requirements; none if it selects nothing, or everything."""
    if selector is None:
        return ()
    equal = (
        Requirement(key, "In", (value,)) for key, value in (selector.matchLabels or {}).items()
    )
    return (*equal, *_requirements(selector.matchExpressions))


def _requirements(found: Sequence[NodeSelectorRequirement] | None) -> tuple[Requirement, ...]:
    return tuple(Requirement(one.key, one.operator, tuple(one.values or ())) for one in found or ())


def _running(spec: PodSpec) -> Iterator[Container]:
    yield from spec.containers or ()
    yield from (found for found in spec.initContainers or () if found.restartPolicy == "Always")


def _required(affinity: PodAffinity | None) -> Sequence[PodAffinityTerm]:
    return () if affinity is None else affinity.requiredDuringSchedulingIgnoredDuringExecution or ()


def _anti_affinity(term: PodAffinityTerm, namespace: str) -> AntiAffinity:
    # The labels of Namespaces are not known here: with a selector, any Namespace may match.
    named = (
        None if term.namespaceSelector is not None else frozenset(term.namespaces or (namespace,))
    )
    return AntiAffinity(named, requirements_of(term.labelSelector))
