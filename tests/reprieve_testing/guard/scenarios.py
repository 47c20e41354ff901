"""All answers of the guard side by side, each for a preemptor and a node of its own.

The tests count the scheduler's calls, and check that no other pod waits longer. One bystander
shows that for all of them: an answer that stops a scheduler's loop stops every pod.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from reprieve_policy import keys
from reprieve_testing.cluster.handle import wait_for

from .guarded_cluster import HINT, GuardedCluster, RemovalCall, a_pod, a_priority_class, phase_of

HIGH, LOW = "guarded-high", "guarded-low"
TOLERANT, TOLERANT_FOR_NOW = "guarded-tolerant", "guarded-tolerant-for-now"
ASYNCHRONOUS, SYNCHRONOUS, OLDER = "asynchronous", "synchronous", "older"
FEATURE_GATES = {
    ASYNCHRONOUS: "",
    SYNCHRONOUS: "SchedulerAsyncPreemption=false",
    # As before 1.33: the scheduler retries a rejected pod only after a second, and waits longer
    # each time.
    OLDER: "SchedulerAsyncPreemption=false,SchedulerPopFromBackoffQ=false",
}
"""The feature gates of each mode."""
UNTOUCHED, NOTIFIED, REPRIEVED = "untouched", "notified", "reprieved"
WATCHED_SECONDS = 12.0
"""A storm would be six hundred calls."""
SETTLED_SECONDS = 60.0
HELD_UP_SECONDS = 20.0
"""A scheduler that waits for each refusal holds a bystander up for minutes; a second is usual."""
_HINT = {**HINT, keys.CHECKPOINT_TIMEOUT: "100s"}
_NOTIFIED_PHASES = {"hinted", "checkpointing"}


@dataclass(frozen=True, kw_only=True)
class GuardScenario:
    """The victims of a preemptor on its node, and their outcome.

    `UNTOUCHED`, `NOTIFIED` to save, or `REPRIEVED`.
    """

    asynchronous: str
    synchronous: str
    """A synchronous scheduler's preemptor is not known: only what protects a pod from every
    preemptor counts.
    """
    priority_class: str = LOW
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    size: int = 1
    preemptor: str = HIGH

    def expected_outcome(self, mode: str) -> str:
        """Return the outcome of the victims in a scheduler's mode."""
        return self.asynchronous if mode == ASYNCHRONOUS else self.synchronous


_NOT_PREEMPTIBLE = {keys.PREEMPTIBLE: "false"}
_ALMOST_COMPLETE = {"activeDeadlineSeconds": 200}
SECOND_SET, GANG = "second-set", "gang"
SCENARIOS: Mapping[str, GuardScenario] = {
    "not-preemptible": GuardScenario(
        asynchronous=UNTOUCHED, synchronous=UNTOUCHED, labels=_NOT_PREEMPTIBLE
    ),
    "class-10": GuardScenario(
        asynchronous=UNTOUCHED, synchronous=UNTOUCHED, labels={keys.PREEMPTION_CLASS: "10"}
    ),
    "almost-complete": GuardScenario(
        asynchronous=UNTOUCHED, synchronous=UNTOUCHED, spec=_ALMOST_COMPLETE
    ),
    "tolerates-for-ever": GuardScenario(
        asynchronous=UNTOUCHED, synchronous=NOTIFIED, priority_class=TOLERANT
    ),
    "tolerates-for-now": GuardScenario(
        asynchronous=UNTOUCHED, synchronous=NOTIFIED, priority_class=TOLERANT_FOR_NOW
    ),
    "higher-class": GuardScenario(
        asynchronous=UNTOUCHED, synchronous=NOTIFIED, labels={keys.PREEMPTION_CLASS: "6"}
    ),
    # Its preemptor has preempted another victim before.
    SECOND_SET: GuardScenario(asynchronous=UNTOUCHED, synchronous=NOTIFIED, priority_class=""),
    "kubernetes-own": GuardScenario(
        asynchronous=NOTIFIED,
        synchronous=UNTOUCHED,
        labels=_NOT_PREEMPTIBLE,
        preemptor="system-node-critical",
    ),
    GANG: GuardScenario(
        asynchronous=NOTIFIED, synchronous=NOTIFIED, labels={keys.OLD_POD_GROUP: "runs"}, size=3
    ),
    "gang-almost-complete": GuardScenario(
        asynchronous=REPRIEVED,
        synchronous=REPRIEVED,
        labels={keys.OLD_POD_GROUP: "ends"},
        spec=_ALMOST_COMPLETE,
        size=3,
    ),
}
_FIRST_NODE, *_OTHERS = (f"kwok-{number}" for number in range(2, len(SCENARIOS) + 3))
_NODES = dict(zip(SCENARIOS, _OTHERS, strict=True))
NODES = len(SCENARIOS) + 3
"""Two of the nodes belong to no scenario."""
_MAY_HAVE_SECOND = "example.com/second-set"


