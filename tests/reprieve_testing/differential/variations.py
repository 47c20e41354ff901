"""Scenarios whose pods use what upstream's plugin does not know: one key each, over generated
scenarios.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from random import Random

from . import generator
from .difference import Difference
from .scenario import (
    CAN_PREEMPT,
    CLASS,
    COST,
    GANG,
    PREEMPTIBLE,
    Scenario,
    ScenarioNode,
    ScenarioPod,
    ScenarioPriorityClass,
)

_Change = Callable[[Random, ScenarioPod, Scenario], ScenarioPod]


def variants(each: int, seed: int) -> list[Scenario]:
    """Return `each` scenarios of every variation."""
    plain = iter(generator.scenarios(each * len(_VARIATIONS), seed))
    return [
        variation(
            Random(f"{seed}/{difference}/{number}"),
            replace(next(plain), name=f"{difference}-{seed}-{number}"),
        )
        for difference, variation in _VARIATIONS.items()
        for number in range(each)
    ]


def _for_each_pod(change: _Change) -> Callable[[Random, Scenario], Scenario]:
    """Return a variation that changes each pod by itself, the preemptor too."""

    def variation(random: Random, scenario: Scenario) -> Scenario:
        nodes = [
            replace(node, pods=tuple(change(random, pod, scenario) for pod in node.pods))
            for node in scenario.nodes
        ]
        return replace(
            scenario, nodes=tuple(nodes), preemptor=change(random, scenario.preemptor, scenario)
        )

    return variation


def _labelled(key: str, *values: str | None) -> _Change:
    """Return a change that labels a pod with one of these values, or not at all."""

    def change(random: Random, pod: ScenarioPod, _scene: Scenario) -> ScenarioPod:
        value = random.choice(values)
        return pod if value is None else replace(pod, labels={**pod.labels, key: value})

    return change


def _in_gangs(random: Random, pod: ScenarioPod, scenario: Scenario) -> ScenarioPod:
    # Scenarios share their Namespaces: each has gangs of its own.
    value = random.choice((None, "a", "a", "b"))
    return (
        pod
        if value is None
        else replace(pod, labels={**pod.labels, GANG: f"{scenario.name}-{value}"})
    )


def _defended(random: Random, pod: ScenarioPod, scenario: Scenario) -> ScenarioPod:
    priority = scenario.preemptor.priority
    if pod.name == scenario.preemptor.name or random.random() < 0.5:
        return pod
    value = min(
        random.choice((priority - 1, priority, priority + 1, pod.priority, pod.priority - 5)), 10**9
    )
    return replace(pod, defended_as=ScenarioPriorityClass(value=value))


def _alike(random: Random, scenario: Scenario) -> Scenario:
    """Make nodes that differ only in the cost of their pods, and in their start times.

    Upstream finds such nodes equal.
    """
    names, ages = count(), iter(random.sample(range(600, 100_000), 40))
    first = scenario.nodes[0]

    def copy(pod: ScenarioPod) -> ScenarioPod:
        cost = random.choice((None, "0", "-100", "5", "5", "2147483647"))
        annotations = {} if cost is None else {COST: cost}
        return replace(
            pod,
            name=f"p{next(names)}",
            annotations=annotations,
            started_ago=next(ages),
            is_terminating=False,
        )

    nodes = (
        ScenarioNode(name=f"n{number}", cpu=first.cpu, pods=tuple(map(copy, first.pods)))
        for number in range(3)
    )
    preemptor = replace(scenario.preemptor, cpu=1, memory=1)
    return replace(scenario, preemptor=preemptor, nodes=tuple(nodes), budgets=())


_VARIATIONS: Mapping[Difference, Callable[[Random, Scenario], Scenario]] = {
    Difference.CLASS: _for_each_pod(_labelled(CLASS, None, *map(str, range(7)))),
    Difference.PREEMPTIBLE: _for_each_pod(_labelled(PREEMPTIBLE, None, "false", "true", "False")),
    Difference.CAN_PREEMPT: _for_each_pod(_labelled(CAN_PREEMPT, None, "false", "true", "no")),
    Difference.DEFENCE: _for_each_pod(_defended),
    Difference.GANG: _for_each_pod(_in_gangs),
    Difference.COST: _alike,
}
