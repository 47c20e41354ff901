"""What a pod requires of a node, and whether a node has it.

Mirrors kube-scheduler's NodeUnschedulable, NodeAffinity and TaintToleration, which no victim
changes, and NodeResourcesFit and NodePorts, for which pods may have to leave. Only the requested
resources count: a node overcommitted in another resource still fits. Of InterPodAffinity, only the
anti-affinity of the pods on nodes is evaluated. The preemptor's pod affinity and topology spread,
and volumes, are not.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from reprieve_policy.kube.label_selector import LabelSelector
from reprieve_policy.kube.objects import NodeSelectorRequirement
from reprieve_policy.kube.pods import (
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    SchedulingContainer,
    SchedulingVolume,
)
from reprieve_policy.kube.values import go_int
from reprieve_policy.kube.values.quantity import NANOS

from . import selector_size
from .snapshot import (
    TOO_LARGE,
    AntiAffinity,
    HostPortInfo,
    NodeAffinityTerm,
    NodeInfo,
    PodDemand,
    PortNumber,
    Requirement,
    ScheduledPod,
    SchedulingConstraints,
    Taint,
    TaintToleration,
)

UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""The taint that a cordoned node has for the scheduler."""

_KEEPS_OUT = frozenset({"NoSchedule", "NoExecute"})
_port_number = attrgetter("protocol", "number")
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


class WantedPorts:
    """Host ports that are compared with those of many pods.

    Each comparison takes as long as the fewer ports: without this, a tenant's pods with hundreds
    would delay every preemptor with one.
    """

    __slots__ = ("_at_an_address", "_at_every_address")

    def __init__(self, ports: Iterable[HostPortInfo]) -> None:
        self._at_every_address: set[PortNumber] = set()
        self._at_an_address: set[HostPortInfo] = set()
        for port in ports:
            if port.address == _EVERY_ADDRESS:
                self._at_every_address.add((port.protocol, port.number))
            else:
                self._at_an_address |= {port, port._replace(address=_EVERY_ADDRESS)}

    def conflict_with(self, pod: ScheduledPod | PodDemand) -> bool:
        """True if the pod uses one of these ports of the node."""
        at, everywhere = self._at_an_address, self._at_every_address
        if not pod.ports:
            return False
        return bool(
            (at and not at.isdisjoint(pod.ports))
            or (everywhere and not everywhere.isdisjoint(_port_numbers_of(pod)))
        )


def _port_numbers_of(pod: ScheduledPod | PodDemand) -> frozenset[PortNumber]:
    """Return the pod's ports without their addresses, which are kept with it."""
    if pod.port_numbers is None:
        numbers = frozenset(map(_port_number, pod.ports))
        object.__setattr__(pod, "port_numbers", numbers)
        return numbers
    return pod.port_numbers


