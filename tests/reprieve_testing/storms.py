"""Answers of the guard side by side, each for a preemptor and a node of its own: how often is asked, and is anybody held up?

One bystander tells it of all of them: an answer that stops a scheduler's loop stops everybody.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from reprieve_policy import keys

from .cluster import wait_for
from .guarded import HINT, GuardedCluster, RemovalCall, a_pod, a_priority_class, phase_of

HIGH, LOW = "guarded-high", "guarded-low"
TOLERANT, TOLERANT_FOR_NOW = "guarded-tolerant", "guarded-tolerant-for-now"
ASYNCHRONOUS, SYNCHRONOUS, OLDER = "asynchronous", "synchronous", "older"
FEATURE_GATES = {
    ASYNCHRONOUS: "",
    SYNCHRONOUS: "SchedulerAsyncPreemption=false",
    # As before 1.33: a pod that was turned away is not looked at again within a second, and ever more of them.
    OLDER: "SchedulerAsyncPreemption=false,SchedulerPopFromBackoffQ=false",
}
"""Of each pace."""
UNTOUCHED, NOTIFIED, REPRIEVED = "left", "told", "reprieved"
WATCHED_SECONDS = 12.0
"""A storm would be six hundred calls."""
SETTLED_SECONDS = 60.0
HELD_UP_SECONDS = 20.0
"""A scheduler that waits for each refusal holds a bystander up for minutes; a second is usual."""
_HINT = {**HINT, keys.CHECKPOINT_TIMEOUT: "100s"}
_NOTIFIED_PHASES = {"hinted", "checkpointing"}


@dataclass(frozen=True, kw_only=True)
class GuardScenario:
    """Whom a preemptor finds on its node, and what has become of them meanwhile: `LEFT` alone, `TOLD` to save, `REPRIEVED`."""

    asynchronous: str
    synchronous: str
    """Such a scheduler's preemptor is not known: only what protects a pod from everybody counts."""
    priority_class: str = LOW
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    size: int = 1
    preemptor: str = HIGH

    def expected_outcome(self, pace: str) -> str:
        """Return what has become of the victims where a scheduler preempts so."""
        return self.asynchronous if pace == ASYNCHRONOUS else self.synchronous


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
    # Its preemptor has gone for another victim before.
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
"""With two that no scene is on."""
_MAY_HAVE_SECOND = "example.com/second-set"


@dataclass(frozen=True)
class ChurnResult:
    """What was asked for while pods ended all the time, and how many did."""

    ended: int
    calls: Mapping[str, list[RemovalCall]]


@dataclass(frozen=True)
class ScenarioResults:
    """What was seen of each scene, while all of them were played at once."""

    calls: Mapping[str, list[RemovalCall]]
    busy: Sequence[ChurnResult]
    """At first, and when that had gone on for a while."""
    outcomes: Mapping[str, set[str]]
    """What has become of the victims."""


def prepare(ours: GuardedCluster) -> None:
    """Set the policy that the scenes need, and make their PriorityClasses."""
    ours.set_policy(ceiling="5m", checkpointTimeout="25s", nearCompletion="4m")
    tolerant = {TOLERANT: "-1", TOLERANT_FOR_NOW: "3600"}
    said = {
        name: {keys.MINIMUM_PREEMPTABLE_PRIORITY: "2000", keys.TOLERATION_SECONDS: seconds}
        for name, seconds in tolerant.items()
    }
    classes = [
        a_priority_class(
            name, 10, **{keys.TOLERATION_PREFIX + key: text for key, text in annotations.items()}
        )
        for name, annotations in said.items()
    ]
    ours.create("default", a_priority_class(HIGH, 1000), a_priority_class(LOW, 10), *classes)


def run_scenarios(ours: GuardedCluster, pace: str) -> ScenarioResults:
    """Play all scenes, with bystanders that have to be placed meanwhile; whoever is told saves in the end."""
    with ours.namespace("answers") as team:
        for name, scene in SCENARIOS.items():
            ours.set_capacity(_NODES[name], scene.size)
            ours.create(team, *(_victim(scene, pod, _NODES[name]) for pod in _victims(name)))
        ours.running(team, *(pod for name in SCENARIOS for pod in _victims(name)))
        _preempt_first_set(ours, team)
        others = [name for name in SCENARIOS if name != SECOND_SET]
        ours.create(team, *(_preemptor(name, _NODES[name]) for name in others))
        wait_for("all of them are asked for", lambda: _are_requested(ours.calls(team)))
        bystander_is_placed(ours, team)
        # Where a pod goes, whoever waits tries again.
        ours.kubectl.read("delete", "pod", "bystander", "-n", team)
        calls = _by_scenario(observe_calls(ours, team))
        bystander_is_placed(ours, team, "another")
        busy = [
            observe_calls_during_churn(ours, team, passing) for passing in ("passing", "going-on")
        ]
        outcomes = {
            name: _outcomes(ours, team, name, scene.expected_outcome(pace))
            for name, scene in SCENARIOS.items()
        }
        told = [
            name for name, scene in SCENARIOS.items() if scene.expected_outcome(pace) == NOTIFIED
        ]
        for pod in (pod for name in told for pod in _victims(name)):
            ours.acknowledge_checkpoint(team, pod)
        ours.running(team, *(f"{name}-preemptor" for name in told if name != GANG))
        # Where a scheduler sleeps over a gang, a pod that ends has it look again: elsewhere they go on to.
        wait_for(
            "the gang's preemptor runs",
            lambda: _runs_once_one_ends(ours, team, f"{GANG}-preemptor"),
        )
        return ScenarioResults(calls, busy, outcomes)


