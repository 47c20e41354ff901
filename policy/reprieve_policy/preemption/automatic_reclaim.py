"""What the operator reclaims by itself (document 001, "Elastic Reclamation"; `reclaim: auto`).

A pod of a node's home Namespace for which its scheduler has found no node for `reclaimAfter` begins
a round: borrowers leave one of the lent nodes on which the pod then fits. They are chosen as for
any preemptor: within class rule, tolerations, gangs and `maxVictims`, in the order of
`victimOrder`, and none where waiting is enough. But pods of the same priority may be victims, too,
because the node is the home's.

Pods that leave for a pod that still waits show that its round is under way. So a new operator
continues where the last one stopped.
"""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.kube.conditions import find_false
from reprieve_policy.kube.limits.quota import QuotaKey
from reprieve_policy.kube.objects import ObjectMeta
from reprieve_policy.kube.pods import Pod
from reprieve_policy.kube.values import timestamp

from . import reclaim, selection
from .selection import (
    PreemptionCandidate,
    alike_pods,
    node_fit,
    release,
    select_victims,
    snapshot_builder,
)
from .selection.eligibility import Eligibility
from .selection.gangs import kinds as gang_kinds
from .selection.release import ReleaseCertainty
from .selection.snapshot import (
    GangKey,
    NodeInfo,
    Preemptor,
    QuotaInfo,
    ScheduledPod,
    SchedulingConstraints,
    Snapshot,
)

