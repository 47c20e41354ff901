"""The ruling on a case, by the policy that also chooses victims, for each pod that it may go for."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from reprieve_policy import keys
from reprieve_policy.gangs import pod_group
from reprieve_policy.kube.objects import pod_group_name_of
from reprieve_policy.preemption import guard, selection
from reprieve_policy.preemption.guard import GuardDecision, Requester
from reprieve_policy.preemption.nominated_pods import NominatedPod
from reprieve_policy.preemption.selection import DryRunStatus, RefusalReason, snapshot_builder
from reprieve_policy.preemption.selection.snapshot import Preemptor, ScheduledPod, Snapshot
from reprieve_webhooks.snapshot.cluster_view import ClusterView
from reprieve_webhooks.snapshot.recent_choices import VictimSetLookup

from .objects import GuardedPod
from .reader import GuardReader
from .refusal_history import RefusalHistory
from .review_context import ReviewContext, ReviewContextReader, observed_target

_MAX_POSSIBLE_PREEMPTORS = 10
"""Looked at for one deletion, beside Kubernetes' own: rarely are as many nominated to one node."""
_MAX_NODES = 30
"""Asked about for one deletion: to so many may pods be nominated that have nothing to do with it."""


class ReviewLookups:
    """What goes on around a pod that is ruled on: looked up once for a review, and only where it matters."""

    def __init__(self, pods: GuardReader, cluster_view: ClusterView | None) -> None:
        self._reader, self._cluster_view = pods, cluster_view
        self._pods_under_eviction: Sequence[GuardedPod] | None = None
        self._snapshot: Snapshot | None = None

    async def pods_under_eviction(self) -> Sequence[GuardedPod]:
        """Return all that are under way, none where they cannot be read now."""
        if self._pods_under_eviction is None:
            self._pods_under_eviction = await self._reader.pods_under_eviction()
        return self._pods_under_eviction

    def observed_snapshot(self) -> Snapshot | None:
        """Return what the extender's watches know, `None` where there is no extender or they are behind.

        What it expects since it chose a pod must not refuse that: its gang is not going before it is marked.
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
    """A pod for which a victim may go."""

    uid: str
    node: str
    """Where it is nominated: elsewhere than its victim, if that goes with a native group."""
    preemptor: Preemptor
    is_sensitive: bool
    lookups: ReviewLookups


class Evaluator:
    """Rules on cases; raises `ApiError`."""

    def __init__(
        self,
        contexts: ReviewContextReader,
        pods: GuardReader,
        refusal_history: RefusalHistory,
        victim_sets: VictimSetLookup,
        cluster_view: ClusterView | None,
        now: Callable[[], datetime],
    ) -> None:
        self._contexts, self._reader, self._refusal_history, self._victim_sets = (
            contexts,
            pods,
            refusal_history,
            victim_sets,
        )
        self._cluster_view, self._now = cluster_view, now

    def evaluate(self, context: ReviewContext) -> GuardDecision:
        """Rule on a pod for whomever it may go."""
        return self._decide(
            context,
            Requester(
                request_kind=context.request_kind,
                unprocessed_mark_seconds=self._unhandled_mark_seconds(context),
            ),
        )

    async def evaluate_budget(self, context: ReviewContext, ruling: GuardDecision) -> GuardDecision:
        """Rule on an eviction: where a budget does not allow it now, nobody is asked to save for it."""
        if not ruling.sets_mark or not await self._reader.is_blocked_by_budget(
            context.victim, context.namespace
        ):
            return ruling
        return self._decide(
            context, Requester(request_kind=context.request_kind, eviction_blocked=True)
        )

    async def evaluate_for_any(
        self, context: ReviewContext, nominees: Sequence[NominatedPod]
    ) -> tuple[GuardDecision, PossiblePreemptor | None]:
        """Rule on a pod that goes for one of these, nobody knows which: refused only where none of them may have it.

        `None` beside the ruling where it can go for none of them.
        """
        refused: tuple[GuardDecision, PossiblePreemptor] | None = None
        around = ReviewLookups(self._reader, self._cluster_view)
        for nominee in await self._nominated_near(nominees, context):
            suspect = await self._possible_preemptor(nominee, around)
            if suspect.preemptor.demand.priority <= context.priority_to_exceed:
                continue
            ruling = await self.evaluate_for(context, suspect)
            # The first is enough: the API server waits for three seconds, and then lets the pod go without notice.
            if ruling.is_allowed or ruling.is_postponed:
                return ruling, suspect
            refused = refused or (ruling, suspect)
        return refused or (self.evaluate(context), None)

    async def evaluate_for(
        self, context: ReviewContext, candidate: PossiblePreemptor
    ) -> GuardDecision:
        """Rule on a pod that goes for this one."""
        context = replace(
            context,
            takes_whole_gang=self._victim_sets.takes_whole_gang(
                context.victim.uid, by=candidate.uid
            ),
        )
        tenant = snapshot_builder.scheduled_pod_of(
            context.victim,
            context.facts,
            native=context.pod_group,
            job=context.job_walltime,
            now=self._now(),
        )
        # What protects a gang as a whole is known where the extender is.
        refusal = selection.refusal_for(
            candidate.preemptor,
            tenant,
            await self._snapshot_for(context, tenant, candidate.lookups),
        )
        seeker = Requester(
            request_kind=context.request_kind,
            refusal=refusal,
            is_exempt=candidate.preemptor.is_exempt,
            unprocessed_mark_seconds=self._unhandled_mark_seconds(context),
        )
        ruling = self._decide(context, seeker)
        if (
            not ruling.sets_mark
            or seeker.is_exempt
            or not await self._waits_for_other_victims(candidate, context)
        ):
            return ruling
        return self._decide(
            context, Requester(request_kind=context.request_kind, has_victims_elsewhere=True)
        )

    def _decide(self, context: ReviewContext, requester: Requester) -> GuardDecision:
        now = self._now()
        return guard.decide(context.target_pod(now), requester, context.facts, now)

    def _unhandled_mark_seconds(self, context: ReviewContext) -> float:
        return self._refusal_history.unhandled_mark_seconds(context.victim.uid)

    async def _nominated_near(
        self, nominees: Sequence[NominatedPod], context: ReviewContext
    ) -> Sequence[NominatedPod]:
        """Return those of the first who are nominated where something goes with the victim, and all such that are Kubernetes' own.

        Without this, whoever waits anywhere, of Kubernetes' own above all, would end the protection of every native group. Where nobody
        can say whether something does, it does. All nodes are asked about at once: the API server waits for three seconds.
        """
        own = context.victim.node
        others = [node for node in dict.fromkeys(one.node for one in nominees) if node != own][
            :_MAX_NODES
        ]
        runs = await asyncio.gather(
            *(
                self._reader.runs_group_on(node, context.victim, context.namespace)
                for node in others
            )
        )
        where = {
            own,
            *(node for node, has_some in zip(others, runs, strict=True) if has_some is not False),
        }
        found = [one for one in nominees if one.node in where]
        # Kubernetes' own come last where others are more probable, and not to be hidden by them.
        return [
            one
            for place, one in enumerate(found)
            if place < _MAX_POSSIBLE_PREEMPTORS or one.is_exempt
        ]

    async def _possible_preemptor(
        self, nominee: NominatedPod, lookups: ReviewLookups
    ) -> PossiblePreemptor:
        namespace = nominee.pod.metadata.namespace or ""
        facts = await self._contexts.facts_of(nominee.pod, namespace)
        native = await self._reader.find_pod_group(nominee.pod, namespace)
        preemptor = snapshot_builder.preemptor_of(nominee.pod, facts, native=native)
        guest = preemptor.demand
        # One of a group preempts by its group's priority.
        guest = replace(guest, priority=pod_group.priority_of(guest.priority, native))
        return PossiblePreemptor(
            nominee.uid,
            nominee.node,
            replace(preemptor, demand=guest),
            facts.namespace.is_sensitive,
            lookups,
        )

    async def _snapshot_for(
        self, context: ReviewContext, pod: ScheduledPod, lookups: ReviewLookups
    ) -> Snapshot:
        known = lookups.observed_snapshot()
        if known is not None:
            return known
        # Whose node it is matters to services only.
        node = await self._reader.find_node(pod.node) if pod.is_service else None
        rooms = {} if node is None else {pod.node: snapshot_builder.node_info_of(node)}
        return Snapshot(now=self._now(), nodes=rooms, settings=context.facts.settings)

    async def _waits_for_other_victims(
        self, candidate: PossiblePreemptor, context: ReviewContext
    ) -> bool:
        if await self._gets_room_elsewhere(candidate):
            return True
        victims = await candidate.lookups.pods_under_eviction()
        # A native group that goes as a whole is of one set, wherever it runs.
        going = [
            victim
            for victim in victims
            if victim.view.annotations.get(keys.PREEMPTOR) == candidate.uid
        ]
        here = [victim for victim in going if victim.node == candidate.node]
        same = {
            _pod_group_of(victim)
            for victim in (
                (*here, context.victim) if context.nomination_scope.spans_nodes else here
            )
        } - {None}
        others = [victim for victim in victims if _pod_group_of(victim) not in same]
        return guard.has_victims_elsewhere(
            candidate.uid,
            candidate.node,
            [(observed_target(victim), victim.node) for victim in others],
        )

    async def _gets_room_elsewhere(self, candidate: PossiblePreemptor) -> bool:
        """True where a gang's pod has room coming elsewhere: a scheduler that got no answer of the extender does not know that."""
        scene = candidate.lookups.observed_snapshot()
        preemptor = (
            None
            if self._cluster_view is None or scene is None
            else self._cluster_view.preemptor(candidate.uid)
        )
        # Beside whom a pod may be, only its scheduler knows.
        if (
            scene is None
            or preemptor is None
            or preemptor.gang is None
            or preemptor.depends_on_other_pods
        ):
            return False
        alone = replace(preemptor, pending_members=())
        found = await asyncio.to_thread(selection.decide, alone, scene, [candidate.node])
        if found.reason is RefusalReason.VICTIMS_LEAVING:
            return preemptor.nominated_node != candidate.node
        return DryRunStatus.ROOM_BEING_RELEASED in found.node_statuses.values()


def _pod_group_of(pod: GuardedPod) -> tuple[str, str] | None:
    """Return the native group that a pod names."""
    group = pod_group_name_of(pod.spec.schedulingGroup)
    return (pod.metadata.namespace or "", group) if group else None
