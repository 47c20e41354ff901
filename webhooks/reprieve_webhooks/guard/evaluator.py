"""Decides on a pod under review, for each pod that may be its preemptor.

The policy that chooses victims for the extender decides here too.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from reprieve_policy import keys
from reprieve_policy.gangs import pod_group
from reprieve_policy.kube.objects import pod_group_name_of
from reprieve_policy.preemption import guard, selection
from reprieve_policy.preemption.guard import GuardDecision, Requester, RequestKind
from reprieve_policy.preemption.nominated_pods import NominatedPod
from reprieve_policy.preemption.selection import DryRunStatus, RefusalReason, snapshot_builder
from reprieve_policy.preemption.selection.snapshot import Preemptor, ScheduledPod, Snapshot
from reprieve_webhooks.snapshot.cluster_view import ClusterView
from reprieve_webhooks.snapshot.recent_choices import PodIdentity, VictimSet, VictimSetLookup

from .objects import GuardedPod
from .reader import GuardReader
from .review_context import ReviewContext, ReviewContextReader, observed_target
from .unprocessed_marks import UnprocessedMarks

_MAX_POSSIBLE_PREEMPTORS = 10
"""Checked for one deletion, besides system-critical ones: one node rarely has as many."""
_MAX_NODES = 30
"""Nodes checked for one deletion: pods that have nothing to do with it may be nominated to many."""


class ReviewLookups:
    """Reads what else happens around a pod under review: once for a review, and only if needed."""

    def __init__(self, reader: GuardReader, cluster_view: ClusterView | None) -> None:
        self._reader, self._cluster_view = reader, cluster_view
        self._pods_under_eviction: Sequence[GuardedPod] | None = None
        self._snapshot: Snapshot | None = None

    async def pods_under_eviction(self) -> Sequence[GuardedPod]:
        """Return all pods under eviction; none if they cannot be read now."""
        if self._pods_under_eviction is None:
            self._pods_under_eviction = await self._reader.pods_under_eviction()
        return self._pods_under_eviction

    def observed_snapshot(self) -> Snapshot | None:
        """Return the snapshot of the extender's watches; `None` without the extender or if stale.

        It leaves out what the extender assumes since it chose a pod: that must not refuse the pod,
        whose gang does not leave before it is marked.
        """
        if (
            self._snapshot is None
            and self._cluster_view is not None
            and not self._cluster_view.is_stale
        ):
            self._snapshot = self._cluster_view.observed_snapshot()
        return self._snapshot


@dataclass(frozen=True, slots=True)
class PossiblePreemptor:
    """A pod for which a scheduler may delete the pod under review."""

    uid: str
    node: str
    """Its nominated node: another one than its victim's if a native group is evicted as a unit."""
    preemptor: Preemptor
    is_sensitive: bool
    lookups: ReviewLookups