_Kind = GangKey | tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]
"""What is decided once: a gang, or pods that ask for the same on the same nodes, from which the
same pods keep them away. As a text, which has a hash: with many pods that all differ, no pod is
compared with each other."""
_FREE_TRIES = 2
"""As often a decision without a round is repeated in the next pass: the cluster may just change."""
_MAX_DOUBLINGS = 6
MAX_KINDS = 32
"""Kinds of pods that one decision looks for room for, and placements of them that may differ.

Without this, thousands of pods that all differ would hold up the other home Namespaces for minutes.
"""
MAX_LOOKS = 128
"""Pods that one decision compares with the anti-affinity of all nodes: of equal ones, the first."""
MAX_PAUSE_SECONDS = 300
"""The longest pause after decisions without a round."""
_UNSCHEDULABLE = "Unschedulable"
"""The reason of the condition `PodScheduled` of a pod for which a scheduler found no node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingPod:
    """A pending pod of the home Namespace."""

    preemptor: Preemptor
    """By itself; see `home_preemptor_of`."""
    turned_away_at: datetime | None = None
    is_due: bool = False
    """It has waited long enough to begin a round."""

    @property
    def uid(self) -> str:
        """The uid of the pod."""
        return self.preemptor.demand.uid


@dataclass(frozen=True, slots=True)
class ReclaimRound:
    """The pod that begins a round, and the borrowers that leave for it."""

    pod: WaitingPod
    candidate: PreemptionCandidate

    @property
    def victims(self) -> tuple[ScheduledPod, ...]:
        """The victims, with the rest of their gangs on other nodes."""
        return (*self.candidate.all_pods, *self.candidate.other_victims)


@dataclass(frozen=True, slots=True)
class RoundDecision:
    """What a home Namespace gets back now."""

    round: ReclaimRound | None = None
    next_first: int = 0
    """Without a round: how many pods to pass over in the next decision. They found no room, and
    there were too many kinds of pods to look further."""


def turned_away_at(pod: Pod) -> datetime | None:
    """Return since when a scheduler finds no node for the pod, `None` if that is not so.

    A pod that is nominated to a node has victims already, or room.
    """
    if not pod.is_pending or pod.status.nominatedNodeName or pod.spec.schedulingGates:
        return None
    found = find_false(pod.status.conditions, "PodScheduled")
    if found is None or found.reason != _UNSCHEDULABLE:
        return None
    return timestamp.parse(found.lastTransitionTime)


def is_due(
    turned_away: datetime | None,
    last_round_at: datetime | None,
    settings: PolicySettings,
    now: datetime,
) -> bool:
    """True for a pod that begins a round; after each one it waits for `reclaimAfter` again.

    Without that, a replacement that takes the room again, or a cancelled eviction, would cost one
    round after the other.
    """
    if turned_away is None:
        return False
    since = turned_away if last_round_at is None else max(turned_away, last_round_at)
    return now - since >= timedelta(seconds=settings.reclaim_after_seconds)


def pause_seconds(tries: int, interval_seconds: float) -> float:
    """Return how long to wait after so many decisions in a row that began no round.

    Each reads all pods of the lent nodes. Without a pause, a pod that finds nothing would cost that
    for as long as it waits.
    """
    if tries < _FREE_TRIES:
        return 0.0
    doublings = min(tries - _FREE_TRIES + 1, _MAX_DOUBLINGS)
    return min(interval_seconds * 2.0**doublings, MAX_PAUSE_SECONDS)


def home_preemptor_of(pod: Pod, facts: Facts, native: PodGroupInfo | None = None) -> Preemptor:
    """Return a pending pod of the home Namespace, without the rest of its gang.

    The pods of a Job that declares no gang are placed one by one, also with a quota. Without this,
    such a Job would take back no node before there is room for all of it.
    """
    preemptor = snapshot_builder.preemptor_of(pod, facts, native=native)
    gang = snapshot_builder.gang_without_quota(pod)
    return replace(preemptor, takes_back_nodes=True, gang=gang)


def borrower_of(pod: ScheduledPod, metadata: ObjectMeta, home: str) -> ScheduledPod:
    """Return a pod of a lent node; one that is no borrower counts as non-preemptible."""
    stays = bool(reclaim.exempt_reason(metadata, home))
    return replace(pod, is_non_preemptible=True) if stays else pod


class ReclaimTurn:
    """The due pods that one decision looks at, and which lent nodes they may run on.

    A node is compared once with all pods that say the same about where they may run, and with
    `MAX_KINDS` that differ; a pod that says so in too many entries runs nowhere. Without this, a
    tenant's pods with many terms of node affinity would hold up the other home Namespaces.
    """

    def __init__(self, waiting: Sequence[WaitingPod], first: int = 0) -> None:
        """`waiting` are all pending pods of a home Namespace.

        The most important pod comes first, of equals the one that has waited longest; `first` pods,
        which were tried in vain, come last.
        """
        self.waiting = waiting
        self._first = first
        self._numbers: dict[str, int] = {}
        """Of its placement, by the pod's uid; none of a pod that runs nowhere."""
        self._constraints: list[SchedulingConstraints] = []
        """Of each placement."""
        self._may_run: dict[tuple[int, str], bool] = {}
        due = _in_order(waiting)
        self._due = len(due)
        self.pods = self._first_of([*due[first:], *due[:first]])

    def may_run_on(self, node_info: NodeInfo) -> bool:
        """True if one of the pods may run on the node, whatever else runs there."""
        return any(self._satisfies(number, node_info) for number, _ in enumerate(self._constraints))

    def may_run(self, pod: WaitingPod, node_info: NodeInfo) -> bool:
        """True if this pod may run on the node, whatever else runs there."""
        number = self._numbers.get(pod.uid)
        return number is not None and self._satisfies(number, node_info)

    def next_first(self, looked_at: int | None = None) -> int:
        """Return how many pods the next decision passes over, once so many were tried in vain."""
        passed = len(self.pods) if looked_at is None else looked_at
        return (self._first + passed) % self._due if passed < self._due else 0

    def _first_of(self, due: Sequence[WaitingPod]) -> Sequence[WaitingPod]:
        """Return the first pods, of which not too many placements differ; no gang is divided."""
        numbers: dict[object, int] = {}
        for index, each in enumerate(due):
            demand = each.preemptor.demand
            if each.preemptor.depends_on_other_pods or gang_kinds.has_many_entries(demand):
                continue
            placement = gang_kinds.placement_of(demand)
            if placement not in numbers:
                if len(numbers) == MAX_KINDS:
                    return due[: _begin_of_gang(due, index) or index]
                numbers[placement] = len(numbers)
                self._constraints.append(demand.constraints)
            self._numbers[each.uid] = numbers[placement]
        return due

    def _satisfies(self, number: int, node_info: NodeInfo) -> bool:
        key = number, node_info.name
        if key not in self._may_run:
            self._may_run[key] = node_fit.satisfies_constraints(
                self._constraints[number], node_info
            )
        return self._may_run[key]


