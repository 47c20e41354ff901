"""Scenarios from a seed: small, full, and as unusual as the API server allows.

Two schedulers rarely differ on random values, so most values are drawn from the few at a boundary:
priorities one apart, a minimum at the preemptor's own priority, seconds that overflow, text that Go
parses and Python does not. Times keep a distance from every toleration's end: a scenario means the
same for as long as a run takes.
"""

from dataclasses import replace
from random import Random

from .scenario import (
    MINIMUM,
    OLDER_MINIMUM,
    OLDER_SECONDS,
    SECONDS,
    Scenario,
    ScenarioBudget,
    ScenarioNode,
    ScenarioPod,
    ScenarioPriorityClass,
)

_PREEMPTORS = (1, 100, 100, 8001, 9000, 9000, 9000, 10_000, 1_000_000_000)
_UNREADABLE = (
    "",
    "high",
    " 7",
    "7 ",
    "1e4",
    "0x10",
    "1_000",
    "1.0",
    "٣",
    "--1",
    "2147483648",
    "-2147483649",
)
_UNREADABLE_SECONDS = ("", "1h", "1.5", " 60", "60s", "9223372036854775808", "∞")
_SECONDS = (
    *(None, "0", "-0", *["-1"] * 6, *["3600"] * 6, *["86400"] * 6, "+86400", "00086400"),
    *(
        "-9223372036854775808",
        "9223372036",
        "9223372037",
        "18446744074",
        "20000000000",
        "9223372036854775807",
    ),
)
_AGES = (300, 300, 900, 7_200, 40_000, 200_000)
"""At least 45 minutes from each of the seconds above."""
_LABELS: tuple[dict[str, str], ...] = (
    {},
    {"app": "a"},
    {"app": "a"},
    {"app": "b"},
    {"app": "a", "tier": "x"},
    {"app": "b", "tier": "x"},
)
_SELECTORS = (
    {"app": "a"},
    {"app": "a"},
    {"app": "b"},
    {"tier": "x"},
    {"app": "a", "tier": "x"},
    {"app": "none"},
)
_PORT = 8080


def scenarios(count: int, seed: int) -> list[Scenario]:
    """Return `count` scenarios; those of one seed begin with the same ones, whatever the count."""
    return [
        _ScenarioGenerator(Random(f"{seed}/{number}")).scenario(f"seed{seed}-{number}")
        for number in range(count)
    ]


def without_tolerations(scenario: Scenario) -> Scenario:
    """Return the scenario with PriorityClasses without tolerations."""

    def silent(pod: ScenarioPod) -> ScenarioPod:
        named = pod.priority_class
        return pod if named is None else replace(pod, priority_class=replace(named, annotations={}))

    nodes = (replace(node, pods=tuple(map(silent, node.pods))) for node in scenario.nodes)
    return replace(scenario, nodes=tuple(nodes))