class Evaluator:
    """Decides on pods under review; raises `ApiError`."""

    def __init__(
        self,
        contexts: ReviewContextReader,
        reader: GuardReader,
        unprocessed_marks: UnprocessedMarks,
        victim_sets: VictimSetLookup,
        cluster_view: ClusterView | None,
        now: Callable[[], datetime],
    ) -> None:
        self._contexts, self._reader = contexts, reader
        self._unprocessed_marks, self._victim_sets = unprocessed_marks, victim_sets
        self._cluster_view, self._now = cluster_view, now

    def evaluate(self, context: ReviewContext) -> GuardDecision:
        """Decide on a pod without knowing its preemptor."""
        return self._decide(
            context,
            Requester(
                request_kind=context.request_kind,
                unprocessed_mark_seconds=self._unprocessed_mark_seconds(context),
            ),
        )

    async def evaluate_budget(
        self, context: ReviewContext, decision: GuardDecision
    ) -> GuardDecision:
        """Decide on an eviction: no mark if a budget does not allow the eviction now."""
        if not decision.sets_mark or not await self._reader.is_blocked_by_budget(
            context.victim, context.namespace
        ):
            return decision
        return self._decide(
            context, Requester(request_kind=context.request_kind, eviction_blocked=True)
        )

    async def evaluate_for_any(
        self, context: ReviewContext, nominees: Sequence[NominatedPod]
    ) -> tuple[GuardDecision, PossiblePreemptor | None]:
        """Decide on a pod for each possible preemptor; refuse only if all of them are refused.

        Which of them the scheduler deletes the pod for is unknown. The second value is `None` if
        none of them can be the preemptor.
        """
        refused: tuple[GuardDecision, PossiblePreemptor] | None = None
        lookups = ReviewLookups(self._reader, self._cluster_view)
        for nominee in await self._nominated_near(nominees, context):
            candidate = await self._possible_preemptor(nominee, lookups)
            if candidate.preemptor.demand.priority <= context.priority_to_exceed:
                continue
            decision = await self.evaluate_for(context, candidate)
            # The first one suffices: the API server waits for three seconds, and then deletes the
            # pod without notice.
            if decision.is_allowed or decision.is_postponed:
                return decision, candidate
            refused = refused or (decision, candidate)
        return refused or (self.evaluate(context), None)

    async def evaluate_for(
        self, context: ReviewContext, candidate: PossiblePreemptor
    ) -> GuardDecision:
        """Decide on a pod for this preemptor."""
        context = self._with_chosen_gang(context, candidate)
        requester = await self._requester(context, candidate)
        decision = self._decide(context, requester)
        if decision.is_allowed and await self._leaves_with_others(context, candidate):
            decision = self._decide(replace(context, leaves_with_others=True), requester)
        if (
            not decision.sets_mark
            or requester.is_exempt
            or not await self._waits_for_other_victims(candidate, context)
        ):
            return decision
        return self._decide(
            context, Requester(request_kind=context.request_kind, has_victims_elsewhere=True)
        )

    def victim_set(self, context: ReviewContext, candidate: PossiblePreemptor) -> VictimSet | None:
        """Return the victims that leave together for this preemptor; `None` if this pod goes alone.

        Those that the extender chose. Where another replica has chosen, or none did, those of the
        pod's gang, where it can spare no pod.
        """
        victim = context.victim
        chosen = self._victim_sets.find(victim.node, victim.uid, by=candidate.uid)
        return chosen or self._whole_gang(context, candidate)

    def _with_chosen_gang(
        self, context: ReviewContext, candidate: PossiblePreemptor
    ) -> ReviewContext:
        uid = context.victim.uid
        chosen = self.victim_set(context, candidate)
        takes_whole_gang = (
            chosen is not None and uid in chosen.whole_gang_uids
        ) or self._victim_sets.takes_whole_gang(uid, by=candidate.uid)
        return replace(context, takes_whole_gang=takes_whole_gang)

    def _whole_gang(self, context: ReviewContext, candidate: PossiblePreemptor) -> VictimSet | None:
        """Return the pod's gang if it would fall below its minimum and has pods on other nodes.

        With a pod of a gang that asks to be evicted as a unit, the operator takes the others.
        """
        snapshot, preemptor = candidate.lookups.observed_snapshot(), candidate.preemptor
        if snapshot is None or preemptor.is_exempt or context.evicted_as_a_unit:
            return None
        pod = self._scheduled_pod(context)
        gang = selection.gang_evicted_with(preemptor, pod, snapshot)
        if gang is None:
            return None
        here = [PodIdentity.of(member) for member in gang.members if member.node == pod.node]
        elsewhere = [PodIdentity.of(member) for member in gang.members if member.node != pod.node]
        if not elsewhere:
            # The scheduler deletes all of it.
            return None
        return VictimSet(
            PodIdentity(candidate.uid, preemptor.namespace, preemptor.name),
            pod.node,
            tuple(here),
            tuple(elsewhere),
            frozenset(one.uid for one in (*here, *elsewhere)),
        )

    async def _requester(self, context: ReviewContext, candidate: PossiblePreemptor) -> Requester:
        pod = self._scheduled_pod(context)
        # What protects a gang as a whole is known only with the extender's snapshot.
        refusal = selection.refusal_for(
            candidate.preemptor,
            pod,
            await self._snapshot_for(context, pod, candidate.lookups),
        )
        return Requester(
            request_kind=context.request_kind,
            refusal=refusal,
            is_exempt=candidate.preemptor.is_exempt,
            unprocessed_mark_seconds=self._unprocessed_mark_seconds(context),
        )

    def _scheduled_pod(self, context: ReviewContext) -> ScheduledPod:
        return snapshot_builder.scheduled_pod_of(
            context.victim,
            context.facts,
            native=context.pod_group,
            job_walltime=context.job_walltime,
            now=self._now(),
        )

    async def _leaves_with_others(
        self, context: ReviewContext, candidate: PossiblePreemptor
    ) -> bool:
        """True for a victim that wants no notice, beside others of its preemptor that do.

        Where no extender chose the set, only those count that are marked already.
        """
        uid, node = context.victim.uid, context.victim.node
        chosen = self._victim_sets.find(node, uid, by=candidate.uid)
        if chosen is not None:
            others = [one for one in chosen.victims if one.uid != uid]
            return any(await asyncio.gather(*(self._gets_notice(one, candidate) for one in others)))
        return any(
            guard.is_victim_of(candidate.uid, observed_target(other))
            for other in await candidate.lookups.pods_under_eviction()
            if other.node == node and other.uid != uid
        )

    async def _gets_notice(self, identity: PodIdentity, candidate: PossiblePreemptor) -> bool:
        other = await self._reader.find_pod(identity.namespace, identity.name)
        if other is None or other.uid != identity.uid:
            return False
        context = self._with_chosen_gang(
            await self._contexts.read(other, identity.namespace, RequestKind.PREEMPTION), candidate
        )
        return self._decide(context, await self._requester(context, candidate)).is_postponed

    def _decide(self, context: ReviewContext, requester: Requester) -> GuardDecision:
        now = self._now()
        return guard.decide(context.target_pod(now), requester, context.facts, now)

    def _unprocessed_mark_seconds(self, context: ReviewContext) -> float:
        victim = context.victim
        return self._unprocessed_marks.seconds(victim.uid, victim.state_before_mark)

    async def _nominated_near(
        self, nominees: Sequence[NominatedPod], context: ReviewContext
    ) -> Sequence[NominatedPod]:
        """Return the nominated pods on nodes where the victim's native group runs.

        These are the first of them, and all that are system-critical. Without this, any pending
        pod, above all a system-critical one, would end the protection of every native group. A
        node that cannot be read counts as one where the group runs. All nodes are read at once:
        the API server waits for three seconds.
        """
        own = context.victim.node
        others = [
            node for node in dict.fromkeys(nominee.node for nominee in nominees) if node != own
        ][:_MAX_NODES]
        runs_group = await asyncio.gather(
            *(
                self._reader.runs_group_on(node, context.victim, context.namespace)
                for node in others
            )
        )
        nodes = {
            own,
            *(node for node, runs in zip(others, runs_group, strict=True) if runs is not False),
        }
        near = [nominee for nominee in nominees if nominee.node in nodes]
        # System-critical pods come last if others are more probable, and must not be cut off.
        return [
            nominee
            for place, nominee in enumerate(near)
            if place < _MAX_POSSIBLE_PREEMPTORS or nominee.is_exempt
        ]

    async def _possible_preemptor(
        self, nominee: NominatedPod, lookups: ReviewLookups
    ) -> PossiblePreemptor:
        namespace = nominee.pod.metadata.namespace or ""
        facts = await self._contexts.facts_of(nominee.pod, namespace)
        native = await self._reader.find_pod_group(nominee.pod, namespace)
        preemptor = snapshot_builder.preemptor_of(nominee.pod, facts, native=native)
        demand = preemptor.demand
        # A member of a group preempts by the priority of its group.
        demand = replace(demand, priority=pod_group.priority_of(demand.priority, native))
        return PossiblePreemptor(
            nominee.uid,
            nominee.node,
            replace(preemptor, demand=demand),
            facts.namespace.is_sensitive,
            lookups,
        )

    async def _snapshot_for(
        self, context: ReviewContext, pod: ScheduledPod, lookups: ReviewLookups
    ) -> Snapshot:
        observed = lookups.observed_snapshot()
        if observed is not None:
            return observed
        # Whose node it is matters only for services.
        node = await self._reader.find_node(pod.node) if pod.is_service else None
        nodes = {} if node is None else {pod.node: snapshot_builder.node_info_of(node)}
        return Snapshot(
            now=self._now(),
            nodes=nodes,
            quotas=context.facts.quotas.current(),
            settings=context.facts.settings,
        )

    async def _waits_for_other_victims(
        self, candidate: PossiblePreemptor, context: ReviewContext
    ) -> bool:
        victim = context.victim
        if self._victim_sets.find(victim.node, victim.uid, by=candidate.uid) is not None:
            # The extender knows of the other victims: their room goes to a more important pod.
            return False
        if await self._gets_room_elsewhere(candidate):
            return True
        victims = await candidate.lookups.pods_under_eviction()
        # A native group that is evicted as a unit is one set, on all its nodes.
        own = [
            victim
            for victim in victims
            if victim.view.annotations.get(keys.PREEMPTOR) == candidate.uid
        ]
        here = [victim for victim in own if victim.node == candidate.node]
        own_groups = {
            _pod_group_of(victim)
            for victim in (
                (*here, context.victim) if context.nomination_scope.spans_nodes else here
            )
        } - {None}
        gang_members = _members_of_gangs(here, candidate)
        others = [
            victim
            for victim in victims
            if _pod_group_of(victim) not in own_groups and victim.uid not in gang_members
        ]
        return guard.has_victims_elsewhere(
            candidate.uid,
            candidate.node,
            [(observed_target(victim), victim.node) for victim in others],
            context.facts.settings.ceiling_seconds,
            self._now(),
        )

    async def _gets_room_elsewhere(self, candidate: PossiblePreemptor) -> bool:
        """True where capacity is being released for a gang's pod on another node.

        A scheduler that got no result from the extender does not know of it.
        """
        snapshot = candidate.lookups.observed_snapshot()
        preemptor = (
            None
            if self._cluster_view is None or snapshot is None
            else self._cluster_view.preemptor(candidate.uid)
        )
        # Only the scheduler knows on which nodes a pod with pod affinity or spreading fits.
        if (
            snapshot is None
            or preemptor is None
            or preemptor.gang is None
            or preemptor.depends_on_other_pods
        ):
            return False
        alone = replace(preemptor, pending_members=())
        found = await asyncio.to_thread(selection.decide, alone, snapshot, [candidate.node])
        if found.reason is RefusalReason.VICTIMS_LEAVING:
            return preemptor.nominated_node != candidate.node
        return DryRunStatus.ROOM_BEING_RELEASED in found.node_statuses.values()


def _members_of_gangs(pods: Sequence[GuardedPod], candidate: PossiblePreemptor) -> set[str]:
    """Return the uids of all pods of the gangs of these pods, which are on the preemptor's node."""
    snapshot = candidate.lookups.observed_snapshot()
    node = None if snapshot is None else snapshot.nodes.get(candidate.node)
    if snapshot is None or node is None:
        return set()
    uids = {pod.uid for pod in pods}
    gangs = {pod.gang for pod in node.pods if pod.uid in uids and pod.gang is not None}
    found = (snapshot.gangs.get(key) for key in gangs)
    return {member.uid for gang in found if gang is not None for member in gang.members}


def _pod_group_of(pod: GuardedPod) -> tuple[str, str] | None:
    """Return the namespace and name of the native group that a pod names."""
    group = pod_group_name_of(pod.spec.schedulingGroup)
    return (pod.metadata.namespace or "", group) if group else None