def bystander_is_placed(ours: GuardedCluster, team: str, name: str = "bystander") -> None:
    """Others are scheduled as ever, while somebody waits for a victim."""
    began = time.monotonic()
    ours.create(team, a_pod(name, node="kwok-1"))
    ours.running(team, name)
    assert time.monotonic() - began < HELD_UP_SECONDS


def observe_calls(ours: GuardedCluster, team: str) -> list[RemovalCall]:
    """Return what the scheduler asks for in the next seconds, and what it asked for before."""
    time.sleep(WATCHED_SECONDS)  # That nothing more comes shows in time only.
    return ours.calls(team)


def observe_calls_during_churn(ours: GuardedCluster, team: str, passing: str) -> ChurnResult:
    """Return how many pods ended one after the other in the next seconds, and what the scheduler asks for meanwhile.

    It tries again whenever one does. Without this, one that is told no time looks like one that asks rarely.
    """
    before, ended, until = len(ours.calls(team)), 0, time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < until:
        bystander_is_placed(ours, team, name := f"{passing}-{ended}")
        ours.kubectl.read("delete", "pod", name, "-n", team)
        ended += 1
    return ChurnResult(ended, _by_scenario(ours.calls(team)[before:]))


def rate(calls: list[RemovalCall]) -> float:
    """Return calls a second since the first, which needs no wait before it, over all that was watched at least."""
    first: datetime = calls[0].at
    seconds = max((calls[-1].at - first).total_seconds(), WATCHED_SECONDS)
    return (len(calls) - 1) / seconds


def _runs_once_one_ends(ours: GuardedCluster, team: str, name: str) -> bool:
    bystander_is_placed(ours, team, "the-last")
    ours.kubectl.read("delete", "pod", "the-last", "-n", team)
    return ((ours.pod(team, name) or {}).get("status") or {}).get("phase") == "Running"


def _preempt_first_set(ours: GuardedCluster, team: str) -> None:
    """Have a preemptor go for a victim, and its scheduler then see another node, whose victim has a lower priority.

    A scheduler that goes on sticks to what it chose: this one is started anew.
    """
    ours.set_capacity(_FIRST_NODE, 1)
    ours.label_node(_FIRST_NODE, f"{_MAY_HAVE_SECOND}=yes")
    first = f"{SECOND_SET}-first"
    ours.create(
        team, a_pod(first, slots=1, priority_class=LOW, node=_FIRST_NODE, annotations=_HINT)
    )
    ours.running(team, first)
    preemptor = _preemptor(SECOND_SET, "")
    preemptor["spec"]["nodeSelector"] = {_MAY_HAVE_SECOND: "yes"}
    ours.create(team, preemptor)
    ours.wait_phase(team, first, *_NOTIFIED_PHASES)
    ours.label_node(_NODES[SECOND_SET], f"{_MAY_HAVE_SECOND}=yes")
    ours.restart_scheduler()


def _victims(name: str) -> list[str]:
    return [f"{name}-{number}" for number in range(SCENARIOS[name].size)]


def _victim(scene: GuardScenario, name: str, node: str) -> Any:
    said = {"labels": dict(scene.labels), "annotations": _HINT}
    pod = a_pod(name, slots=1, priority_class=scene.priority_class, node=node, **said)
    pod["spec"] |= scene.spec
    return pod


def _preemptor(name: str, node: str) -> Any:
    scene = SCENARIOS[name]
    return a_pod(f"{name}-preemptor", slots=scene.size, priority_class=scene.preemptor, node=node)


def _by_scenario(calls: list[RemovalCall]) -> dict[str, list[RemovalCall]]:
    return {
        name: [call for call in calls if call.name.rpartition("-")[0] == name] for name in SCENARIOS
    }


def _are_requested(calls: list[RemovalCall]) -> bool:
    is_second = any(call.name in _victims(SECOND_SET) for call in calls)
    return is_second and all(_by_scenario(calls).values())


def _outcomes(ours: GuardedCluster, team: str, name: str, expected: str) -> set[str]:
    """Return what became of all victims of a scenario.

    The operator reprieves the members of a gang one after the other: a busy one needs a while.
    """
    deadline = time.monotonic() + SETTLED_SECONDS
    while True:
        found = {_outcome(ours, team, pod) for pod in _victims(name)}
        if found == {expected} or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def _outcome(ours: GuardedCluster, team: str, name: str) -> str:
    phase = phase_of(ours.pod(team, name))
    return NOTIFIED if phase in _NOTIFIED_PHASES else phase or UNTOUCHED
