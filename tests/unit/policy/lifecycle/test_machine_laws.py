"""Laws of every victim's life, for all observations and clocks."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from random import Random
from typing import NamedTuple

from reprieve_policy.checkpointing.checkpoint_plan import (
    AnnotationHint,
    CheckpointPlan,
    SigtermHint,
    Strategy,
)
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle import eviction as codec
from reprieve_policy.lifecycle import machine, termination
from reprieve_policy.lifecycle.eviction import (
    WITH_DEADLINE,
    CheckpointOutcome,
    Eviction,
    Phase,
    Protection,
    ProtectionReason,
    Source,
)
from reprieve_policy.lifecycle.grace_period import MIN_GRACE_SECONDS
from reprieve_policy.lifecycle.machine import LifecycleDecision, ObservedVictim
from reprieve_policy.lifecycle.transitions import TABLE, TERMINAL
from reprieve_testing.objects.builders import NOW, an_eviction

HOUR = timedelta(hours=1)
REQUESTED = an_eviction().build()
BEFORE_DELETE = (Phase.REQUESTED, *WITH_DEADLINE)


@dataclass(frozen=True)
class Life:
    """All observations of one victim, and their clock."""

    source: Source
    must_evict: bool
    plan: CheckpointPlan
    settings: PolicySettings
    steps: tuple[tuple[timedelta, ObservedVictim], ...]

    def decide(self, eviction: Eviction, seen: ObservedVictim, now: datetime) -> LifecycleDecision:
        return machine.decide(eviction, seen, self.plan, self.settings, now)


class Turn(NamedTuple):
    """One decision in a life: the state before, the observation, its time, and the result."""

    victim: Life
    before: Eviction
    seen: ObservedVictim
    now: datetime
    decision: LifecycleDecision


def turns_of(victim: Life) -> Iterator[Turn]:
    eviction, now = replace(REQUESTED, source=victim.source, must_evict=victim.must_evict), NOW
    for elapsed, seen in victim.steps:
        now += elapsed
        decision = victim.decide(eviction, seen, now)
        yield Turn(victim, eviction, seen, now, decision)
        eviction = decision.eviction


def an_answer(chance: Random) -> CheckpointAnswer:
    return CheckpointAnswer(
        state=chance.choice(list(AnswerState)),
        eviction_id=chance.choice([None, REQUESTED.eviction_id, "another"]),
        step=chance.choice([None, 4200]),
        defer_seconds=chance.choice([None, 0, 60, 2**53]),
    )


def a_reprieve(chance: Random) -> Protection:
    until = NOW + timedelta(seconds=chance.randint(0, 600))
    return chance.choice(
        [
            Protection(ProtectionReason.NON_PREEMPTIBLE, None),
            Protection(ProtectionReason.NEAR_COMPLETION, until),
        ]
    )


def seen_by(chance: Random) -> ObservedVictim:
    return ObservedVictim(
        is_marked=chance.random() > 0.03,
        is_requested_again=chance.random() < 0.1,
        must_evict=chance.random() < 0.5,
        protection=a_reprieve(chance) if chance.random() < 0.2 else None,
        loses_less_at_once=chance.random() < 0.2,
        is_being_deleted=chance.random() < 0.03,
        containers_ended=chance.random() < 0.03,
        is_gone=chance.random() < 0.05,
        is_replaced=chance.random() < 0.3,
        pod_grace_seconds=chance.choice([0, 1, 30, 10**6]),
        answer=an_answer(chance) if chance.random() < 0.5 else None,
        hint_lost=chance.random() < 0.3,
        request_forgotten=chance.random() < 0.2,
        may_terminate=chance.random() < 0.5,
        is_set_ready=chance.random() < 0.8,
        may_set_grow=chance.random() < 0.1,
        has_preemptor_left=chance.random() < 0.05,
        is_node_wanted=chance.random() < 0.3,
        is_node_lost=chance.random() < 0.2,
        eviction_blocked=chance.random() < 0.5,
    )


def a_life(chance: Random) -> Life:
    """Return one of ten turns, with a clock that now and then jumps an hour, forward or back."""
    clock = [*range(0, 900, 50), HOUR.total_seconds(), -HOUR.total_seconds()]
    source = chance.choice(list(Source))
    return Life(
        source=source,
        # The mark of a scheduler asks for a deletion.
        must_evict=not source.is_preemption and chance.random() < 0.5,
        plan=CheckpointPlan(
            strategy=chance.choice([Strategy.AUTO, Strategy.AUTO, Strategy.AUTO, Strategy.NONE]),
            hint=chance.choice([AnnotationHint(), AnnotationHint(), SigtermHint()]),
            timeout_seconds=chance.randint(1, 3600),
            max_deferral_seconds=chance.randint(1, 3600),
        ),
        settings=PolicySettings(
            extension_percent=chance.choice([0, 50, 100]),
            grace_cap_seconds=chance.randint(1, 120),
            force_delete_on_lost_nodes=chance.random() < 0.3,
            ceiling_seconds=chance.randint(1, 3600),
        ),
        steps=tuple((timedelta(seconds=chance.choice(clock)), seen_by(chance)) for _ in range(10)),
    )


@cache
def lives() -> list[list[Turn]]:
    """Return the same ones every time.

    Drawing them by hypothesis takes a hundred times as long.
    """
    return [list(turns_of(a_life(Random(seed)))) for seed in range(500)]


@cache
def all_turns() -> list[Turn]:
    return [turn for turns in lives() for turn in turns]


def test_the_generated_lives_visit_every_phase_and_outcome() -> None:
    states = [turn.decision.eviction for turn in all_turns()]
    assert {state.phase for state in states} == set(Phase) - {Phase.REQUESTED}
    assert {state.outcome for state in states} == {None, *CheckpointOutcome}


def test_every_move_is_in_the_table() -> None:
    for _, before, _, _, decision in all_turns():
        phases = [before.phase, *(move.to for move in decision.transitions)]
        assert all(
            move in TABLE[phase].values()
            for phase, move in zip(phases, decision.transitions, strict=False)
        )
        assert decision.eviction.phase is phases[-1]


def test_no_victim_waits_beyond_the_ceiling() -> None:
    for victim, _, _, now, decision in all_turns():
        ceiling = NOW + timedelta(seconds=victim.settings.ceiling_seconds)
        state = decision.eviction
        assert state.phase not in BEFORE_DELETE or now < ceiling
        assert state.deadline is None or state.deadline <= ceiling


def test_a_victim_that_must_be_evicted_waits_for_a_budget_until_the_ceiling_only() -> None:
    for victim, _, seen, now, decision in all_turns():
        state = decision.eviction
        if state.phase is Phase.TERMINATING and state.must_evict and seen.eviction_blocked:
            ceiling = NOW + timedelta(seconds=victim.settings.ceiling_seconds)
            assert now < ceiling or seen.is_being_deleted


def test_a_deadline_never_moves_to_an_earlier_time() -> None:
    for _, before, _, _, decision in all_turns():
        if (
            before.deadline is not None
            and before.phase is not Phase.REPRIEVED
            and decision.eviction.phase in BEFORE_DELETE
        ):
            assert decision.eviction.deadline is not None
            assert decision.eviction.deadline >= before.deadline


def test_no_outcome_is_decided_without_a_reason() -> None:
    for victim, before, seen, now, decision in all_turns():
        state = decision.eviction
        if before.phase not in BEFORE_DELETE or state.phase not in (
            Phase.SETTLED,
            Phase.TERMINATING,
        ):
            continue
        if before.phase is Phase.SETTLED and state.outcome is before.outcome:
            continue
        about_it = (
            seen.answer if seen.answer and seen.answer.may_belong_to(before.eviction_id) else None
        )
        ceiling = NOW + timedelta(seconds=victim.settings.ceiling_seconds)
        is_late = now >= (before.deadline or ceiling)
        assert {
            CheckpointOutcome.SKIPPED: not victim.plan.gives_notice,
            CheckpointOutcome.LOSES_LESS: seen.loses_less_at_once
            and before.source.is_preemption
            and before.phase in (Phase.REQUESTED, Phase.REPRIEVED),
            CheckpointOutcome.ON_SIGTERM: victim.plan.saves_on_sigterm,
            CheckpointOutcome.OVERTAKEN: seen.is_being_deleted,
            CheckpointOutcome.REFUSED: about_it is not None
            and about_it.state is AnswerState.CANNOT,
            CheckpointOutcome.SAVED: state.checkpoint is not None,
            CheckpointOutcome.UNRESPONSIVE: state.answered_at is None and is_late,
            CheckpointOutcome.TIMED_OUT: state.answered_at is not None and is_late,
        }[state.outcome or CheckpointOutcome.FINISHED]


def test_a_victim_that_was_asked_is_never_said_to_lose_less_without_a_save() -> None:
    is_tried = False
    for _, before, seen, _, decision in all_turns():
        if decision.eviction.outcome is not CheckpointOutcome.LOSES_LESS:
            continue
        is_tried = True
        assert decision.eviction.attempt == 0
        assert before.outcome is CheckpointOutcome.LOSES_LESS or seen.loses_less_at_once
    assert is_tried


def test_no_gang_member_is_deleted_early_except_at_the_ceiling_or_by_others() -> None:
    for victim, before, seen, now, decision in all_turns():
        if before.phase in BEFORE_DELETE and decision.eviction.phase is Phase.TERMINATING:
            assert seen.may_terminate or seen.is_being_deleted or now >= last_moment(victim)


def test_no_victim_is_deleted_before_its_set_is_ready_but_one_that_saves_on_sigterm() -> None:
    for victim, before, seen, now, decision in all_turns():
        state = decision.eviction
        if before.phase in BEFORE_DELETE and state.phase is Phase.TERMINATING:
            saves_on_sigterm = state.outcome is CheckpointOutcome.ON_SIGTERM
            is_due = seen.is_set_ready or saves_on_sigterm or now >= last_moment(victim)
            assert is_due or seen.is_being_deleted


def test_only_a_scheduler_s_victim_stays_because_its_preemptor_left() -> None:
    is_tried = False
    for _, before, seen, _, decision in all_turns():
        state = decision.eviction
        if before.phase not in TERMINAL and state.outcome is CheckpointOutcome.NOT_NEEDED:
            is_tried = True
            assert seen.has_preemptor_left
            assert not seen.is_node_wanted
            assert state.source.is_preemption
            assert state.phase is Phase.CANCELLED
    assert is_tried


def test_no_victim_may_stay_once_a_client_that_may_delete_it_asked_for_it() -> None:
    is_tried = False
    for _, before, seen, _, decision in all_turns():
        if seen.is_requested_by_deleter:
            is_tried |= termination.may_stay(before)
            assert not termination.may_stay(decision.eviction)
    assert is_tried


def last_moment(victim: Life) -> datetime:
    """Return when a victim no longer waits for other pods."""
    seconds = victim.settings.ceiling_seconds
    save_seconds = victim.plan.save_seconds if victim.plan.saves_on_sigterm else 0
    return NOW + timedelta(seconds=seconds - save_seconds)


def test_a_checkpoint_is_only_what_the_workload_acknowledged() -> None:
    for _, before, seen, _, decision in all_turns():
        if decision.eviction.checkpoint != before.checkpoint:
            assert seen.answer is not None
            assert seen.answer.state is AnswerState.SAVED
            assert seen.answer.may_belong_to(before.eviction_id)


def test_every_deleted_or_ended_victim_has_an_outcome_and_a_grace_period_within_the_limit() -> None:
    for victim, _, _, _, decision in all_turns():
        state = decision.eviction
        assert (state.outcome is not None) or state.phase in BEFORE_DELETE
        if state.phase is Phase.TERMINATING:
            assert state.grace_seconds is not None
            saves_on_sigterm = state.outcome is CheckpointOutcome.ON_SIGTERM
            save_seconds = min(victim.plan.save_seconds, victim.settings.ceiling_seconds)
            longest = max(victim.settings.grace_cap_seconds, save_seconds * saves_on_sigterm)
            assert state.grace_seconds <= longest
            assert (
                state.grace_seconds >= MIN_GRACE_SECONDS
                or victim.settings.force_delete_on_lost_nodes
            )


def test_a_terminal_state_does_not_change() -> None:
    for _, before, _, _, decision in all_turns():
        if before.phase in TERMINAL:
            assert replace(decision.eviction, phase=before.phase) == before


def test_a_victim_is_notified_three_times_at_most_and_extended_once() -> None:
    for turns in lives():
        moves = [move for turn in turns for move in turn.decision.transitions]
        told = [move for move in moves if move.to is Phase.HINTED or move.resends_hint]
        given = [
            move
            for move in moves
            if move.to in (Phase.EXTENDED, Phase.DEFERRED) and not move.resends_hint
        ]
        assert (
            len(told)
            == max(turn.decision.eviction.attempt for turn in turns)
            <= machine.MAX_ATTEMPTS
        )
        assert len(given) <= 1


def test_a_workload_that_forgets_its_request_gains_no_time() -> None:
    is_tried = False
    for victim, before, seen, now, _ in all_turns():
        plain = replace(seen, answer=None, hint_lost=False, request_forgotten=False)
        forgets, remembers = (
            victim.decide(before, replace(plain, request_forgotten=is_so), now).eviction
            for is_so in (True, False)
        )
        assert forgets.deadline == remembers.deadline
        is_tried |= forgets != remembers
    assert is_tried


def test_no_pod_is_reprieved_twice_and_only_a_scheduler_is_refused() -> None:
    for turns in lives():
        moves = [move.to for turn in turns for move in turn.decision.transitions]
        refused = [turn for turn in turns if turn.decision.eviction.refused_on is not None]
        assert moves.count(Phase.REPRIEVED) <= 1
        assert not refused or turns[0].victim.source.is_preemption


def test_deciding_again_changes_nothing() -> None:
    """Each lost hint is one more attempt, and an answer from before the hint does not count."""
    for victim, before, seen, now, decision in all_turns():
        was_notified = before.phase not in (Phase.REQUESTED, Phase.REPRIEVED)
        same = replace(
            seen,
            hint_lost=False,
            request_forgotten=False,
            answer=seen.answer if was_notified else None,
        )
        assert victim.decide(decision.eviction, same, now).transitions == ()


def test_an_operator_that_was_killed_finds_the_whole_state_on_the_pod() -> None:
    for state in {turn.decision.eviction for turn in all_turns()}:
        assert codec.parse(codec.render(state)) == state


def test_waking_at_the_next_wake_time_misses_nothing() -> None:
    quiet = ObservedVictim(may_terminate=False)
    for victim, _, _, now, decision in all_turns():
        wake = machine.next_wake(decision.eviction)
        if wake is None:
            assert victim.decide(decision.eviction, quiet, now + 100 * HOUR).transitions == ()
        else:
            assert (
                victim.decide(decision.eviction, quiet, wake - timedelta(seconds=1)).transitions
                == ()
            )
            assert victim.decide(decision.eviction, quiet, wake).transitions != ()
