"""That a workload saves is written down later in a burst, and not much later."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprieve_operator.checkpointing import delivery
from reprieve_operator.checkpointing.delivery import DeliveryState
from reprieve_operator.checkpointing.transport import ReplyKind
from reprieve_operator.clock import Clock
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims.context import Tools
from reprieve_operator.victims.gang_registry import GangRegistry
from reprieve_operator.victims.reconciler import VictimReconciler, VictimRef
from reprieve_policy.checkpointing.checkpoint_plan import AnnotationHint, CheckpointPlan, Strategy
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle import machine
from reprieve_testing.builders import after, an_eviction

HINTED = an_eviction().hinted(deadline=after(600)).build()
PLAN = CheckpointPlan(
    strategy=Strategy.AUTO, hint=AnnotationHint(), timeout_seconds=600, max_deferral_seconds=300
)
SAVING = CheckpointAnswer(state=AnswerState.SAVING, eviction_id=HINTED.eviction_id)
SAVED = CheckpointAnswer(state=AnswerState.SAVED, eviction_id=HINTED.eviction_id)


@dataclass
class World:
    """How busy it is, and when."""

    is_busy: bool = True
    seconds: float = 100.0

    def keeper(self) -> VictimReconciler:
        clock = Clock(monotonic=lambda: self.seconds)
        tools: Any = SimpleNamespace(
            clock=clock, effects=self, settings=OperatorSettings(identity="a"), lines=None
        )
        return VictimReconciler(
            VictimRef("team", "train", "uid"), cast("Tools", tools), cast("GangRegistry", None)
        )


def puts_off(keeper: VictimReconciler, answer: CheckpointAnswer) -> bool:
    decision = machine.decide(
        HINTED, machine.ObservedVictim(answer=answer), PLAN, PolicySettings(), after(10)
    )
    return keeper._is_postponed(decision, answer)


def test_in_a_burst_it_is_put_off_until_the_burst_is_over() -> None:
    world = World()
    keeper = world.keeper()
    assert puts_off(keeper, SAVING)
    world.is_busy = False
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


@pytest.mark.parametrize("heard", [ReplyKind.ANSWER, ReplyKind.OUTCOME_UNKNOWN])
def test_who_finds_a_hint_that_is_not_written_down_as_answered_asks_and_does_not_tell_again(
    heard: ReplyKind,
) -> None:
    """The operator was killed between the answer and its write."""
    found = delivery.initial_state(HINTED)
    assert found is DeliveryState.INHERITED
    assert delivery.next_state(found, heard) not in (DeliveryState.UNSENT, DeliveryState.LOST)
