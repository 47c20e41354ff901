"""What is counted and told of a victim: once each, under labels of which there are few."""

from dataclasses import dataclass, field, replace
from typing import Any, cast

import msgspec
import pytest

from reprieve_operator.announce import Announcer, Regarding
from reprieve_operator.metrics import Metrics
from reprieve_operator.namespace_policies import NamespacePolicies
from reprieve_operator.pods import Pod
from reprieve_operator.tally import Tally
from reprieve_policy.eviction import Cause, Device, Eviction, Ground, Outcome, Phase, Price
from reprieve_policy.life import Decision
from reprieve_policy.life_table import Move
from reprieve_policy.namespace import NamespacePolicy
from reprieve_testing.builders import after, an_eviction

POD = msgspec.convert({"metadata": {"name": "p", "namespace": "team", "uid": "u"}}, Pod)
ENDED = replace(an_eviction().build(), phase=Phase.TERMINATING, grace_seconds=30, outcome=Outcome.SAVED)
REFUSED = replace(an_eviction().asked_by_scheduler().build(), refused_on=Ground.NEAR_COMPLETION, deadline=after(60))


@dataclass
class World:
    """A registry, and what is said beside it."""

    metrics: Metrics = field(default_factory=Metrics)
    policy: NamespacePolicy = field(default_factory=NamespacePolicy)
    told: list[tuple[str, bool]] = field(default_factory=list)

    def announce(self, _: Regarding, reason: str, note: str, *, once: bool = False) -> None:
        assert note
        self.told.append((reason, once))

    def of(self, name: str | None) -> NamespacePolicy:
        assert name == "team"
        return self.policy

    def tally(self) -> Tally:
        return Tally(cast("Announcer", self), self.metrics, cast("NamespacePolicies", self))

    def value(self, name: str, **labels: str) -> Any:
        return self.metrics.registry.get_sample_value(name, labels)

    def ends(self, **fields: Any) -> "World":
        self.tally().deleted(POD, replace(ENDED, **fields))
        return self

    def refuses(self, phase: Phase) -> "World":
        state = replace(REFUSED, phase=phase)
        self.tally().moved(POD, Decision(state, (Move(phase),)))
        return self


@pytest.mark.parametrize("cause", Cause)
def test_a_deletion_is_counted_by_namespace_and_cause(cause: Cause) -> None:
    assert World().ends(cause=cause).value("reprieve_preemptions_total", namespace="team", reason=cause) == 1


def test_one_of_an_earlier_version_has_no_cause_and_no_cost() -> None:
    world = World().ends()
    assert world.value("reprieve_preemptions_total", namespace="team", reason="request") == 1
    assert world.value("reprieve_preemption_cost_count", workload_type="unsaid") is None


FAILURES = {
    Outcome.SAVED: (None, 0),
    Outcome.SKIPPED: (None, 0),
    Outcome.REFUSED: (1, 0),
    Outcome.TIMED_OUT: (1, 0),
    Outcome.UNRESPONSIVE: (1, 1),
}


@pytest.mark.parametrize(("outcome", "want"), FAILURES.items(), ids=[outcome.value for outcome in FAILURES])
def test_only_lost_work_is_a_failure_and_only_silence_escalates(outcome: Outcome, want: tuple[int | None, int]) -> None:
    world = World().ends(outcome=outcome)
    assert world.value("reprieve_preemption_outcomes_total", outcome=outcome) == 1
    failed = world.value("reprieve_preemption_failed_checkpoint_total", namespace="team", reason=outcome)
    assert (failed, world.value("reprieve_preemption_escalations_total")) == want


@pytest.mark.parametrize(("workload_type", "shown"), [("ml-training", "ml-training"), (None, "unsaid")])
def test_a_cost_is_observed_under_the_namespaces_workload_type(workload_type: str | None, shown: str) -> None:
    world = World(policy=NamespacePolicy(workload_type=workload_type))
    world.ends(cost=Price(hours=12.5, device=Device.GPU))
    assert world.value("reprieve_preemption_cost_sum", workload_type=shown) == 12.5
    assert world.told == [("SoftEvictionDeleting", False)]


@pytest.mark.parametrize(("phase", "once"), [(Phase.REPRIEVED, False), (Phase.SPARED, True)])
def test_a_refusal_is_counted_each_time_and_one_for_good_is_told_once(phase: Phase, *, once: bool) -> None:
    world = World().refuses(phase).refuses(phase)
    assert world.value("reprieve_preemption_refusals_total", ground="near-completion") == 2
    assert world.told == [("PreemptionRefused", once)] * 2


def test_an_eviction_that_goes_on_is_no_refusal() -> None:
    world = World()
    hinted: Eviction = replace(REFUSED, phase=Phase.HINTED, attempt=1)
    world.tally().moved(POD, Decision(hinted, (Move(Phase.REQUESTED), Move(Phase.HINTED))))
    assert world.value("reprieve_preemption_refusals_total", ground="near-completion") is None