def decide_round(turn: ReclaimTurn, snapshot: Snapshot) -> RoundDecision:
    """Return the next round of a home Namespace, if there is one now.

    `snapshot` has its lent nodes that the pods of the turn may run on, with all pods on them.
    """
    by_uid = {each.uid: each for each in turn.waiting}
    under_way = [
        by_uid[uid]
        for node_info in snapshot.nodes.values()
        for uid in _awaiting_uids(node_info, snapshot)
        if uid in by_uid
    ]
    # Which room the other pods of a gang will get is not known before they have it.
    if any(each.preemptor.gang is not None for each in under_way) or _has_unnotified(
        snapshot, by_uid
    ):
        return RoundDecision()
    served = {each.uid for each in under_way}
    found, looked_at = _first_round(turn, served, _with_claims(snapshot, turn.waiting, by_uid))
    return RoundDecision(found, 0 if found is not None else turn.next_first(looked_at))


def _first_round(
    turn: ReclaimTurn, served: Collection[str], snapshot: Snapshot
) -> tuple[ReclaimRound | None, int]:
    """Return the round, and how many of the pods were looked at before it, or in vain."""
    in_vain: set[_Kind] = set()
    looked_at: dict[GangKey | str, set[Hashable]] = defaultdict(set)
    looks, asked = 0, _asked_labels(snapshot)
    with_gang = _GangMembers(turn, snapshot).with_gang
    for index, each in enumerate(turn.pods):
        gang = each.preemptor.gang
        # The pods of a Deployment are alike, and those of a gang are planned together: one decision
        # is enough where they get no room.
        if each.uid in served or gang in in_vain:
            continue
        usable = [info for info in snapshot.nodes.values() if turn.may_run(each, info)]
        if gang is None and not usable:
            continue
        text = repr(_without_identity(each.preemptor)) if gang is None else ""
        labels = frozenset(item for item in each.preemptor.labels.items() if item[0] in asked)
        if labels in looked_at[gang or text]:
            continue
        if looks == MAX_LOOKS:
            return None, index
        looked_at[gang or text].add(labels)
        looks += 1
        preemptor = with_gang(each.preemptor)
        nodes = _repelling_by_node(usable, Eligibility(preemptor, snapshot))
        kind = gang or (text, tuple(nodes.items()))
        if kind in in_vain:
            continue
        if len(in_vain) == MAX_KINDS:
            return None, index
        in_vain.add(kind)
        best = (
            None if _is_too_large(preemptor) else selection.decide(preemptor, snapshot, nodes).best
        )
        if best is not None:
            return ReclaimRound(each, best), index
    return None, len(turn.pods)


class _GangMembers:
    """The pods of each gang of the home Namespace: those that wait, and those on lent nodes."""

    def __init__(self, turn: ReclaimTurn, snapshot: Snapshot) -> None:
        self._waiting: dict[GangKey | None, list[Preemptor]] = defaultdict(list)
        for each in turn.waiting:
            self._waiting[each.preemptor.gang].append(each.preemptor)
        self._placed: dict[GangKey | None, list[ScheduledPod]] = defaultdict(list)
        for node_info in snapshot.nodes.values():
            for pod in node_info.pods:
                self._placed[pod.gang].append(pod)

    def with_gang(self, preemptor: Preemptor) -> Preemptor:
        """Return the pod with the rest of its gang."""
        gang = preemptor.gang
        return snapshot_builder.with_gang(preemptor, self._waiting[gang], self._placed[gang])


def _asked_labels(snapshot: Snapshot) -> Collection[str]:
    """Return the keys of the labels by which pods on the nodes keep others away.

    Pods that differ in other labels, such as their number in a StatefulSet, are alike.
    """
    found = (alike_pods.on(info).anti_affinity for info in snapshot.nodes.values())
    postings = (label for index in found if index is not None for label in index.postings)
    return {key for _, key, _ in postings}


