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
from .guarded import HINT, Call, Guarded, a_pod, a_priority_class, phase_of

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
LEFT, TOLD, REPRIEVED = "left", "told", "reprieved"
WATCHED_SECONDS = 12.0
"""A storm would be six hundred calls."""
SETTLED_SECONDS = 60.0
HELD_UP_SECONDS = 20.0
"""A scheduler that waits for one refusal after the other holds a bystander up for minutes; a second is usual."""
_HINT = {**HINT, keys.CHECKPOINT_TIMEOUT: "100s"}
_PHASES_OF_THE_TOLD = {"hinted", "checkpointing"}


@dataclass(frozen=True, kw_only=True)
class Scene:
    """Whom a preemptor finds on its node, and what has become of them meanwhile: `LEFT` alone, `TOLD` to save, `REPRIEVED`."""

    asynchronous: str
    synchronous: str
    """Such a scheduler's preemptor is not known: only what protects a pod from everybody counts."""
    priority_class: str = LOW
    labels: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    size: int = 1
    preemptor: str = HIGH

    def becomes(self, pace: str) -> str:
        """Return what has become of the victims where a scheduler preempts so."""
        return self.asynchronous if pace == ASYNCHRONOUS else self.synchronous


_NOT_PREEMPTIBLE = {keys.PREEMPTIBLE: "false"}
_ALMOST_COMPLETE = {"activeDeadlineSeconds": 200}
SECOND_SET, GANG = "second-set", "gang"
SCENES: Mapping[str, Scene] = {
    "not-preemptible": Scene(asynchronous=LEFT, synchronous=LEFT, labels=_NOT_PREEMPTIBLE),
    "class-10": Scene(asynchronous=LEFT, synchronous=LEFT, labels={keys.PREEMPTION_CLASS: "10"}),
    "almost-complete": Scene(asynchronous=LEFT, synchronous=LEFT, spec=_ALMOST_COMPLETE),
    "tolerates-for-ever": Scene(asynchronous=LEFT, synchronous=TOLD, priority_class=TOLERANT),
    "tolerates-for-now": Scene(asynchronous=LEFT, synchronous=TOLD, priority_class=TOLERANT_FOR_NOW),
    "higher-class": Scene(asynchronous=LEFT, synchronous=TOLD, labels={keys.PREEMPTION_CLASS: "6"}),
    # Its preemptor has gone for another victim before.
    SECOND_SET: Scene(asynchronous=LEFT, synchronous=TOLD, priority_class=""),
    "kubernetes-own": Scene(
        asynchronous=TOLD, synchronous=LEFT, labels=_NOT_PREEMPTIBLE, preemptor="system-node-critical"
    ),
    GANG: Scene(asynchronous=TOLD, synchronous=TOLD, labels={keys.OLD_POD_GROUP: "runs"}, size=3),
    "gang-almost-complete": Scene(
        asynchronous=REPRIEVED,
        synchronous=REPRIEVED,
        labels={keys.OLD_POD_GROUP: "ends"},
        spec=_ALMOST_COMPLETE,
        size=3,
    ),
}
_FIRST_NODE, *_OTHERS = (f"kwok-{number}" for number in range(2, len(SCENES) + 3))
_NODES = dict(zip(SCENES, _OTHERS, strict=True))
NODES = len(SCENES) + 3
"""With two that no scene is on."""
_MAY_HAVE_SECOND = "example.com/second-set"


@dataclass(frozen=True)
class Busy:
    """What was asked for while pods ended all the time, and how many did."""

    ended: int
    calls: Mapping[str, list[Call]]


@dataclass(frozen=True)
class Played:
    """What was seen of each scene, while all of them were played at once."""

    calls: Mapping[str, list[Call]]
    busy: Sequence[Busy]
    """At first, and when that had gone on for a while."""
    outcomes: Mapping[str, set[str]]
    """What has become of the victims."""


def prepare(ours: Guarded) -> None:
    """Set the policy that the scenes need, and make their PriorityClasses."""
    ours.set_policy(ceiling="5m", checkpointTimeout="25s", nearCompletion="4m")
    tolerant = {TOLERANT: "-1", TOLERANT_FOR_NOW: "3600"}
    said = {
        name: {keys.MINIMUM_PREEMPTABLE_PRIORITY: "2000", keys.TOLERATION_SECONDS: seconds}
        for name, seconds in tolerant.items()
    }
    classes = [
        a_priority_class(name, 10, **{keys.TOLERATION_PREFIX + key: text for key, text in annotations.items()})
        for name, annotations in said.items()
    ]
    ours.create("default", a_priority_class(HIGH, 1000), a_priority_class(LOW, 10), *classes)


