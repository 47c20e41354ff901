"""What the page says of gangs: each phase, and who waits for whom."""

from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

import pytest

from reprieve_operator.gangs.divergence import DivergingGang
from reprieve_operator.gangs.gate_status import GateStatus
from reprieve_operator.ui.gangs import gang_rows, names_in
from reprieve_operator.victims.pod_tracker import VictimRef
from reprieve_operator.victims.registry import CurrentVictim
from reprieve_policy.gangs.gate_steps import GateStep
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_testing.objects.builders import NOW, an_eviction

LATER = NOW + timedelta(minutes=5)
GATE = GateStatus(
    namespace="team",
    name="train",
    step=GateStep.WAIT,
    minimum=4,
    count=4,
    bound=0,
    gated=4,
    priority=0,
    has_other_gates=False,
)


class Case(NamedTuple):
    gate: GateStatus
    phase: str
    waits_for: str
    is_problem: bool = False


CASES = {
    "too few pods exist": Case(replace(GATE, count=1), "waiting for pods", "3 more pods"),
    "one pod is missing": Case(replace(GATE, count=3), "waiting for pods", "1 more pod"),
    "another controller holds its pods": Case(
        replace(GATE, has_other_gates=True),
        "waiting for other gates",
        "the other scheduling gates of its pods",
    ),
    "its pods were released": Case(
        replace(GATE, gated=0, bound=1), "being placed", "the scheduler to place 3 pods"
    ),
    "it is its turn": Case(
        replace(GATE, step=GateStep.QUEUE, turn=1),
        "waiting for room",
        "room for 4 pods; turn 1 of 1",
    ),
    "it failed": Case(
        replace(GATE, step=GateStep.QUEUE, turn=1, retry_at=LATER),
        "waiting for room",
        "the end of its back-off, since it did not start in time",
    ),
    "its pods did not come": Case(
        replace(GATE, step=GateStep.INCOMPLETE, count=2),
        "incomplete",
        "2 more pods: they did not come in time",
        is_problem=True,
    ),
    "it was not placed": Case(
        replace(GATE, step=GateStep.HOLD_BACK),
        "held back",
        "its pods to be replaced: they were not placed in time",
        is_problem=True,
    ),
    "it runs, and more pods wait": Case(
        replace(GATE, step=GateStep.STARTED, gated=2, bound=4), "running", "room for 2 more pods"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_gang_that_starts(case: Case) -> None:
    (row,) = gang_rows([case.gate], [], [])
    assert (row.phase, row.waits_for, row.is_problem) == case[1:]
    assert row.until == case.gate.retry_at


def test_a_gang_that_runs_and_waits_for_nothing_is_not_shown() -> None:
    assert gang_rows([replace(GATE, step=GateStep.STARTED, gated=0, bound=4)], [], []) == []


def test_gangs_come_in_their_turn_and_name_the_one_before() -> None:
    queued = replace(GATE, step=GateStep.QUEUE)
    gates = [replace(queued, name=name, turn=turn) for name, turn in (("b", 2), ("a", 3), ("c", 1))]
    rows = gang_rows([replace(GATE, name="early", count=1), *gates], [], [])
    assert [row.name for row in rows] == ["c", "b", "a", "early"]
    assert rows[2].waits_for == "room for 4 pods; turn 3 of 3, after team/b"


def a_victim(name: str, phase: Phase, minutes: int = 5) -> CurrentVictim:
    deadline = NOW + timedelta(minutes=minutes)
    state = replace(an_eviction().hinted(deadline=deadline).build(), phase=phase, gang="train")
    return CurrentVictim(VictimRef("team", name, f"uid-{name}"), phase, state, is_stuck=False)


def test_a_gang_that_leaves_waits_for_its_slowest_pods() -> None:
    victims = [
        a_victim("w-0", Phase.SETTLED, 9),
        a_victim("w-2", Phase.CHECKPOINTING, 5),
        a_victim("w-1", Phase.HINTED, 3),
    ]
    (row,) = gang_rows([], victims, [])
    assert (row.phase, row.pods, row.minimum) == ("leaving", 3, None)
    assert (row.waits_for, row.until) == ("w-1, w-2 to be ready", NOW + timedelta(minutes=5))
    (row,) = gang_rows([], victims[:1], [])
    assert (row.waits_for, row.until) == ("its pods to go", None)


def test_a_gang_whose_pods_differ_waits_for_nothing() -> None:
    (row,) = gang_rows([], [], [DivergingGang("team", "mixed", "differs in priority")])
    assert (row.name, row.is_problem) == ("mixed", True)
    assert row.waits_for == "nothing: a pod differs in priority"


def test_of_many_names_the_first_are_shown() -> None:
    assert names_in([f"p-{number}" for number in range(7)]) == "p-0, p-1, p-2, p-3, p-4 and 2 more"
