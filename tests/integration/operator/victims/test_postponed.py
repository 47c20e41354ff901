"""That a workload saves is written down later in a burst, and not much later."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprieve_operator.checkpointing import delivery
from reprieve_operator.checkpointing.delivery import Knowledge
from reprieve_operator.checkpointing.transport import Heard
from reprieve_operator.clock import Clock
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims.context import Tools
from reprieve_operator.victims.gang_registry import Gangs
from reprieve_operator.victims.reconciler import Keeper, Victim
from reprieve_policy.checkpointing.checkpoint_plan import AnnotationHint, Plan, Strategy
from reprieve_policy.checkpointing.contract import Answer, AnswerState
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle import machine
from reprieve_testing.builders import after, an_eviction

HINTED = an_eviction().hinted(deadline=after(600)).build()
PLAN = Plan(strategy=Strategy.AUTO, hint=AnnotationHint(), timeout_seconds=600, max_deferral_seconds=300)
SAVING = Answer(state=AnswerState.SAVING, eviction_id=HINTED.eviction_id)
SAVED = Answer(state=AnswerState.SAVED, eviction_id=HINTED.eviction_id)


@dataclass
class World:
    """How busy it is, and when."""

    are_many: bool = True
    seconds: float = 100.0

    def keeper(self) -> Keeper:
        clock = Clock(monotonic=lambda: self.seconds)
        tools: Any = SimpleNamespace(clock=clock, effects=self, settings=OperatorSettings(identity="a"), lines=None)
        return Keeper(Victim("team", "train", "uid"), cast("Tools", tools), cast("Gangs", None))


def puts_off(keeper: Keeper, answer: Answer) -> bool:
    decision = machine.decide(HINTED, machine.Seen(answer=answer), PLAN, PolicySettings(), after(10))
    return keeper._is_put_off(decision, answer)


def test_in_a_burst_it_is_put_off_until_the_burst_is_over() -> None:
    world = World()
    keeper = world.keeper()
    assert puts_off(keeper, SAVING)
    world.are_many = False
    assert not puts_off(keeper, SAVING)


def test_a_burst_that_does_not_end_puts_it_off_for_a_while_only() -> None:
    world = World()
    keeper = world.keeper()
    assert puts_off(keeper, SAVING)
    world.seconds += 14.0
    assert puts_off(keeper, SAVING)
    world.seconds += 2.0
    assert not puts_off(keeper, SAVING)


def test_what_somebody_waits_for_is_never_put_off() -> None:
    assert not puts_off(World().keeper(), SAVED)


@pytest.mark.parametrize("heard", [Heard.ANSWER, Heard.UNSURE])
def test_who_finds_a_hint_that_is_not_written_down_as_answered_asks_and_does_not_tell_again(heard: Heard) -> None:
    """The operator was killed between the answer and its write."""
    found = delivery.inherit(HINTED)
    assert found is Knowledge.INHERITED
    assert delivery.learn(found, heard) not in (Knowledge.UNSENT, Knowledge.LOST)
