"""The parts of a snapshot: nodes with their pods, gangs with their pods, quotas and budgets.

Each part notes which of its values an event concerns, and builds only those again for the next
snapshot.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Generic, TypeVar

from reprieve_policy.kube.limits.quota import Quota, QuotaKey
from reprieve_policy.preemption.selection import alike_pods, snapshot_builder
from reprieve_policy.preemption.selection.quota.tally import QuotaTally
from reprieve_policy.preemption.selection.snapshot import (
    DisruptionBudget,
    GangInfo,
    GangKey,
    NodeInfo,
    Preemptor,
    QuotaInfo,
    ScheduledPod,
)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _Index(Generic[K, V]):
    """Groups of values by key, each value under a name of its own."""

    def __init__(self) -> None:
        self._values: dict[K, dict[str, V]] = {}

    def put(self, key: K, name: str, value: V) -> None:
        self._values.setdefault(key, {})[name] = value

    def remove(self, key: K, name: str) -> None:
        same = self._values.get(key, {})
        same.pop(name, None)
        if not same:
            self._values.pop(key, None)

    def get(self, key: K) -> Mapping[str, V]:
        return self._values.get(key, {})


class _BuiltValues(Generic[K, V]):
    """Values that are built again only where something changed since the last snapshot."""

    def __init__(self, build: Callable[[K], V | None]) -> None:
        """`build` returns `None` for a key that has no value any more."""
        self._build = build
        self._values: dict[K, V] = {}
        self.changed: set[K] = set()
        """The keys of the values to build again; an event causes no other work."""

    def note(self, key: K, *, is_gone: bool = False) -> None:
        """Note a change; the value of what is gone is forgotten at once.

        Without this, a process of which nothing asks for a snapshot would keep the keys of all
        gangs that ever ran.
        """
        if is_gone:
            self._values.pop(key, None)
            self.changed.discard(key)
        else:
            self.changed.add(key)

    def current(self) -> dict[K, V]:
        """Return a copy of all values, brought up to date where something changed."""
        self.refresh(len(self.changed))
        return self._values.copy()

    def refresh(self, max_values: int) -> list[V]:
        """Bring at most so many values up to date; return them."""
        built: list[V] = []
        for key in list(islice(self.changed, max_values)):
            value = self._build(key)
            if value is None:
                self._values.pop(key, None)
            else:
                self._values[key] = value
                built.append(value)
            self.changed.discard(key)
        return built


class NodeParts:
    """Nodes with the pods that run on them and those that are nominated to them."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        self._pods: _Index[str, ScheduledPod] = _Index()
        self._nominated: _Index[str, Preemptor] = _Index()
        self._infos: _BuiltValues[str, NodeInfo] = _BuiltValues(self._build)

    def __contains__(self, name: str) -> bool:
        return name in self._nodes

    def put(self, node_info: NodeInfo) -> None:
        """Add a node or its new state; its pods stay."""
        self._nodes[node_info.name] = node_info
        self._infos.note(node_info.name)

    def remove(self, name: str) -> None:
        """Remove a node; its pods stay until each is removed."""
        self._nodes.pop(name, None)
        self._note(name)

    def add_pod(self, pod: ScheduledPod) -> None:
        """Add a pod to its node, which may still be unknown."""
        self._pods.put(pod.node, pod.uid, pod)
        self._infos.note(pod.node)

    def remove_pod(self, pod: ScheduledPod) -> None:
        """Remove a pod from its node."""
        self._pods.remove(pod.node, pod.uid)
        self._note(pod.node)

    def add_nominated(self, node: str, preemptor: Preemptor) -> None:
        """Add a pod that is nominated to the node."""
        self._nominated.put(node, preemptor.demand.uid, preemptor)
        self._infos.note(node)

    def remove_nominated(self, node: str, preemptor: Preemptor) -> None:
        """Remove a pod that was nominated to the node."""
        self._nominated.remove(node, preemptor.demand.uid)
        self._note(node)

    def pods_on(self, node: str) -> Mapping[str, ScheduledPod]:
        """Return the pods on the node, by uid."""
        return self._pods.get(node)

    def refresh(self, max_nodes: int) -> bool:
        """Make ready at most so many changed nodes; return whether some are left."""
        for node_info in self._infos.refresh(max_nodes):
            alike_pods.on(node_info)
        return bool(self._infos.changed)

    def current(self) -> dict[str, NodeInfo]:
        """Return all nodes by name."""
        return self._infos.current()

    def _note(self, name: str) -> None:
        is_used = self._pods.get(name) or self._nominated.get(name)
        self._infos.note(name, is_gone=name not in self._nodes and not is_used)

    def _build(self, name: str) -> NodeInfo | None:
        node = self._nodes.get(name)
        if node is None:
            return None
        nominated = tuple(preemptor.demand for preemptor in self._nominated.get(name).values())
        return replace(node, pods=tuple(self._pods.get(name).values()), nominated_pods=nominated)