def play(ours: Guarded, pace: str) -> Played:
    """Play all scenes, with bystanders that have to be placed meanwhile; whoever is told saves in the end."""
    with ours.namespace("answers") as team:
        for name, scene in SCENES.items():
            ours.offer(_NODES[name], scene.size)
            ours.create(team, *(_victim(scene, pod, _NODES[name]) for pod in _victims(name)))
        ours.running(team, *(pod for name in SCENES for pod in _victims(name)))
        _go_for_a_first_set(ours, team)
        others = [name for name in SCENES if name != SECOND_SET]
        ours.create(team, *(_preemptor(name, _NODES[name]) for name in others))
        wait_for("all of them are asked for", lambda: _are_asked_for(ours.calls(team)))
        bystander_is_placed(ours, team)
        # Where a pod goes, whoever waits tries again.
        ours.kubectl.read("delete", "pod", "bystander", "-n", team)
        calls = _by_scene(watched(ours, team))
        bystander_is_placed(ours, team, "another")
        busy = [watched_while_pods_end(ours, team, passing) for passing in ("passing", "going-on")]
        outcomes = {name: _outcomes(ours, team, name, scene.becomes(pace)) for name, scene in SCENES.items()}
        told = [name for name, scene in SCENES.items() if scene.becomes(pace) == TOLD]
        for pod in (pod for name in told for pod in _victims(name)):
            ours.save(team, pod)
        ours.running(team, *(f"{name}-preemptor" for name in told if name != GANG))
        # Where a scheduler sleeps over a gang, a pod that ends has it look again: elsewhere they go on to.
        wait_for("the gang's preemptor runs", lambda: _runs_once_one_ends(ours, team, f"{GANG}-preemptor"))
        return Played(calls, busy, outcomes)


def bystander_is_placed(ours: Guarded, team: str, name: str = "bystander") -> None:
    """Others are scheduled as ever, while somebody waits for a victim."""
    began = time.monotonic()
    ours.create(team, a_pod(name, node="kwok-1"))
    ours.running(team, name)
    assert time.monotonic() - began < HELD_UP_SECONDS


def watched(ours: Guarded, team: str) -> list[Call]:
    """Return what the scheduler asks for in the next seconds, and what it asked for before."""
    time.sleep(WATCHED_SECONDS)  # That nothing more comes shows in time only.
    return ours.calls(team)


def watched_while_pods_end(ours: Guarded, team: str, passing: str) -> Busy:
    """Return how many pods ended one after the other in the next seconds, and what the scheduler asks for meanwhile.

    It tries again whenever one does. Without this, one that is told no time looks like one that asks rarely.
    """
    before, ended, until = len(ours.calls(team)), 0, time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < until:
        bystander_is_placed(ours, team, name := f"{passing}-{ended}")
        ours.kubectl.read("delete", "pod", name, "-n", team)
        ended += 1
    return Busy(ended, _by_scene(ours.calls(team)[before:]))


def rate(calls: list[Call]) -> float:
    """Return calls a second since the first, which needs no wait before it, over all that was watched at least."""
    first: datetime = calls[0].at
    seconds = max((calls[-1].at - first).total_seconds(), WATCHED_SECONDS)
    return (len(calls) - 1) / seconds


def _runs_once_one_ends(ours: Guarded, team: str, name: str) -> bool:
    bystander_is_placed(ours, team, "the-last")
    ours.kubectl.read("delete", "pod", "the-last", "-n", team)
    return ((ours.pod(team, name) or {}).get("status") or {}).get("phase") == "Running"


def _go_for_a_first_set(ours: Guarded, team: str) -> None:
    """Have a preemptor go for a victim, and its scheduler then see another node, whose victim has a lower priority.

    A scheduler that goes on sticks to what it chose: this one is started anew.
    """
    ours.offer(_FIRST_NODE, 1)
    ours.label_node(_FIRST_NODE, f"{_MAY_HAVE_SECOND}=yes")
    first = f"{SECOND_SET}-first"
    ours.create(team, a_pod(first, slots=1, priority_class=LOW, node=_FIRST_NODE, annotations=_HINT))
    ours.running(team, first)
    preemptor = _preemptor(SECOND_SET, "")
    preemptor["spec"]["nodeSelector"] = {_MAY_HAVE_SECOND: "yes"}
    ours.create(team, preemptor)
    ours.in_phase(team, first, *_PHASES_OF_THE_TOLD)
    ours.label_node(_NODES[SECOND_SET], f"{_MAY_HAVE_SECOND}=yes")
    ours.restart_scheduler()


def _victims(name: str) -> list[str]:
    return [f"{name}-{number}" for number in range(SCENES[name].size)]


def _victim(scene: Scene, name: str, node: str) -> Any:
    said = {"labels": dict(scene.labels), "annotations": _HINT}
    pod = a_pod(name, slots=1, priority_class=scene.priority_class, node=node, **said)
    pod["spec"] |= scene.spec
    return pod


def _preemptor(name: str, node: str) -> Any:
    scene = SCENES[name]
    return a_pod(f"{name}-preemptor", slots=scene.size, priority_class=scene.preemptor, node=node)


def _by_scene(calls: list[Call]) -> dict[str, list[Call]]:
    return {name: [call for call in calls if call.name.rpartition("-")[0] == name] for name in SCENES}


def _are_asked_for(calls: list[Call]) -> bool:
    is_second = any(call.name in _victims(SECOND_SET) for call in calls)
    return is_second and all(_by_scene(calls).values())


def _outcomes(ours: Guarded, team: str, name: str, wanted: str) -> set[str]:
    """Return what became of all victims of a scene; a busy operator reprieves the members of a gang one after the other."""
    deadline = time.monotonic() + SETTLED_SECONDS
    while (found := {_outcome(ours, team, pod) for pod in _victims(name)}) != {wanted} and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def _outcome(ours: Guarded, team: str, name: str) -> str:
    phase = phase_of(ours.pod(team, name))
    return TOLD if phase in _PHASES_OF_THE_TOLD else phase or LEFT