@dataclass(frozen=True)
class ChurnResult:
    """The scheduler's calls while pods end all the time, and how many pods ended."""

    ended: int
    calls: Mapping[str, list[RemovalCall]]


@dataclass(frozen=True)
class ScenarioResults:
    """The observations of each scenario, while all of them run at once."""

    calls: Mapping[str, list[RemovalCall]]
    busy: Sequence[ChurnResult]
    """The first one, and one after it had gone on for a while."""
    outcomes: Mapping[str, set[str]]
    """The outcomes of the victims."""


def prepare(guarded: GuardedCluster) -> None:
    """Set the policy that the scenarios need, and create their PriorityClasses."""
    guarded.set_policy(ceiling="5m", checkpointTimeout="25s", nearCompletion="4m")
    tolerant = {TOLERANT: "-1", TOLERANT_FOR_NOW: "3600"}
    annotations_of = {
        name: {keys.MINIMUM_PREEMPTABLE_PRIORITY: "2000", keys.TOLERATION_SECONDS: seconds}
        for name, seconds in tolerant.items()
    }
    classes = [
        a_priority_class(
            name, 10, **{keys.TOLERATION_PREFIX + key: text for key, text in annotations.items()}
        )
        for name, annotations in annotations_of.items()
    ]
    guarded.create("default", a_priority_class(HIGH, 1000), a_priority_class(LOW, 10), *classes)


def run_scenarios(guarded: GuardedCluster, mode: str) -> ScenarioResults:
    """Run all scenarios, with bystanders that have to be placed meanwhile.

    Notified victims save in the end.
    """
    with guarded.namespace("answers") as namespace:
        for name, scenario in SCENARIOS.items():
            guarded.set_capacity(_NODES[name], scenario.size)
            guarded.create(
                namespace, *(_victim(scenario, pod, _NODES[name]) for pod in _victims(name))
            )
        guarded.running(namespace, *(pod for name in SCENARIOS for pod in _victims(name)))
        _preempt_first_set(guarded, namespace)
        others = [name for name in SCENARIOS if name != SECOND_SET]
        guarded.create(namespace, *(_preemptor(name, _NODES[name]) for name in others))
        wait_for("all of them are asked for", lambda: _are_requested(guarded.calls(namespace)))
        bystander_is_placed(guarded, namespace)
        # When a pod is gone, the scheduler retries every waiting pod.
        guarded.kubectl.read("delete", "pod", "bystander", "-n", namespace)
        calls = _by_scenario(observe_calls(guarded, namespace))
        bystander_is_placed(guarded, namespace, "another")
        busy = [
            observe_calls_during_churn(guarded, namespace, passing)
            for passing in ("passing", "going-on")
        ]
        outcomes = {
            name: _outcomes(guarded, namespace, name, scenario.expected_outcome(mode))
            for name, scenario in SCENARIOS.items()
        }
        notified = [
            name
            for name, scenario in SCENARIOS.items()
            if scenario.expected_outcome(mode) == NOTIFIED
        ]
        for pod in (pod for name in notified for pod in _victims(name)):
            guarded.acknowledge_checkpoint(namespace, pod)
        guarded.running(namespace, *(f"{name}-preemptor" for name in notified if name != GANG))
        # Where a scheduler sleeps over a gang, the end of a pod wakes it: elsewhere pods end all
        # the time.
        wait_for(
            "the gang's preemptor runs",
            lambda: _runs_once_one_ends(guarded, namespace, f"{GANG}-preemptor"),
        )
        return ScenarioResults(calls, busy, outcomes)


def bystander_is_placed(guarded: GuardedCluster, namespace: str, name: str = "bystander") -> None:
    """Assert that another pod is scheduled as usual while a preemptor waits for a victim."""
    began = time.monotonic()
    guarded.create(namespace, a_pod(name, node="kwok-1"))
    guarded.running(namespace, name)
    assert time.monotonic() - began < HELD_UP_SECONDS


