"""A plan is a pure function of seed and minutes, and leaves no fault to chance for an hour."""

import pytest

from reprieve_testing.robustness import faults, plan
from reprieve_testing.robustness.plan import Fault, Habit, RobustnessPlan, Work

SEEDS = range(20)


def test_the_same_seed_gives_the_same_plan():
    assert plan.generate(7, 5) == plan.generate(7, 5)
    assert plan.generate(7, 5) != plan.generate(8, 5)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_hour_has_every_fault_and_all_work_many_times(seed: int):
    found = plan.generate(seed, 60).planned()
    assert min(found[name] for name in (*Fault, *Work)) >= 5


@pytest.mark.parametrize("seed", SEEDS)
def test_each_round_has_work_and_faults_in_order(seed: int):
    for one in plan.generate(seed, 10).rounds:
        assert any(action.is_fault for action in one.actions)
        assert not all(action.is_fault for action in one.actions)
        moments = [action.at for action in one.actions]
        assert moments == sorted(moments)
        assert 0 <= moments[0] <= moments[-1] < plan.ROUND_SECONDS


@pytest.mark.parametrize("seed", SEEDS)
def test_every_third_round_has_only_faults_that_excuse_nothing(seed: int):
    for one in plan.generate(seed, 10).rounds[2::3]:
        assert {action.name for action in one.actions if action.is_fault} <= plan.EXCUSES_NOTHING


def test_all_habits_are_met_in_an_hour_and_only_those_that_save_are_cancelled():
    actions = [action for _, action in plan.generate(1, 60).pairs() if not action.is_fault]
    assert {action.habit for action in actions} == set(Habit)
    cancelled = {action.habit for action in actions if action.name == Work.CANCEL}
    assert cancelled == {Habit.SAVES_FOR_EVER}


def test_a_short_run_has_one_round_at_least():
    assert len(plan.generate(1, 0.1).rounds) == 1


def test_a_plan_is_read_as_it_was_written():
    made = plan.generate(3, 4)
    assert RobustnessPlan.from_json(made.to_json()) == made


def test_a_part_of_a_plan_keeps_its_actions_and_leaves_out_empty_rounds():
    made = plan.generate(3, 3 * plan.ROUND_SECONDS / 60)
    kept = [pair for pair in made.pairs() if pair[0].number != 1][:-1]
    part = made.with_actions(kept)
    assert [one.number for one in part.rounds] == [0, 2]
    assert part.pairs()[0][1] == made.pairs()[0][1]
    assert len(part.pairs()) == len(kept)


def test_every_fault_can_be_injected():
    injector = faults.FaultInjector(None, None, None)  # type: ignore[arg-type]
    assert injector._ways.keys() | set(faults._CALLS) == set(Fault)