def _repelling_by_node(
    usable: Iterable[NodeInfo], eligibility: Eligibility
) -> Mapping[str, tuple[str, ...]]:
    """Return the nodes that can be evaluated, with the pods there that keep the preemptor away.

    Not one where whether it fits depends on pods that stay: only its scheduler knows.
    """
    return {
        info.name: tuple(pod.uid for pod in select_victims.repelling_pods(info, eligibility))
        for info in usable
        if not select_victims.depends_on_other_pods(info, eligibility)
    }


def _is_too_large(preemptor: Preemptor) -> bool:
    """True for a gang of which a pod runs nowhere: it is said in too many entries where."""
    return any(map(gang_kinds.has_many_entries, preemptor.pending_members))


def _has_unnotified(snapshot: Snapshot, by_uid: Mapping[str, WaitingPod]) -> bool:
    """True while a victim of a round is marked and not yet notified.

    It still takes room. Without this, the next round would take more victims than it needs.
    """
    return any(
        pod.release is not None
        and pod.release.is_only_marked
        and pod.release.preemptor_uid in by_uid
        for node_info in snapshot.nodes.values()
        for pod in node_info.pods
    )


def _awaiting_uids(node_info: NodeInfo, snapshot: Snapshot) -> set[str]:
    """Return the uids of the preemptors for which pods leave the node.

    A pod that has not left within the ceiling counts as staying. Without this, a borrower with a
    finalizer or a budget of its own would keep its lender from any other round.
    """
    ceiling_seconds, now = snapshot.settings.ceiling_seconds, snapshot.now
    return {
        pod.release.preemptor_uid
        for pod in node_info.pods
        if pod.release is not None
        and (
            pod.release.is_only_marked
            or release.certainty_of(pod.release, ceiling_seconds, now)
            is not ReleaseCertainty.NOT_SOON
        )
    }


def _with_claims(
    snapshot: Snapshot, waiting: Iterable[WaitingPod], by_uid: Mapping[str, WaitingPod]
) -> Snapshot:
    """Return the snapshot in which each pod is nominated to the node that pods leave for it."""
    claims = {
        name: _awaiting_uids(node_info, snapshot) & by_uid.keys()
        for name, node_info in snapshot.nodes.items()
    }
    for each in waiting:
        claims.get(each.preemptor.nominated_node or "", set()).add(each.uid)
    nodes = {
        name: replace(
            node_info,
            nominated_pods=tuple(by_uid[uid].preemptor.demand for uid in sorted(claims[name])),
        )
        for name, node_info in snapshot.nodes.items()
    }
    # Without this, each of many pods would get room of which their quota admits one.
    by_quota: dict[QuotaKey, list[Preemptor]] = defaultdict(list)
    for uid in sorted(set().union(*claims.values())):
        preemptor = by_uid[uid].preemptor
        if preemptor.quota is not None:
            by_quota[preemptor.quota].append(preemptor)
    quota_infos = {key: QuotaInfo(nominated=pods) for key, pods in by_quota.items()}
    return replace(snapshot, nodes=nodes, quota_infos=quota_infos)


def _in_order(waiting: Iterable[WaitingPod]) -> Sequence[WaitingPod]:
    """Return the due pods, the most important first, each with the rest of its gang."""
    due = sorted((each for each in waiting if each.is_due), key=_importance)
    places: dict[GangKey | str, int] = {}
    for place, each in enumerate(due):
        places.setdefault(each.preemptor.gang or each.uid, place)
    return sorted(due, key=lambda each: places[each.preemptor.gang or each.uid])


def _begin_of_gang(due: Sequence[WaitingPod], index: int) -> int:
    """Return where the gang of a pod begins; the place of a pod of no gang."""
    gang = due[index].preemptor.gang
    if gang is None:
        return index
    return next(place for place, each in enumerate(due) if each.preemptor.gang == gang)


def _importance(waiting: WaitingPod) -> tuple[int, datetime, str]:
    assert waiting.turned_away_at is not None
    return -waiting.preemptor.demand.priority, waiting.turned_away_at, waiting.uid


def _without_identity(preemptor: Preemptor) -> Preemptor:
    # Where the one that has waited longest gets no room, no other one gets any.
    return replace(
        preemptor,
        name="",
        labels={},
        namespace_labels={},
        unschedulable_since=None,
        demand=replace(preemptor.demand, uid=""),
    )
