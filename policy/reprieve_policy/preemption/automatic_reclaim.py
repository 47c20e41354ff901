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
from collections.abc import Iterable, Mapping, Sequence
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
    node_fit,
    release,
    select_victims,
    snapshot_builder,
)
from .selection.eligibility import Eligibility
from .selection.release import ReleaseCertainty
from .selection.snapshot import GangKey, NodeInfo, Preemptor, QuotaInfo, ScheduledPod, Snapshot

_Kind = GangKey | tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]
"""What is decided once: a gang, or pods that ask for the same on the same nodes, from which the
same pods keep them away. As a text, which has a hash: with many pods that all differ, no pod is
compared with each other."""
_FREE_TRIES = 2
"""As often a decision without a round is repeated in the next pass: the cluster may just change."""
_MAX_DOUBLINGS = 6
MAX_KINDS = 32
"""Kinds of pods that one decision looks for room for. Without this, thousands of pods that all
differ would hold up the other home Namespaces for minutes."""
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


def may_run_on(waiting: Iterable[WaitingPod], node_info: NodeInfo) -> bool:
    """True if one of the pods that are due may run on the node, whatever else runs there."""
    return any(_may_run(each.preemptor, node_info) for each in waiting if each.is_due)


def decide_round(
    waiting: Sequence[WaitingPod], snapshot: Snapshot, first: int = 0
) -> RoundDecision:
    """Return the next round of a home Namespace, if there is one now.

    `waiting` are all its pending pods, `snapshot` its lent nodes with all pods on them. The most
    important pod begins, of equals the one that has waited longest; `first` pods, which were tried
    in vain, come last.
    """
    by_uid = {each.uid: each for each in waiting}
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
    due = [each for each in waiting if each.is_due and each.uid not in served]
    due.sort(key=_importance)
    in_turn = due[first:] + due[:first]
    found, looked_at = _first_round(in_turn, waiting, _with_claims(snapshot, waiting, by_uid))
    is_cut = found is None and looked_at < len(due)
    return RoundDecision(found, (first + looked_at) % len(due) if is_cut else 0)


def _first_round(
    due: Sequence[WaitingPod], waiting: Sequence[WaitingPod], snapshot: Snapshot
) -> tuple[ReclaimRound | None, int]:
    """Return the round, and how many of the pods were looked at before it, or in vain."""
    in_vain: set[_Kind] = set()
    waiting_by_gang: dict[GangKey | None, list[Preemptor]] = defaultdict(list)
    for other in waiting:
        waiting_by_gang[other.preemptor.gang].append(other.preemptor)
    placed_by_gang: dict[GangKey | None, list[ScheduledPod]] = defaultdict(list)
    for node_info in snapshot.nodes.values():
        for pod in node_info.pods:
            placed_by_gang[pod.gang].append(pod)
    for index, each in enumerate(due):
        # The pods of a Deployment are alike, and those of a gang are planned together: one decision
        # is enough where they get no room.
        if each.preemptor.gang in in_vain:
            continue
        gang = each.preemptor.gang
        preemptor = snapshot_builder.with_gang(
            each.preemptor, waiting_by_gang[gang], placed_by_gang[gang]
        )
        eligibility = Eligibility(preemptor, snapshot)
        nodes = {
            name: tuple(pod.uid for pod in select_victims.repelling_pods(info, eligibility))
            for name, info in snapshot.nodes.items()
            if _may_be_evaluated(info, eligibility)
        }
        kind = gang or (repr(_without_identity(preemptor)), tuple(nodes.items()))
        if kind in in_vain:
            continue
        if len(in_vain) == MAX_KINDS:
            return None, index
        in_vain.add(kind)
        best = selection.decide(preemptor, snapshot, nodes).best
        if best is not None:
            return ReclaimRound(each, best), index
    return None, len(due)


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


def _may_be_evaluated(node_info: NodeInfo, eligibility: Eligibility) -> bool:
    """False if whether the pod fits there depends on pods that stay: only its scheduler knows."""
    return _may_run(eligibility.preemptor, node_info) and not select_victims.depends_on_other_pods(
        node_info, eligibility
    )


def _may_run(preemptor: Preemptor, node_info: NodeInfo) -> bool:
    return not preemptor.depends_on_other_pods and node_fit.satisfies_constraints(
        preemptor.demand.constraints, node_info
    )
