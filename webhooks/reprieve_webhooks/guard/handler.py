"""Who wants which pod gone, what is ruled, and the mark and the answer that follow from it.

Whatever fails here fails the review: the API server then does what it would without a guard.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime

from reprieve_policy.config.settings import AUTO, SYNCHRONOUS
from reprieve_policy.preemption import guard
from reprieve_policy.preemption.guard import GuardDecision, RequestKind
from reprieve_policy.preemption.nominated_pods import NominatedPod
from reprieve_runtime.client.api import Api
from reprieve_webhooks.admission import response
from reprieve_webhooks.admission.handlers import AdmissionResponse
from reprieve_webhooks.lookups.single_flight import RateLimitedError
from reprieve_webhooks.snapshot.cluster_view import ClusterView
from reprieve_webhooks.snapshot.recent_choices import VictimSet, VictimSetLookup

from .evaluator import Evaluator, PossiblePreemptor
from .marking import Marker
from .nominated_pods import NominatedPods
from .objects import GuardedPod
from .reader import GuardReader
from .refusal_history import RefusalHistory
from .review import GuardRequest
from .review_context import FactsReader, ReviewContext, ReviewContextReader
from .scheduler_mode import SchedulerMode, SchedulerModes

ALLOWED, PUT_OFF, REFUSED, WARNED, SKIPPED = "allowed", "put-off", "refused", "warned", "skipped"


class NoVictimSets:
    """`LastChoices` where there is no extender."""

    def find(self, node: str, victim_uid: str, *, by: str) -> VictimSet | None:  # noqa: ARG002 - there never was one
        """Return nothing."""
        return None

    def takes_whole_gang(self, victim_uid: str, *, by: str) -> bool:  # noqa: ARG002 - there never was one
        """Return no."""
        return False

    def preemptor_uids(self, node: str, victim_uid: str) -> Collection[str]:  # noqa: ARG002 - there never was one
        """Return nobody."""
        return ()


class Guard:
    """Answers the reviews of deletions by schedulers, and of evictions by anybody."""

    def __init__(
        self,
        api: Api,
        facts: FactsReader,
        *,
        operator: str,
        timeout_seconds: float,
        victim_sets: VictimSetLookup | None = None,
        cluster_view: ClusterView | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._operator, self._now = operator, now
        self._reader = GuardReader(api, timeout_seconds=timeout_seconds)
        self.nominated_pods = NominatedPods(api)
        self._refusal_history, self._scheduler_modes = RefusalHistory(), SchedulerModes()
        self._victim_sets: VictimSetLookup = victim_sets or NoVictimSets()
        self._contexts = ReviewContextReader(self._reader, facts)
        self._evaluator = Evaluator(
            self._contexts,
            self._reader,
            self._refusal_history,
            self._victim_sets,
            cluster_view,
            now,
        )
        self._marker = Marker(self._reader, self._contexts, self._evaluator, now)

    async def answer(self, request: GuardRequest) -> AdmissionResponse:
        """Rule on one review."""
        try:
            return await self._answer(request)
        except RateLimitedError:
            if not request.is_eviction:
                raise
            # Without this, of a bulk of evictions those that nobody could look up would go without notice.
            return _too_many_requests(request, guard.TOO_MANY_EVICTIONS, None)

    async def _answer(self, request: GuardRequest) -> AdmissionResponse:
        victim = await self._reviewed_pod(request)
        if victim is None:
            return AdmissionResponse(
                response.build_allowed(request.uid), request.kind.kind, SKIPPED
            )
        door = RequestKind.EVICTION if request.is_eviction else RequestKind.PREEMPTION
        case = await self._contexts.read(victim, request.namespace, door)
        if (
            door is RequestKind.PREEMPTION
            and request.user_info.username not in case.facts.settings.schedulers
        ):
            return AdmissionResponse(
                response.build_allowed(request.uid), request.kind.kind, SKIPPED
            )
        ruling, nominees, suspect = await self._evaluate(case)
        is_marked = True
        if ruling.sets_mark and not request.is_dry_run:
            is_marked = await self._mark(case, suspect)
        return self._respond(request, case, ruling, nominees, is_marked=is_marked)

    async def _reviewed_pod(self, request: GuardRequest) -> GuardedPod | None:
        """Return the pod in question, `None` where the guard has nothing to say."""
        if request.user_info.username == self._operator:
            return None
        if request.is_deletion:
            return request.old_object
        if not request.is_eviction:
            return None
        victim = await self._reader.find_pod(request.namespace, request.name, RequestKind.EVICTION)
        return victim if victim is not None and request.matches(victim) else None

    async def _evaluate(
        self, context: ReviewContext
    ) -> tuple[GuardDecision, Sequence[NominatedPod], PossiblePreemptor | None]:
        """Return the ruling, the pods that the victim may go for, and the one for which it was ruled."""
        ruling = self._evaluator.evaluate(context)
        if context.request_kind is RequestKind.EVICTION:
            return await self._evaluator.evaluate_budget(context, ruling), (), None
        if context.victim.is_terminating or not context.facts.operator_is_live:
            return ruling, (), None
        nominees = await self._find_possible_preemptors(context, ruling)
        suspects = _relevant_preemptors(ruling, nominees)
        if not suspects:
            return ruling, nominees, None
        ruling, suspect = await self._evaluator.evaluate_for_any(context, suspects)
        return (
            ruling,
            sorted(nominees, key=lambda one: suspect is None or one.uid != suspect.uid),
            suspect,
        )

    async def _find_possible_preemptors(
        self, context: ReviewContext, ruling: GuardDecision
    ) -> Sequence[NominatedPod]:
        """Return the pods that the victim may go for: where the extender chose it for one of them, that one; last, Kubernetes' own."""
        said, is_new = (
            context.facts.settings.scheduler_preemption,
            ruling.is_allowed or ruling.sets_mark,
        )
        chosen_for = self._victim_sets.preemptor_uids(context.victim.node, context.victim.uid)

        def is_enough(found: Sequence[NominatedPod]) -> bool:
            if said == SYNCHRONOUS or (ruling.is_postponed and not is_new):
                return True
            return (
                bool(found)
                and not is_new
                and self._scheduler_modes.mode_for(found, said) is not SchedulerMode.UNKNOWN
            )

        found, pace = await self.nominated_pods.possible_preemptors(
            context.nomination_scope, chosen_for, is_enough
        )
        if pace is not SchedulerMode.UNKNOWN:
            self._scheduler_modes.observe(found, pace)
        known = {one.uid for one in found}
        # Without this, an older choice or a newer nomination would have Kubernetes' own refused for as long as that holds.
        return [
            *found,
            *(
                one
                for one in self.nominated_pods.exempt_preemptors(context.nomination_scope)
                if one.uid not in known
            ),
        ]

    def _victim_set(self, victim: GuardedPod, preemptor_uid: str) -> VictimSet | None:
        return self._victim_sets.find(victim.node, victim.uid, by=preemptor_uid)

    async def _mark(self, context: ReviewContext, candidate: PossiblePreemptor | None) -> bool:
        """Mark the pod, and with it the whole set that was chosen for its preemptor; raises `ApiError`."""
        if not await self._marker.mark(context, candidate):
            return False
        chosen = self._victim_set(context.victim, candidate.uid) if candidate else None
        if candidate is not None and chosen is not None:
            await self._marker.mark_other_victims(context, chosen, candidate)
        return True

    def _respond(
        self,
        request: GuardRequest,
        context: ReviewContext,
        ruling: GuardDecision,
        nominees: Sequence[NominatedPod],
        *,
        is_marked: bool,
    ) -> AdmissionResponse:
        kind, outcome = request.kind.kind, _outcome(ruling)
        if ruling.violation is None:
            # An eviction that is allowed may be one that only tries, or that a budget holds.
            if context.request_kind is RequestKind.PREEMPTION:
                self._refusal_history.forget(context.victim.uid)
                self.nominated_pods.record_accepted_deletion(context.victim.node)
            warnings = [ruling.warning] if ruling.warning else ()
            return AdmissionResponse(response.build_allowed(request.uid, warnings), kind, outcome)
        if request.is_dry_run and context.request_kind is RequestKind.EVICTION:
            # It will go. Without this, a drain that only tries would try for ever.
            return AdmissionResponse(
                response.build_allowed(request.uid, [str(ruling.violation)]), kind, WARNED
            )
        self._refusal_history.observe_mark(
            context.victim.uid, is_asked=context.victim.has_pending_mark
        )
        pace = self._scheduler_mode(context, nominees)
        is_gone = (
            is_marked
            and bool(nominees)
            and self._answers_not_found(context, ruling, pace, nominees[0])
        )
        # Asleep, a scheduler does not see its victims go. Where pods end so often, the next that does has it look again.
        is_pressed = is_gone and self._refusal_history.retries_despite_not_found(
            context.victim.uid, context.victim.node, nominees[0].preemptor_key
        )
        if is_gone and not is_pressed:
            self._refusal_history.record_not_found(
                context.victim.uid, context.victim.node, by=nominees[0].preemptor_key
            )
            return AdmissionResponse(
                response.build_not_found(request.uid, ruling.violation), kind, outcome
            )
        # For one that changed while it was judged, or a scheduler that may stand still after all, the shortest time is told.
        is_short = not is_marked or is_pressed or pace is SchedulerMode.PROBABLY_ASYNCHRONOUS
        return _too_many_requests(
            request, ruling, self._retry_after(context, ruling, pace, nominees, is_short=is_short)
        )

    def _scheduler_mode(
        self, context: ReviewContext, nominees: Sequence[NominatedPod]
    ) -> SchedulerMode:
        pace = self._scheduler_modes.mode_for(
            nominees, said := context.facts.settings.scheduler_preemption
        )
        # Who goes on nominates somebody. Without this, the pods of a Job that a synchronous one tries in turn would pass for one that insists.
        is_shown = pace is not SchedulerMode.UNKNOWN or said != AUTO or not nominees
        if is_shown or not self._refusal_history.retries_at_once(
            context.victim.uid, nominees[0].preemptor_key
        ):
            return pace
        self._scheduler_modes.observe(nominees[:1], SchedulerMode.PROBABLY_ASYNCHRONOUS)
        return SchedulerMode.PROBABLY_ASYNCHRONOUS

    def _answers_not_found(
        self,
        context: ReviewContext,
        ruling: GuardDecision,
        mode: SchedulerMode,
        preemptor: NominatedPod,
    ) -> bool:
        """True where the scheduler has others to delete that go with this one: a set's, in its order, or a gang's."""
        chosen = self._victim_set(context.victim, preemptor.uid)
        is_followed = (
            context.evicted_as_a_unit
            if chosen is None
            else chosen.victims[-1].uid != context.victim.uid
        )
        is_asynchronous = mode is not SchedulerMode.UNKNOWN
        return guard.should_answer_not_found(
            ruling, context.request_kind, is_asynchronous=is_asynchronous, is_followed=is_followed
        )

    def _retry_after(
        self,
        context: ReviewContext,
        ruling: GuardDecision,
        mode: SchedulerMode,
        nominees: Sequence[NominatedPod],
        *,
        is_short: bool,
    ) -> int | None:
        uid, node = context.victim.uid, context.victim.node
        by = nominees[0].preemptor_key if nominees else ""
        seconds = guard.retry_after(
            ruling,
            context.request_kind,
            is_asynchronous=mode is not SchedulerMode.UNKNOWN,
            is_short=is_short,
            fellows=self._refusal_history.count_recent_victims(node, uid, by),
            now=self._now(),
        )
        if context.request_kind is RequestKind.PREEMPTION:
            self._refusal_history.record_refusal(uid, node, by=by, was_timed=seconds is not None)
        return seconds


def _relevant_preemptors(
    ruling: GuardDecision, nominees: Sequence[NominatedPod]
) -> Sequence[NominatedPod]:
    """Return the pods for which another ruling is possible: for Kubernetes' own also of one that nobody may have.

    Only where a scheduler turned it away. Without this, one that is merely being bound would end everybody's protection there.
    """
    possible = [one for one in nominees if one.was_unschedulable or not one.is_exempt]
    if ruling.is_allowed or ruling.sets_mark:
        return possible
    return () if ruling.is_postponed else [one for one in possible if one.is_exempt]


def _too_many_requests(
    request: GuardRequest, ruling: GuardDecision, seconds: int | None
) -> AdmissionResponse:
    assert ruling.violation is not None
    return AdmissionResponse(
        response.build_too_many_requests(request.uid, ruling.violation, seconds),
        request.kind.kind,
        _outcome(ruling),
    )


def _outcome(ruling: GuardDecision) -> str:
    if ruling.is_allowed:
        return WARNED if ruling.warning else ALLOWED
    return PUT_OFF if ruling.is_postponed else REFUSED
