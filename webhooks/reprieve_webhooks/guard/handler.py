"""Handles a review of the guard: finds the pod, decides, marks it and responds.

An error here fails the review: the API server then does what it would do without the guard.
"""

from collections.abc import Sequence

from reprieve_policy import keys
from reprieve_policy.config.settings import ASYNCHRONOUS, AUTO, SYNCHRONOUS
from reprieve_policy.kube.pods import is_terminating
from reprieve_policy.preemption import guard, retry_times
from reprieve_policy.preemption.guard import GuardDecision, RequestKind
from reprieve_policy.preemption.nominated_pods import NominatedPod
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.single_flight import RateLimitedError
from reprieve_webhooks.admission import response
from reprieve_webhooks.admission.handlers import AdmissionResponse
from reprieve_webhooks.snapshot.cluster_view import ClusterView
from reprieve_webhooks.snapshot.recent_choices import NoVictimSets, VictimSetLookup
from reprieve_webhooks.snapshot.refusal_recorder import RefusalRecorder

from .concurrency_limit import TooManyCallsError
from .evaluator import Evaluator, PossiblePreemptor
from .marking import Marker
from .nominated_pods import NominatedPods
from .objects import GuardedPod
from .reader import GuardReader
from .refusal_history import RefusalHistory
from .review import GuardRequest
from .review_context import FactsReader, ReviewContext, ReviewContextReader
from .scheduler_mode import SchedulerMode, SchedulerModes
from .unprocessed_marks import UnprocessedMarks
from .waiting_requests import WaitingRequests

ALLOWED, POSTPONED, REFUSED = "allowed", "postponed", "refused"
WARNED, SKIPPED = "warned", "skipped"