def _tolerates_all(tolerations: Sequence[TaintToleration], node_info: NodeInfo) -> bool:
    taints = [*node_info.taints, UNSCHEDULABLE] if node_info.is_unschedulable else node_info.taints
    return not taints or all(
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


def _compare(value: str | None, values: Sequence[str], sign: int) -> bool:
    if value is None or len(values) != 1:
        return False
    number, bound = go_int.parse(value, 64), go_int.parse(values[0], 64)
    return number is not None and bound is not None and (number - bound) * sign > 0


_OPERATORS: Mapping[str, Callable[[str | None, Sequence[str]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _values: value is not None,
    "DoesNotExist": lambda value, _values: value is None,
    "Gt": lambda value, values: _compare(value, values, 1),
    "Lt": lambda value, values: _compare(value, values, -1),
}


@dataclass(frozen=True, slots=True)
class CombinedDemand:
    """The demand of one pod, or of several of one gang, on one node."""

    amounts: Mapping[str, int] = field(default_factory=dict)
    ports: tuple[WantedPorts, ...] = ()
    collisions: int = 0
    """How many pairs of the pods use the same port of the node."""
    uids: frozenset[str] = frozenset()

    def plus(self, demand: PodDemand) -> "CombinedDemand":
        """Return the demand with one more pod."""
        amounts = dict(self.amounts)
        for resource, amount in demand.amounts.items():
            if amount > 0:
                amounts[resource] = amounts.get(resource, 0) + amount
        uids = self.uids | {demand.uid}
        if not demand.ports:
            return CombinedDemand(amounts, self.ports, self.collisions, uids)
        collisions = self.collisions + sum(one.conflict_with(demand) for one in self.ports)
        return CombinedDemand(amounts, (*self.ports, WantedPorts(demand.ports)), collisions, uids)


MissingCapacity = Sequence[tuple[int, int]]
"""What a demand lacks on a node: which resource, by its number, and how much of it."""
_PODS, _PORTS = -1, -2
"""The numbers of what is no resource of the demand: the number of pods, and host ports."""


class RemainingCapacity:
    """The room left on a node beside a demand; negative while pods still have to leave."""

    __slots__ = ("_collisions", "_left", "_pods", "_resources", "_wanted")

    def __init__(self, node_info: NodeInfo, demands: CombinedDemand, priority: int) -> None:
        self._resources = tuple(enumerate(demands.amounts))
        self._left = [
            node_info.allocatable.get(name, 0) - amount for name, amount in demands.amounts.items()
        ]
        self._pods = node_info.allocatable.get("pods", 0) // NANOS - len(demands.uids)
        self._wanted = demands.ports
        self._collisions = demands.collisions
        for demand in node_info.nominated_pods:
            # As in kube-scheduler: an equally or more important pod nominated to this node keeps
            # its room.
            if demand.priority >= priority and demand.uid not in demands.uids:
                self.add_pod(demand)

    def copy(self) -> "RemainingCapacity":
        """Return the same capacity, to be changed by itself."""
        copied = object.__new__(RemainingCapacity)
        copied._resources, copied._wanted = self._resources, self._wanted
        copied._left = list(self._left)
        copied._pods, copied._collisions = self._pods, self._collisions
        return copied

    @property
    def fits(self) -> bool:
        """True if the demand fits."""
        return self._pods >= 0 and not self._collisions and min(self._left, default=0) >= 0

    def add_pod(self, pod: ScheduledPod | PodDemand) -> None:
        """Count a pod that stays."""
        amounts, left = pod.amounts, self._left
        for index, name in self._resources:
            left[index] -= amounts.get(name, 0)
        self._pods -= 1
        if self._wanted:
            self._collisions += self._count_collisions(pod)

    def add_alike(self, pods: Sequence[ScheduledPod]) -> None:
        """Count pods that stay, of which all request the same."""
        amounts, left, number = pods[0].amounts, self._left, len(pods)
        for index, name in self._resources:
            left[index] -= number * amounts.get(name, 0)
        self._pods -= number
        if self._wanted:
            self._collisions += number * self._count_collisions(pods[0])

    def remove_pods(self, *pods: ScheduledPod) -> None:
        """Stop counting these pods."""
        for pod in pods:
            for index, name in self._resources:
                self._left[index] += pod.amounts.get(name, 0)
            self._pods += 1
            if self._wanted:
                self._collisions -= self._count_collisions(pod)

    def missing(self) -> MissingCapacity:
        """Return what is missing; nothing if the demand fits."""
        found = [(index, -left) for index, left in enumerate(self._left) if left < 0]
        if self._pods < 0:
            found.append((_PODS, -self._pods))
        if self._collisions:
            found.append((_PORTS, self._collisions))
        return found

    def released_by(
        self, groups: Sequence[Sequence[ScheduledPod]], missing: MissingCapacity
    ) -> list[tuple[int, ...]]:
        """Return how much of each missing resource each group of pods releases."""
        columns = [self._column(groups, number) for number, _ in missing]
        return list(zip(*columns, strict=True))

    def _column(self, groups: Sequence[Sequence[ScheduledPod]], number: int) -> list[int]:
        if number == _PODS:
            return [len(pods) for pods in groups]
        if number == _PORTS:
            return [sum(map(self._count_collisions, pods)) for pods in groups]
        name = self._resources[number][1]
        # Most groups are one pod: without this, a decision would take a tenth longer.
        return [
            pods[0].amounts.get(name, 0)
            if len(pods) == 1
            else sum([pod.amounts.get(name, 0) for pod in pods])
            for pods in groups
        ]

    def try_add(self, pods: Sequence[ScheduledPod]) -> bool:
        """Count the pods again if the demand still fits then: they are reprieved."""
        for pod in pods:
            self.add_pod(pod)
        # `fits`, inlined: called for each pod of each node, it would take a tenth of a decision.
        if self._pods >= 0 and not self._collisions and (not self._left or min(self._left) >= 0):
            return True
        self.remove_pods(*pods)
        return False

    def _count_collisions(self, pod: ScheduledPod | PodDemand) -> int:
        return sum(wanted.conflict_with(pod) for wanted in self._wanted)


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


def volumes_limit_nodes(spec: PodSpec) -> bool:
    """True if the pod may not fit despite enough room: that depends on its volumes.

    The pod of its ConfigMaps, Secrets, tokens and empty directories alone fits on any node.
    """
    return any(
        source is not None for volume in spec.volumes or () for source in _sources_of_nodes(volume)
    )


def _sources_of_nodes(volume: SchedulingVolume) -> tuple[Mapping[str, object] | None, ...]:
    """Return the sources that kube-scheduler's filters of volumes look at, some once migrated."""
    return (
        volume.persistentVolumeClaim,
        volume.ephemeral,
        volume.csi,
        volume.awsElasticBlockStore,
        volume.gcePersistentDisk,
        volume.azureDisk,
        volume.cinder,
        volume.portworxVolume,
        volume.vsphereVolume,
        volume.iscsi,
        volume.rbd,
    )


def anti_affinity_of(spec: PodSpec, namespace: str) -> tuple[AntiAffinity, ...]:
    """Return which other pods a pod of this Namespace keeps away, each term once.

    A term without a label selector is about no pod.
    """
    terms = () if spec.affinity is None else _required(spec.affinity.podAntiAffinity)
    found = dict.fromkeys(
        _anti_affinity(term, namespace) for term in terms if term.labelSelector is not None
    )
    names = (name for one in found for name in (one.topology_key, *one.namespaces))
    requirements = (
        requirement
        for one in found
        for requirement in (*one.requirements, *(one.namespace_requirements or ()))
    )
    return (TOO_LARGE,) if selector_size.is_too_large(requirements, names) else tuple(found)


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


def _running(spec: PodSpec) -> Iterator[SchedulingContainer]:
    yield from spec.containers or ()
    yield from (found for found in spec.initContainers or () if found.restartPolicy == "Always")


def _required(affinity: PodAffinity | None) -> Sequence[PodAffinityTerm]:
    return () if affinity is None else affinity.requiredDuringSchedulingIgnoredDuringExecution or ()


def _anti_affinity(term: PodAffinityTerm, namespace: str) -> AntiAffinity:
    selector = term.namespaceSelector
    own = (namespace,) if selector is None else ()
    return AntiAffinity(
        frozenset(term.namespaces or own),
        requirements_of(term.labelSelector),
        term.topologyKey,
        None if selector is None else requirements_of(selector),
    )
