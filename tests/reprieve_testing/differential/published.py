"""The use cases that upstream publishes for PreemptionToleration (document 002), as scenarios.

Each has the outcome that the document states.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from .scenario import (
    MINIMUM,
    SECONDS,
    Scenario,
    ScenarioNode,
    ScenarioOutcome,
    ScenarioPod,
    ScenarioPriorityClass,
)

_MINUTE = 60


def _low(seconds: int) -> ScenarioPriorityClass:
    return ScenarioPriorityClass(value=8000, annotations={MINIMUM: "10000", SECONDS: str(seconds)})


SYSTEM_CRITICAL = ScenarioPriorityClass(value=10_000)
HIGH = ScenarioPriorityClass(value=9000)
LOW = ScenarioPriorityClass(value=8000)
LOW_NON_PREEMPTED = _low(-1)
LOW_10_MIN, LOW_30_MIN = _low(10 * _MINUTE), _low(30 * _MINUTE)


@dataclass(frozen=True)
class UseCase:
    """A scenario and the statement of document 002 about it."""

    sentence: str
    scenario: Scenario
    outcome: ScenarioOutcome


def use_cases() -> Iterator[UseCase]:
    """Yield the use cases in the document's order."""
    for number, (sentence, preemptor, pods, victims) in enumerate(_SAID):
        node = ScenarioNode(name="n0", cpu=sum(pod.cpu for pod in pods), pods=pods)
        scenario = Scenario(
            name=f"published-{number}",
            preemptor=ScenarioPod(name="preemptor", priority_class=preemptor),
            nodes=(node,),
        )
        outcome = ScenarioOutcome("n0", frozenset(victims)) if victims else ScenarioOutcome()
        yield UseCase(sentence, scenario, outcome)


def _pod(name: str, priority_class: ScenarioPriorityClass, minutes: int = 60) -> ScenarioPod:
    return ScenarioPod(
        name=name,
        priority_class=priority_class,
        scheduled_ago=minutes * _MINUTE,
        started_ago=minutes * _MINUTE,
    )


_SAID: tuple[tuple[str, ScenarioPriorityClass, tuple[ScenarioPod, ...], tuple[str, ...]], ...] = (
    ("high can't preempt low-non-preempted", HIGH, (_pod("a", LOW_NON_PREEMPTED, 10_000),), ()),
    (
        "system-critical can preempt low-non-preempted",
        SYSTEM_CRITICAL,
        (_pod("a", LOW_NON_PREEMPTED),),
        ("a",),
    ),
    ("normal preemption happens on low", HIGH, (_pod("a", LOW),), ("a",)),
    ("p > 8000 can preempt low, 8000 can't", LOW, (_pod("a", LOW),), ()),
    (
        "beside low-non-preempted, low is preempted",
        HIGH,
        (_pod("a", LOW_NON_PREEMPTED, 2), _pod("b", LOW, 300)),
        ("b",),
    ),
    (
        "high can't preempt low-non-preempted-10min within 10 min",
        HIGH,
        (_pod("a", LOW_10_MIN, 1),),
        (),
    ),
    (
        "high can preempt low-non-preempted-10min after 10 min",
        HIGH,
        (_pod("a", LOW_10_MIN, 20),),
        ("a",),
    ),
    (
        "high can't preempt low-non-preempted-30min within 30 min",
        HIGH,
        (_pod("a", LOW_30_MIN, 20),),
        (),
    ),
    (
        "high can preempt low-non-preempted-30min after 30 min",
        HIGH,
        (_pod("a", LOW_30_MIN, 40),),
        ("a",),
    ),
    (
        "system-critical can preempt low-non-preempted-10min immediately",
        SYSTEM_CRITICAL,
        (_pod("a", LOW_10_MIN, 0),),
        ("a",),
    ),
    (
        "system-critical can preempt low-non-preempted-30min immediately",
        SYSTEM_CRITICAL,
        (_pod("a", LOW_30_MIN, 0),),
        ("a",),
    ),
    (
        "the victim whose guaranteed time has ended is preempted",
        HIGH,
        (_pod("a", LOW_10_MIN, 20), _pod("b", LOW_30_MIN, 21)),
        ("a",),
    ),
    (
        "low has no guaranteed running time",
        HIGH,
        (_pod("a", LOW_10_MIN, 2), _pod("b", LOW, 3)),
        ("b",),
    ),
)
