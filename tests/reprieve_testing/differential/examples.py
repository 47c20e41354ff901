"""For each difference the smallest scenario that shows it, with both outcomes."""

from collections.abc import Mapping
from dataclasses import dataclass

from .difference import Difference
from .scenario import (
    CAN_PREEMPT,
    CLASS,
    COST,
    GANG,
    MINIMUM,
    PREEMPTIBLE,
    SECONDS,
    Scenario,
    ScenarioNode,
    ScenarioOutcome,
    ScenarioPod,
    ScenarioPriorityClass,
)

HIGH, LOW = ScenarioPriorityClass(value=9000), ScenarioPriorityClass(value=8000)
_OVERFLOWING = ScenarioPriorityClass(
    value=8000, annotations={MINIMUM: "10000", SECONDS: "20000000000"}
)


@dataclass(frozen=True)
class DifferenceExample:
    """A scenario and its two outcomes."""

    scenario: Scenario
    upstream: ScenarioOutcome
    reprieve: ScenarioOutcome


def _pod(name: str, age: int, **fields: object) -> ScenarioPod:
    return ScenarioPod(**{"name": name, "priority_class": LOW, "started_ago": age} | fields)  # type: ignore[arg-type]  # by their names


def _scenario(
    difference: Difference, *nodes: tuple[ScenarioPod, ...], cpu: int = 1, **fields: object
) -> Scenario:
    """Return full nodes, and a preemptor with a higher priority than all their pods."""
    preemptor = ScenarioPod(**{"name": "preemptor", "priority_class": HIGH, "cpu": cpu} | fields)  # type: ignore[arg-type]  # by their names
    full = (
        ScenarioNode(name=f"n{number}", cpu=sum(pod.cpu for pod in pods), pods=pods)
        for number, pods in enumerate(nodes)
    )
    return Scenario(name=f"shown-{difference}", preemptor=preemptor, nodes=tuple(full))


def _outcome(*victims: str, node: str = "n0") -> ScenarioOutcome:
    return ScenarioOutcome(node, frozenset(victims))


NOTHING = ScenarioOutcome()
_FOUR = tuple(_pod(name, 1000 * number) for number, name in enumerate("abcd", 1))

EXAMPLES: Mapping[Difference, DifferenceExample] = {
    Difference.MOST_VICTIMS: DifferenceExample(
        _scenario(Difference.MOST_VICTIMS, _FOUR, cpu=4), _outcome("a", "b", "c", "d"), NOTHING
    ),
    # b is terminating and frees room for one pod. Upstream takes the pod that started last and is
    # not terminating.
    Difference.GOING: DifferenceExample(
        _scenario(Difference.GOING, (_pod("a", 1000), _pod("b", 2000, is_terminating=True))),
        _outcome("a"),
        NOTHING,
    ),
    # 20,000,000,000 s overflow to 49 years.
    Difference.OVERFLOW: DifferenceExample(
        _scenario(Difference.OVERFLOW, (_pod("a", 1000, priority_class=_OVERFLOWING),)),
        NOTHING,
        _outcome("a"),
    ),
    Difference.COST: DifferenceExample(
        _scenario(
            Difference.COST, (_pod("a", 1000, annotations={COST: "100"}),), (_pod("b", 2000),)
        ),
        _outcome("a"),
        _outcome("b", node="n1"),
    ),
    Difference.CLASS: DifferenceExample(
        _scenario(Difference.CLASS, (_pod("a", 1000, labels={CLASS: "5"}),)), _outcome("a"), NOTHING
    ),
    Difference.PREEMPTIBLE: DifferenceExample(
        _scenario(
            Difference.PREEMPTIBLE,
            (_pod("a", 1000, labels={PREEMPTIBLE: "false"}), _pod("b", 2000)),
        ),
        _outcome("a"),
        _outcome("b"),
    ),
    Difference.CAN_PREEMPT: DifferenceExample(
        _scenario(Difference.CAN_PREEMPT, (_pod("a", 1000),), labels={CAN_PREEMPT: "false"}),
        _outcome("a"),
        NOTHING,
    ),
    Difference.DEFENCE: DifferenceExample(
        _scenario(Difference.DEFENCE, (_pod("a", 1000, defended_as=HIGH), _pod("b", 2000))),
        _outcome("a"),
        _outcome("b"),
    ),
    # All of the gang would be evicted for one pod; b is a single victim.
    Difference.GANG: DifferenceExample(
        _scenario(
            Difference.GANG,
            (_pod("a", 1000, labels={GANG: "train"}), _pod("b", 2000)),
            (_pod("c", 3000, labels={GANG: "train"}),),
        ),
        _outcome("a"),
        _outcome("b"),
    ),
}