class GangParts:
    """The pods of gangs: those that run on a node, and those that wait for one."""

    def __init__(self) -> None:
        self._placed: _Index[GangKey, ScheduledPod] = _Index()
        self._pending: _Index[GangKey, Preemptor] = _Index()
        self._gang_by_pod_uid: dict[str, GangKey] = {}
        """Of the pods that run on a node, by uid."""
        self._infos: _BuiltValues[GangKey, GangInfo] = _BuiltValues(self._build)

    def add_pod(self, gang: GangKey, pod: ScheduledPod) -> None:
        """Add a pod that runs on a node."""
        self._placed.put(gang, pod.uid, pod)
        self._gang_by_pod_uid[pod.uid] = gang
        self._infos.note(gang)

    def remove_pod(self, gang: GangKey, pod: ScheduledPod) -> None:
        """Remove a pod that was added with `add_pod`."""
        self._placed.remove(gang, pod.uid)
        self._gang_by_pod_uid.pop(pod.uid, None)
        self._infos.note(gang, is_gone=not self._placed.get(gang))

    def add_pending_pod(self, gang: GangKey, preemptor: Preemptor) -> None:
        """Add a pod that waits for a node."""
        self._pending.put(gang, preemptor.demand.uid, preemptor)

    def remove_pending_pod(self, gang: GangKey, preemptor: Preemptor) -> None:
        """Remove a pod that was added with `add_pending_pod`."""
        self._pending.remove(gang, preemptor.demand.uid)

    def gang_of(self, uid: str) -> GangKey | None:
        """Return the gang of a pod that runs on a node; `None` if it is in none."""
        return self._gang_by_pod_uid.get(uid)

    def with_members(self, gang: GangKey, preemptor: Preemptor) -> Preemptor:
        """Return a pod of the gang with the rest of the gang."""
        pending, placed = self._pending.get(gang), self._placed.get(gang)
        return snapshot_builder.with_gang(preemptor, pending.values(), placed.values())

    def current(self) -> dict[GangKey, GangInfo]:
        """Return all gangs that have a pod on a node."""
        return self._infos.current()

    def _build(self, key: GangKey) -> GangInfo | None:
        return snapshot_builder.gang_info_of(key, self._placed.get(key).values())


class QuotaParts:
    """What the pods of each quota use."""

    def __init__(self) -> None:
        self._tallies: dict[QuotaKey, QuotaTally] = {}
        self._quotas: Mapping[QuotaKey, Quota] = {}
        """As of the last snapshot."""
        self._infos: _BuiltValues[QuotaKey, QuotaInfo] = _BuiltValues(self._build)

    def changed_tally(self, quota: QuotaKey) -> QuotaTally:
        """Return the sums of a quota, to add a pod or to remove one."""
        self._infos.note(quota)
        return self._tallies.setdefault(quota, QuotaTally())

    def forget_if_empty(self, quota: QuotaKey) -> None:
        """Forget the sums of a quota of which the last pod was removed."""
        if self._tallies[quota].is_empty:
            del self._tallies[quota]
            self._infos.note(quota, is_gone=True)

    def current(self, quotas: Mapping[QuotaKey, Quota]) -> dict[QuotaKey, QuotaInfo]:
        """Return what is used of each of the quotas that has pods."""
        before, self._quotas = self._quotas, quotas
        for key in self._tallies:
            if quotas.get(key) is not before.get(key):
                self._infos.note(key)
        return self._infos.current()

    def _build(self, key: QuotaKey) -> QuotaInfo | None:
        quota = self._quotas.get(key)
        return None if quota is None else self._tallies[key].info(quota)


class BudgetParts:
    """Disruption budgets by namespace."""

    def __init__(self) -> None:
        self._budgets: _Index[str, DisruptionBudget] = _Index()
        self._lists: _BuiltValues[str, tuple[DisruptionBudget, ...]] = _BuiltValues(self._build)

    def put(self, name: str, budget: DisruptionBudget) -> None:
        """Add a budget or its new state; one with an unusually large selector counts as none."""
        kept = snapshot_builder.usual_budget(budget)
        if kept is None:
            self.remove(budget.namespace, name)
            return
        self._budgets.put(kept.namespace, name, kept)
        self._lists.note(kept.namespace)

    def remove(self, namespace: str, name: str) -> None:
        """Remove a budget."""
        self._budgets.remove(namespace, name)
        self._lists.note(namespace, is_gone=not self._budgets.get(namespace))

    def current(self) -> dict[str, tuple[DisruptionBudget, ...]]:
        """Return the budgets of each namespace that has any."""
        return self._lists.current()

    def _build(self, namespace: str) -> tuple[DisruptionBudget, ...] | None:
        found = tuple(self._budgets.get(namespace).values())
        return tuple(snapshot_builder.usual_budgets(found)) or None
