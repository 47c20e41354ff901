"""Who wants which pod gone, what is ruled, and the mark and the answer that follow from it.

Whatever fails here fails the review: the API server then does what it would without a guard.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime

from reprieve_policy.config.settings import AUTO, SYNCHRONOUS
from reprieve_policy.preemption import guard
from reprieve_policy.preemption.guard import Door, Ruling
from reprieve_policy.preemption.nominated_pods import Nominee
from reprieve_runtime.client.api import Api
from reprieve_webhooks.admission import response
from reprieve_webhooks.admission.handlers import Answer
from reprieve_webhooks.extender.service import Stage
from reprieve_webhooks.lookups.single_flight import TooManyQuestionsError
from reprieve_webhooks.snapshot.recent_choices import Choice, LastChoices

from .evaluator import Judge, Suspect
from .marking import Marker
from .nominated_pods import Nominees
from .objects import Victim
from .reader import Pods
from .refusal_history import Memory
from .review import GuardRequest
from .review_context import Case, Cases, Knowledge
from .scheduler_mode import Pace, Paces

ALLOWED, PUT_OFF, REFUSED, WARNED, SKIPPED = "allowed", "put-off", "refused", "warned", "skipped"


class NoChoices:
    """`LastChoices` where there is no extender."""

    def of(self, node: str, victim_uid: str, *, by: str) -> Choice | None:  # noqa: ARG002 - there never was one
        """Return nothing."""
        return None

    def is_inseparable(self, victim_uid: str, *, by: str) -> bool:  # noqa: ARG002 - there never was one
        """Return no."""
        return False

    def preemptors(self, node: str, victim_uid: str) -> Collection[str]:  # noqa: ARG002 - there never was one
        """Return nobody."""
        return ()


class Guard:
    """Answers the reviews of deletions by schedulers, and of evictions by anybody."""

    def __init__(
        self,
        api: Api,
        facts: Knowledge,
        *,
        operator: str,
        timeout_seconds: float,
        choices: LastChoices | None = None,
        stage: Stage | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._operator, self._now = operator, now
        self._pods = Pods(api, timeout_seconds=timeout_seconds)
        self.nominees = Nominees(api)
        self._memory, self._paces = Memory(), Paces()
        self._choices: LastChoices = choices or NoChoices()
        self._cases = Cases(self._pods, facts)
        self._judge = Judge(self._cases, self._pods, self._memory, self._choices, stage, now)
        self._marker = Marker(self._pods, self._cases, self._judge, now)

    async def answer(self, request: GuardRequest) -> Answer:
        """Rule on one review."""
        try:
            return await self._answer(request)
        except TooManyQuestionsError:
            if not request.is_eviction:
                raise
            # Without this, of a bulk of evictions those that nobody could look up would go without notice.
            return _put_off(request, guard.TOO_MANY, None)

    async def _answer(self, request: GuardRequest) -> Answer:
        victim = await self._victim(request)
        if victim is None:
            return Answer(response.build_allowed(request.uid), request.kind.kind, SKIPPED)
        door = Door.EVICTION if request.is_eviction else Door.PREEMPTION
        case = await self._cases.of(victim, request.namespace, door)
        if door is Door.PREEMPTION and request.user_info.username not in case.facts.settings.schedulers:
            return Answer(response.build_allowed(request.uid), request.kind.kind, SKIPPED)
        ruling, nominees, suspect = await self._rule(case)
        is_marked = True
        if ruling.marks and not request.is_dry_run:
            is_marked = await self._mark(case, suspect)
        return self._reply(request, case, ruling, nominees, is_marked=is_marked)

    async def _victim(self, request: GuardRequest) -> Victim | None:
        """Return the pod in question, `None` where the guard has nothing to say."""
        if request.user_info.username == self._operator:
            return None
        if request.is_deletion:
            return request.old_object
        if not request.is_eviction:
            return None
        victim = await self._pods.find(request.namespace, request.name, Door.EVICTION)
        return victim if victim is not None and request.is_about(victim) else None

    async def _rule(self, case: Case) -> tuple[Ruling, Sequence[Nominee], Suspect | None]:
        """Return the ruling, the pods that the victim may go for, and the one for which it was ruled."""
        ruling = self._judge.rule(case)
        if case.door is Door.EVICTION:
            return await self._judge.rule_by_budget(case, ruling), (), None
        if case.victim.is_leaving or not case.facts.operator_is_there:
            return ruling, (), None
        nominees = await self._find_nominees(case, ruling)
        suspects = _that_count(ruling, nominees)
        if not suspects:
            return ruling, nominees, None
        ruling, suspect = await self._judge.rule_for_any(case, suspects)
        return ruling, sorted(nominees, key=lambda one: suspect is None or one.uid != suspect.uid), suspect

    async def _find_nominees(self, case: Case, ruling: Ruling) -> Sequence[Nominee]:
        """Return the pods that the victim may go for: where the extender chose it for one of them, that one; last, Kubernetes' own."""
        said, is_new = case.facts.settings.scheduler_preemption, ruling.is_allowed or ruling.marks
        chosen_for = self._choices.preemptors(case.victim.node, case.victim.uid)

        def is_enough(found: Sequence[Nominee]) -> bool:
            if said == SYNCHRONOUS or (ruling.is_put_off and not is_new):
                return True
            return bool(found) and not is_new and self._paces.of(found, said) is not Pace.UNKNOWN

        found, pace = await self.nominees.possible(case.vacancy, chosen_for, is_enough)
        if pace is not Pace.UNKNOWN:
            self._paces.show(found, pace)
        known = {one.uid for one in found}
        # Without this, an older choice or a newer nomination would have Kubernetes' own refused for as long as that holds.
        return [*found, *(one for one in self.nominees.own(case.vacancy) if one.uid not in known)]

    def _choice(self, victim: Victim, preemptor_uid: str) -> Choice | None:
        return self._choices.of(victim.node, victim.uid, by=preemptor_uid)

    async def _mark(self, case: Case, suspect: Suspect | None) -> bool:
        """Mark the pod, and with it the whole set that was chosen for its preemptor; raises `ApiError`."""
        if not await self._marker.mark(case, suspect):
            return False
        chosen = self._choice(case.victim, suspect.uid) if suspect else None
        if suspect is not None and chosen is not None:
            await self._marker.mark_fellows(case, chosen, suspect)
        return True

    def _reply(
        self, request: GuardRequest, case: Case, ruling: Ruling, nominees: Sequence[Nominee], *, is_marked: bool
    ) -> Answer:
        kind, outcome = request.kind.kind, _outcome(ruling)
        if ruling.violation is None:
            # An eviction that is allowed may be one that only tries, or that a budget holds.
            if case.door is Door.PREEMPTION:
                self._memory.forget(case.victim.uid)
                self.nominees.accepted(case.victim.node)
            warnings = [ruling.warning] if ruling.warning else ()
            return Answer(response.build_allowed(request.uid, warnings), kind, outcome)
        if request.is_dry_run and case.door is Door.EVICTION:
            # It will go. Without this, a drain that only tries would try for ever.
            return Answer(response.build_allowed(request.uid, [str(ruling.violation)]), kind, WARNED)
        self._memory.waits(case.victim.uid, is_asked=case.victim.is_asked)
        pace = self._pace(case, nominees)
        is_gone = is_marked and bool(nominees) and self._passes_for_gone(case, ruling, pace, nominees[0])
        # Asleep, a scheduler does not see its victims go. Where pods end so often, the next that does has it look again.
        is_pressed = is_gone and self._memory.is_pressed(case.victim.uid, case.victim.node, nominees[0].preemptor)
        if is_gone and not is_pressed:
            self._memory.passed_for_gone(case.victim.uid, case.victim.node, by=nominees[0].preemptor)
            return Answer(response.build_gone(request.uid, ruling.violation), kind, outcome)
        # For one that changed while it was judged, or a scheduler that may stand still after all, the shortest time is told.
        is_short = not is_marked or is_pressed or pace is Pace.PROBABLY_ASYNCHRONOUS
        return _put_off(request, ruling, self._retry_after(case, ruling, pace, nominees, is_short=is_short))

    def _pace(self, case: Case, nominees: Sequence[Nominee]) -> Pace:
        pace = self._paces.of(nominees, said := case.facts.settings.scheduler_preemption)
        # Who goes on nominates somebody. Without this, the pods of a Job that a synchronous one tries in turn would pass for one that insists.
        is_shown = pace is not Pace.UNKNOWN or said != AUTO or not nominees
        if is_shown or not self._memory.is_insisting(case.victim.uid, nominees[0].preemptor):
            return pace
        self._paces.show(nominees[:1], Pace.PROBABLY_ASYNCHRONOUS)
        return Pace.PROBABLY_ASYNCHRONOUS

    def _passes_for_gone(self, case: Case, ruling: Ruling, pace: Pace, preemptor: Nominee) -> bool:
        """True where the scheduler has others to delete that go with this one: a set's, in its order, or a gang's."""
        chosen = self._choice(case.victim, preemptor.uid)
        is_followed = case.goes_whole if chosen is None else chosen.victims[-1].uid != case.victim.uid
        is_asynchronous = pace is not Pace.UNKNOWN
        return guard.passes_for_gone(ruling, case.door, is_asynchronous=is_asynchronous, is_followed=is_followed)

    def _retry_after(
        self, case: Case, ruling: Ruling, pace: Pace, nominees: Sequence[Nominee], *, is_short: bool
    ) -> int | None:
        uid, node = case.victim.uid, case.victim.node
        by = nominees[0].preemptor if nominees else ""
        seconds = guard.retry_after(
            ruling,
            case.door,
            is_asynchronous=pace is not Pace.UNKNOWN,
            is_short=is_short,
            fellows=self._memory.fellows(node, uid, by),
            now=self._now(),
        )
        if case.door is Door.PREEMPTION:
            self._memory.refused(uid, node, by=by, was_timed=seconds is not None)
        return seconds


def _that_count(ruling: Ruling, nominees: Sequence[Nominee]) -> Sequence[Nominee]:
    """Return the pods for which another ruling is possible: for Kubernetes' own also of one that nobody may have.

    Only where a scheduler turned it away. Without this, one that is merely being bound would end everybody's protection there.
    """
    possible = [one for one in nominees if one.was_turned_away or not one.is_exempt]
    if ruling.is_allowed or ruling.marks:
        return possible
    return () if ruling.is_put_off else [one for one in possible if one.is_exempt]


def _put_off(request: GuardRequest, ruling: Ruling, seconds: int | None) -> Answer:
    assert ruling.violation is not None
    return Answer(response.build_put_off(request.uid, ruling.violation, seconds), request.kind.kind, _outcome(ruling))


def _outcome(ruling: Ruling) -> str:
    if ruling.is_allowed:
        return WARNED if ruling.warning else ALLOWED
    return PUT_OFF if ruling.is_put_off else REFUSED