class Guard:
    """Answers the reviews of deletions by schedulers and of evictions by any user."""

    def __init__(
        self,
        api: Api,
        facts: FactsReader,
        *,
        operator: str,
        timeout_seconds: float,
        victim_sets: VictimSetLookup | None = None,
        cluster_view: ClusterView | None = None,
    ) -> None:
        now = self._now = api.server_time.now
        self._operator = operator
        self._reader = GuardReader(api, timeout_seconds=timeout_seconds)
        self.nominated_pods = NominatedPods(api)
        self._refusal_history, self._scheduler_modes = RefusalHistory(), SchedulerModes()
        self._unprocessed_marks, self._waiting_requests = UnprocessedMarks(), WaitingRequests()
        self._victim_sets: VictimSetLookup = victim_sets or NoVictimSets()
        self._contexts = ReviewContextReader(self._reader, facts)
        self._evaluator = Evaluator(
            self._contexts,
            self._reader,
            self._unprocessed_marks,
            self._victim_sets,
            cluster_view,
            now,
        )
        self._refusal_recorder = RefusalRecorder(api, timeout_seconds=timeout_seconds)
        self._marker = Marker(self._reader, self._contexts, self._evaluator, self._victim_sets, now)

    async def answer(self, request: GuardRequest) -> AdmissionResponse:
        """Answer one review."""
        try:
            return await self._answer(request)
        except (RateLimitedError, TooManyCallsError):
            if not request.is_eviction:
                raise
            # Without this, of many evictions at once the pods that could not be read or marked
            # would be evicted without notice.
            return _too_many_requests(request, guard.TOO_MANY_EVICTIONS, None)

    async def _answer(self, request: GuardRequest) -> AdmissionResponse:
        victim = await self._reviewed_pod(request)
        if victim is None:
            # The kind is a label: any client may send reviews of ever new kinds.
            is_reviewed = request.is_eviction or request.is_deletion
            kind = request.kind.kind if is_reviewed else "other"
            return AdmissionResponse(response.build_allowed(request.uid), kind, SKIPPED)
        request_kind = RequestKind.EVICTION if request.is_eviction else RequestKind.PREEMPTION
        context = await self._contexts.read(victim, request.namespace, request_kind)
        if (
            request_kind is RequestKind.PREEMPTION
            and request.user_info.username not in context.facts.settings.schedulers
        ):
            return AdmissionResponse(
                response.build_allowed(request.uid), request.kind.kind, SKIPPED
            )
        decision, nominees, candidate = await self._evaluate(context)
        is_marked = True
        sets_mark = decision.sets_mark and not request.is_dry_run
        if sets_mark:
            try:
                is_marked = await self._mark(context, candidate)
            except ApiError as error:
                if not error.is_object_too_large:
                    raise
                decision = guard.ALLOWED_WITHOUT_ROOM
        if request_kind is RequestKind.PREEMPTION and not request.is_dry_run:
            decision = await self._bound_refusal(context, decision, is_marked=is_marked)
        # Also where it is not marked: it has changed since the decision.
        return self._respond(
            request, context, decision, nominees, is_marked=is_marked, is_changed=sets_mark
        )

    async def _reviewed_pod(self, request: GuardRequest) -> GuardedPod | None:
        """Return the pod under review; `None` if the guard does not apply."""
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
        """Return the decision, the possible preemptors, and the one that it holds for."""
        decision = self._evaluator.evaluate(context)
        if context.request_kind is RequestKind.EVICTION:
            return await self._evaluator.evaluate_budget(context, decision), (), None
        if is_terminating(context.victim) or not context.facts.operator_is_live:
            return decision, (), None
        nominees = await self._find_possible_preemptors(context, decision)
        candidates = _relevant_preemptors(decision, nominees)
        if not candidates:
            return decision, nominees, None
        decision, candidate = await self._evaluator.evaluate_for_any(context, candidates)
        return (
            decision,
            sorted(nominees, key=lambda nominee: candidate is None or nominee.uid != candidate.uid),
            candidate,
        )

    async def _find_possible_preemptors(
        self, context: ReviewContext, decision: GuardDecision
    ) -> Sequence[NominatedPod]:
        """Return the possible preemptors of the victim.

        If the extender chose the victim for one of them, that one comes first; system-critical pods
        come last.
        """
        configured = context.facts.settings.scheduler_preemption
        is_new = decision.is_allowed or decision.sets_mark
        chosen_for = self._victim_sets.preemptor_uids(context.victim.node, context.victim.uid)

        def is_enough(found: Sequence[NominatedPod]) -> bool:
            if configured == SYNCHRONOUS or (decision.is_postponed and not is_new):
                return True
            return (
                bool(found)
                and not is_new
                and self._scheduler_modes.mode_for(found, configured) is not SchedulerMode.UNKNOWN
            )

        found, mode = await self.nominated_pods.possible_preemptors(
            context.nomination_scope,
            chosen_for,
            is_enough,
            is_asynchronous=configured == ASYNCHRONOUS,
        )
        if mode is not SchedulerMode.UNKNOWN:
            self._scheduler_modes.observe(found, mode)
        known = {one.uid for one in found}
        # Without this, system-critical pods would be refused as long as an older choice or a newer
        # nomination of another pod holds.
        return [
            *found,
            *(
                nominee
                for nominee in self.nominated_pods.exempt_preemptors(context.nomination_scope)
                if nominee.uid not in known
            ),
        ]

    async def _mark(self, context: ReviewContext, candidate: PossiblePreemptor | None) -> bool:
        """Mark the pod and the whole set that was chosen for its preemptor; raises `ApiError`."""
        # Before: the first mark may change what a watch has seen of the gang.
        chosen = None if candidate is None else self._evaluator.victim_set(context, candidate)
        if not await self._marker.mark(context, candidate) and not await self._marker.mark_changed(
            context, candidate
        ):
            return False
        if candidate is not None and chosen is not None:
            await self._marker.mark_other_victims(context, chosen, candidate)
        return True

    async def _bound_refusal(
        self, context: ReviewContext, decision: GuardDecision, *, is_marked: bool
    ) -> GuardDecision:
        """Have the time begin in which a refusal may rest on what the pod's owner can renew."""
        if not is_marked:
            now = self._now()
            decision = guard.decide_unmarkable(
                decision, context.target_pod(now), context.facts, now
            )
        if decision.is_renewable and context.victim.refused_since is None:
            may_refuse = await self._refusal_recorder.record(
                context.identity, context.facts.settings.ceiling_seconds
            )
            return decision if may_refuse else guard.ALLOWED
        return decision

    def _respond(
        self,
        request: GuardRequest,
        context: ReviewContext,
        decision: GuardDecision,
        nominees: Sequence[NominatedPod],
        *,
        is_marked: bool,
        is_changed: bool,
    ) -> AdmissionResponse:
        kind, outcome = request.kind.kind, _outcome(decision)
        if decision.violation is None:
            # An allowed eviction may be a dry run, or a budget may hold it.
            if context.request_kind is RequestKind.PREEMPTION:
                self._refusal_history.forget(context.victim.uid)
                self._unprocessed_marks.forget(context.victim.uid)
                self.nominated_pods.record_accepted_deletion(context.victim.node)
            warnings = [decision.warning] if decision.warning else ()
            return AdmissionResponse(response.build_allowed(request.uid, warnings), kind, outcome)
        if request.is_dry_run and context.request_kind is RequestKind.EVICTION:
            # The pod will be evicted in time. Without this, a drain with --dry-run would retry for
            # ever.
            return AdmissionResponse(
                response.build_allowed(request.uid, [str(decision.violation)]), kind, WARNED
            )
        self._unprocessed_marks.observe(context.victim.uid, context.victim.state_before_mark)
        mode = self._scheduler_mode(context, nominees)
        may_answer_not_found = is_marked and self._may_answer_not_found(
            context, decision, mode, nominees
        )
        if (
            may_answer_not_found
            and self._try_not_found(context, decision, nominees[0], is_changed=is_changed)
        ) or self._others_wait(context, nominees):
            return AdmissionResponse(
                response.build_not_found(request.uid, decision.violation), kind, outcome
            )
        # The shortest time for a pod that changed during the decision, for a preemptor that is
        # retried often, or for a scheduler whose loop may stand still after all.
        is_short = (
            not is_marked or may_answer_not_found or mode is SchedulerMode.PROBABLY_ASYNCHRONOUS
        )
        return _too_many_requests(
            request,
            decision,
            self._retry_after(
                context, decision, mode, nominees, is_short=is_short, is_changed=is_changed
            ),
        )

    def _scheduler_mode(
        self, context: ReviewContext, nominees: Sequence[NominatedPod]
    ) -> SchedulerMode:
        configured = context.facts.settings.scheduler_preemption
        mode = self._scheduler_modes.mode_for(nominees, configured)
        # An asynchronous scheduler nominates its preemptor. Without this, the pods of a Job that a
        # synchronous one tries in turn would pass for one preemptor that retries at once.
        is_decided = mode is not SchedulerMode.UNKNOWN or configured != AUTO or not nominees
        if is_decided or not self._refusal_history.retries_at_once(
            context.victim.uid, nominees[0].preemptor_key
        ):
            return mode
        self._scheduler_modes.observe(nominees[:1], SchedulerMode.PROBABLY_ASYNCHRONOUS)
        return SchedulerMode.PROBABLY_ASYNCHRONOUS

    def _may_answer_not_found(
        self,
        context: ReviewContext,
        decision: GuardDecision,
        mode: SchedulerMode,
        nominees: Sequence[NominatedPod],
    ) -> bool:
        # The replica that marked the pod saw the nomination of its preemptor.
        marked_for = context.victim.view.annotations.get(keys.PREEMPTOR)
        is_asynchronous = mode is not SchedulerMode.UNKNOWN or (
            context.facts.settings.scheduler_preemption == AUTO
            and any(nominee.uid == marked_for for nominee in nominees)
        )
        return bool(nominees) and retry_times.should_answer_not_found(
            decision, context.request_kind, is_asynchronous=is_asynchronous
        )

    def _try_not_found(
        self,
        context: ReviewContext,
        decision: GuardDecision,
        preemptor: NominatedPod,
        *,
        is_changed: bool,
    ) -> bool:
        """Record a 404 answer; `False` if the preemptor got too many, and is to wait now."""
        history = self._refusal_history
        by, node, uid = preemptor.preemptor_key, context.victim.node, context.victim.uid
        # A preemptor that turns to another node each time asks for no victim twice.
        key = by if decision.has_victims_elsewhere else uid
        if history.retries_despite_not_found(key, node, by) and (
            decision.has_victims_elsewhere or history.may_wait(uid, by)
        ):
            return False
        history.record_not_found(key, node, by=by, is_changed=is_changed)
        return True

    def _others_wait(self, context: ReviewContext, nominees: Sequence[NominatedPod]) -> bool:
        """True where enough requests of the preemptors wait to ask for this victim again.

        404 ends this request without an error; one of the others is answered once it is back.
        """
        return bool(nominees) and self._waiting_requests.is_enough(
            context.victim.uid, nominees[0].preemptor_key, len(nominees)
        )

    def _retry_after(
        self,
        context: ReviewContext,
        decision: GuardDecision,
        mode: SchedulerMode,
        nominees: Sequence[NominatedPod],
        *,
        is_short: bool,
        is_changed: bool,
    ) -> int | None:
        uid, node = context.victim.uid, context.victim.node
        by = nominees[0].preemptor_key if nominees else ""
        can_end = not (decision.is_postponed or decision.has_victims_elsewhere)
        if can_end and self._waiting_requests.try_end(uid, by):
            seconds = None
        else:
            seconds = retry_times.retry_after(
                decision,
                context.request_kind,
                is_asynchronous=mode is not SchedulerMode.UNKNOWN,
                is_short=is_short,
                waiting_victim_count=(
                    self._waiting_requests.count_victims(uid, by)
                    if by
                    else self._refusal_history.count_recent_victims(node, uid, by)
                ),
                asked_victim_count=(
                    self._refusal_history.count_victims(node, uid, by) if can_end and by else 1
                ),
                now=self._now(),
            )
        if context.request_kind is RequestKind.PREEMPTION:
            self._refusal_history.record_refusal(
                uid, node, by=by, was_timed=seconds is not None, is_changed=is_changed
            )
            if seconds is not None and by:
                self._waiting_requests.add(uid, by, seconds)
        return seconds


def _relevant_preemptors(
    decision: GuardDecision, nominees: Sequence[NominatedPod]
) -> Sequence[NominatedPod]:
    """Return the pods for which the decision may differ.

    For a system-critical pod it may differ also for a victim that no other pod may preempt, but
    only if a scheduler found it unschedulable. Without this, a system-critical pod that is merely
    being bound would end the protection of every pod there.
    """
    possible = [
        nominee for nominee in nominees if nominee.was_unschedulable or not nominee.is_exempt
    ]
    if decision.is_allowed or decision.sets_mark:
        return possible
    return () if decision.is_postponed else [nominee for nominee in possible if nominee.is_exempt]


def _too_many_requests(
    request: GuardRequest, decision: GuardDecision, seconds: int | None
) -> AdmissionResponse:
    assert decision.violation is not None
    return AdmissionResponse(
        response.build_too_many_requests(request.uid, decision.violation, seconds),
        request.kind.kind,
        _outcome(decision),
    )


def _outcome(decision: GuardDecision) -> str:
    if decision.is_allowed:
        return WARNED if decision.warning else ALLOWED
    return POSTPONED if decision.is_postponed else REFUSED