def observe_calls(guarded: GuardedCluster, namespace: str) -> list[RemovalCall]:
    """Return the scheduler's calls up to now and in the next seconds."""
    time.sleep(WATCHED_SECONDS)  # Only time shows that no more calls come.
    return guarded.calls(namespace)


def observe_calls_during_churn(
    guarded: GuardedCluster, namespace: str, passing: str
) -> ChurnResult:
    """Return how many pods ended one after another in the next seconds, and the scheduler's calls.

    The scheduler retries whenever a pod ends. Without this, a preemptor that gets no retry time
    looks like one that is retried rarely.
    """
    before, ended, until = len(guarded.calls(namespace)), 0, time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < until:
        bystander_is_placed(guarded, namespace, name := f"{passing}-{ended}")
        guarded.kubectl.read("delete", "pod", name, "-n", namespace)
        ended += 1
    return ChurnResult(ended, _by_scenario(guarded.calls(namespace)[before:]))


def rate(calls: list[RemovalCall]) -> float:
    """Return the calls a second after the first one, which has no wait before it.

    The time is at least that of the observation.
    """
    first: datetime = calls[0].at
    seconds = max((calls[-1].at - first).total_seconds(), WATCHED_SECONDS)
    return (len(calls) - 1) / seconds


def _runs_once_one_ends(guarded: GuardedCluster, namespace: str, name: str) -> bool:
    bystander_is_placed(guarded, namespace, "the-last")
    guarded.kubectl.read("delete", "pod", "the-last", "-n", namespace)
    return ((guarded.pod(namespace, name) or {}).get("status") or {}).get("phase") == "Running"


def _preempt_first_set(guarded: GuardedCluster, namespace: str) -> None:
    """Let a preemptor evict a victim on one node, and then show its scheduler another node.

    The other node's victim has a lower priority. A running scheduler keeps its choice: this one is
    restarted.
    """
    guarded.set_capacity(_FIRST_NODE, 1)
    guarded.label_node(_FIRST_NODE, f"{_MAY_HAVE_SECOND}=yes")
    first = f"{SECOND_SET}-first"
    guarded.create(
        namespace, a_pod(first, slots=1, priority_class=LOW, node=_FIRST_NODE, annotations=_HINT)
    )
    guarded.running(namespace, first)
    preemptor = _preemptor(SECOND_SET, "")
    preemptor["spec"]["nodeSelector"] = {_MAY_HAVE_SECOND: "yes"}
    guarded.create(namespace, preemptor)
    guarded.wait_phase(namespace, first, *_NOTIFIED_PHASES)
    guarded.label_node(_NODES[SECOND_SET], f"{_MAY_HAVE_SECOND}=yes")
    guarded.restart_scheduler()


def _victims(name: str) -> list[str]:
    return [f"{name}-{number}" for number in range(SCENARIOS[name].size)]


def _victim(scenario: GuardScenario, name: str, node: str) -> Any:
    metadata = {"labels": dict(scenario.labels), "annotations": _HINT}
    pod = a_pod(name, slots=1, priority_class=scenario.priority_class, node=node, **metadata)
    pod["spec"] |= scenario.spec
    return pod


def _preemptor(name: str, node: str) -> Any:
    scenario = SCENARIOS[name]
    return a_pod(
        f"{name}-preemptor", slots=scenario.size, priority_class=scenario.preemptor, node=node
    )


def _by_scenario(calls: list[RemovalCall]) -> dict[str, list[RemovalCall]]:
    return {
        name: [call for call in calls if call.name.rpartition("-")[0] == name] for name in SCENARIOS
    }


def _are_requested(calls: list[RemovalCall]) -> bool:
    is_second = any(call.name in _victims(SECOND_SET) for call in calls)
    return is_second and all(_by_scenario(calls).values())


def _outcomes(guarded: GuardedCluster, namespace: str, name: str, expected: str) -> set[str]:
    """Return what became of all victims of a scenario.

    The operator reprieves the members of a gang one after the other: a busy one needs a while.
    """
    deadline = time.monotonic() + SETTLED_SECONDS
    while True:
        found = {_outcome(guarded, namespace, pod) for pod in _victims(name)}
        if found == {expected} or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def _outcome(guarded: GuardedCluster, namespace: str, name: str) -> str:
    phase = phase_of(guarded.pod(namespace, name))
    return NOTIFIED if phase in _NOTIFIED_PHASES else phase or UNTOUCHED