class _ScenarioGenerator:
    """Generates one scenario."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._priority = random.choice(_PREEMPTORS)
        self._memory_matters = self._with_probability(0.15)
        self._ports_matter = self._with_probability(0.1)
        self._starts = iter(random.sample(range(600, 100_000), 40))
        self._may_be_unstarted = True
        self._names = iter(range(40))

    def scenario(self, name: str) -> Scenario:
        nodes = tuple(
            self._node(f"n{number}")
            for number in range(self._weighted((1, 40), (2, 35), (3, 15), (4, 10)))
        )
        pods = [pod for node in nodes for pod in node.pods]
        budgets = tuple(
            self._budget(pods) for _ in range(self._weighted((0, 60), (1, 25), (2, 15)))
        )
        return Scenario(
            name=name,
            preemptor=self._preemptor(),
            nodes=nodes,
            budgets=budgets,
            tolerates_taint=self._with_probability(0.5),
        )

    def _preemptor(self) -> ScenarioPod:
        named = ScenarioPriorityClass(
            value=self._priority, never_preempts=self._with_probability(0.04)
        )
        return ScenarioPod(
            name="preemptor",
            cpu=self._weighted((1, 45), (2, 30), (3, 12), (4, 6), (6, 5), (9, 2)),
            memory=self._weighted((1, 40), (3, 40), (6, 20)) if self._memory_matters else 1,
            priority_class=named,
            host_port=_PORT if self._ports_matter else None,
        )

    def _node(self, name: str) -> ScenarioNode:
        count = self._weighted((1, 15), (2, 30), (3, 25), (4, 15), (5, 8), (6, 7))
        # At most one pod has the port: on a real node no second one would run.
        holder = self._random.randrange(2 * count) if self._ports_matter else None
        pods = tuple(self._pod(_PORT if number == holder else None) for number in range(count))
        spare = self._weighted((0, 88), (1, 9), (2, 3))
        return ScenarioNode(
            name=name,
            cpu=sum(pod.cpu for pod in pods) + spare,
            memory=sum(pod.memory for pod in pods) + spare if self._memory_matters else 64,
            most_pods=count if self._with_probability(0.08) else 110,
            is_cordoned=self._with_probability(0.03),
            is_tainted=self._with_probability(0.06),
            pods=pods,
        )

    def _pod(self, host_port: int | None) -> ScenarioPod:
        return ScenarioPod(
            name=f"p{next(self._names)}",
            cpu=self._weighted((1, 50), (2, 35), (3, 15)),
            memory=self._weighted((1, 40), (2, 40), (4, 20)) if self._memory_matters else 1,
            priority_class=self._priority_class(),
            labels=self._random.choice(_LABELS),
            namespace="two" if self._with_probability(0.1) else "one",
            host_port=host_port,
            scheduled_ago=self._scheduled_ago(),
            is_scheduled=not self._with_probability(0.05),
            started_ago=self._started_ago(),
            is_terminating=self._with_probability(0.02),
        )

    def _priority_class(self) -> ScenarioPriorityClass | None:
        if self._with_probability(0.07):
            return None
        below = self._random.choice(
            (0, 0, -10, self._priority - 1, self._priority - 1, self._priority // 2)
        )
        value = (
            self._random.choice((self._priority, self._priority + 1))
            if self._with_probability(0.08)
            else below
        )
        value = max(-(2**31), min(value, 10**9))
        return ScenarioPriorityClass(
            value=value, annotations=self._toleration(value), is_gone=self._with_probability(0.01)
        )

    def _toleration(self, value: int) -> dict[str, str]:
        if self._with_probability(0.2):
            return {}
        keys = (
            (OLDER_MINIMUM, OLDER_SECONDS) if self._with_probability(0.05) else (MINIMUM, SECONDS)
        )
        texts = dict(zip(keys, (self._minimum(value), self._seconds()), strict=True))
        return {key: text for key, text in texts.items() if text is not None}

    def _minimum(self, value: int) -> str | None:
        if self._with_probability(0.05):
            return self._random.choice(_UNREADABLE)
        priority = self._priority
        number = self._random.choice(
            (
                None,
                priority - 1,
                priority,
                priority,
                *[priority + 1] * 10,
                value,
                value + 1,
                -5,
                2**31 - 1,
            )
        )
        return (
            None
            if number is None
            else f"{number:+d}"
            if self._with_probability(0.1)
            else str(number)
        )

    def _seconds(self) -> str | None:
        return self._random.choice(
            _UNREADABLE_SECONDS if self._with_probability(0.05) else _SECONDS
        )

    def _scheduled_ago(self) -> int | None:
        if self._with_probability(0.08):
            return None
        return -7_200 if self._with_probability(0.02) else self._random.choice(_AGES)

    def _started_ago(self) -> int | None:
        # At most one: upstream sets its start to the current time at each read, so two of them have
        # no order.
        if self._may_be_unstarted and self._with_probability(0.05):
            self._may_be_unstarted = False
            return None
        return next(self._starts)

    def _budget(self, pods: list[ScenarioPod]) -> ScenarioBudget:
        return ScenarioBudget(
            selects=self._random.choice(_SELECTORS),
            allowed=self._weighted((0, 50), (1, 35), (2, 15)),
            namespace="two" if self._with_probability(0.1) else "one",
            disrupted=(self._random.choice(pods).name,) if self._with_probability(0.1) else (),
        )

    def _with_probability(self, share: float) -> bool:
        return self._random.random() < share

    def _weighted(self, *choices: tuple[int, int]) -> int:
        values, weights = zip(*choices, strict=True)
        return int(self._random.choices(values, weights)[0])
