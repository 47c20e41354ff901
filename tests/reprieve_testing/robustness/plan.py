"""What a run does: rounds of timed actions, from a seed and a number of minutes. Pure.

The same seed and the same minutes give the same plan. What happens within a plan also depends on
the machine: a replay repeats the actions, not each interleaving.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from random import Random
from typing import TypeVar

T = TypeVar("T")

ROUND_SECONDS = 40
"""What a round takes on average, with the wait for its last victim."""
_MARKS_UNTIL, _FAULTS_UNTIL = 14.0, 18.0
"""Seconds of a round. What begins later would only meet victims that have ended."""
_MARKS, _FAULTS = (5, 8), (3, 4)
"""How many of each a round has, from and to."""


class Work(StrEnum):
    """What is done to workloads."""

    MARK = "mark"
    GANG = "gang"
    DRAIN = "drain"
    PREEMPT = "preempt"
    CANCEL = "cancel"


class Fault(StrEnum):
    """What is done to programs, to the control plane and to the calls between them."""

    KILL_LEADER = "kill-leader"
    KILL_STANDBY = "kill-standby"
    STOP_LEADER = "stop-leader"
    STEP_CLOCK = "step-clock"
    DELETE_LEASE = "delete-lease"
    STEAL_LEASE = "steal-lease"
    KILL_WEBHOOKS = "kill-webhooks"
    STOP_WEBHOOKS = "stop-webhooks"
    ROTATE_CERTIFICATE = "rotate-certificate"
    ROTATE_CA = "rotate-ca"
    KILL_APISERVER = "kill-apiserver"
    KILL_ETCD = "kill-etcd"
    SLOW_ETCD = "slow-etcd"
    KILL_SCHEDULER = "kill-scheduler"
    CUT_WATCHES = "cut-watches"
    HOLD_WATCHES = "hold-watches"
    TOO_MANY_REQUESTS = "too-many-requests"
    SERVER_ERRORS = "server-errors"
    LOST_ANSWERS = "lost-answers"
    SLOW_CALLS = "slow-calls"


EXCUSES_NOTHING = frozenset(
    (
        Fault.KILL_STANDBY,
        Fault.STEP_CLOCK,
        Fault.ROTATE_CERTIFICATE,
        Fault.KILL_SCHEDULER,
        Fault.CUT_WATCHES,
        Fault.HOLD_WATCHES,
        Fault.SLOW_CALLS,
    )
)
"""All promises hold while these last; the others may keep an operator or the guard from acting."""
_STRICT_EVERY = 3
"""Of so many rounds one has only faults that excuse nothing."""


class Habit(StrEnum):
    """How a workload answers."""

    SAVES_AT_ONCE = "saves-at-once"
    SAVES_SLOWLY = "saves-slowly"
    SAVES_FOR_EVER = "saves-for-ever"
    NEVER_ANSWERS = "never-answers"
    CANNOT = "cannot"
    DEFERS = "defers"
    NO_CHECKPOINT = "no-checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedAction:
    """One action of a round."""

    at: float
    """Seconds since the beginning of the round."""
    name: str
    """A `Work` or a `Fault`."""
    seconds: float = 0.0
    """How long a fault lasts, or by how much a clock is stepped."""
    count: int = 1
    """How many pods."""
    habit: str = ""

    @property
    def is_fault(self) -> bool:
        return self.name in set(Fault)


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """Actions that happen together; the next round begins when their victims have ended."""

    number: int
    actions: Sequence[PlannedAction]


@dataclass(frozen=True, slots=True)
class RobustnessPlan:
    """All rounds of a run."""

    seed: int
    minutes: float
    rounds: Sequence[PlannedRound]

    def planned(self) -> Counter[str]:
        """Return how often each action is planned."""
        return Counter(action.name for one in self.rounds for action in one.actions)

    def with_actions(self, kept: Iterable[tuple[PlannedRound, PlannedAction]]) -> "RobustnessPlan":
        """Return the plan with these actions only; rounds without one are left out."""
        by_round: dict[int, list[PlannedAction]] = {}
        for of, action in kept:
            by_round.setdefault(of.number, []).append(action)
        return replace(self, rounds=[PlannedRound(*one) for one in sorted(by_round.items())])

    def pairs(self) -> list[tuple[PlannedRound, PlannedAction]]:
        """Return each action with its round."""
        return [(one, action) for one in self.rounds for action in one.actions]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> "RobustnessPlan":
        """Return a plan that `to_json` wrote."""
        document = json.loads(text)
        rounds = [
            PlannedRound(one["number"], [PlannedAction(**action) for action in one["actions"]])
            for one in document["rounds"]
        ]
        return cls(document["seed"], document["minutes"], rounds)


def generate(seed: int, minutes: float) -> RobustnessPlan:
    """Return the plan of a seed. Each fault comes once before any comes again."""
    random = Random(seed)
    faults, works = _dealt(list(Fault), random), _dealt(list(Work), random)
    strict = _dealt(sorted(EXCUSES_NOTHING), random)
    count = max(1, round(minutes * 60 / ROUND_SECONDS))
    return RobustnessPlan(
        seed,
        minutes,
        [
            PlannedRound(
                number, _round(random, strict if number % _STRICT_EVERY == 2 else faults, works)
            )
            for number in range(count)
        ],
    )


def _round(random: Random, faults: Iterator[Fault], works: Iterator[Work]) -> list[PlannedAction]:
    chosen = [_work(random, next(works)) for _ in range(random.randint(*_MARKS))]
    chosen += [_fault(random, next(faults)) for _ in range(random.randint(*_FAULTS))]
    return sorted(chosen, key=lambda action: action.at)


def _work(random: Random, work: Work) -> PlannedAction:
    most = {Work.MARK: 6, Work.GANG: 4, Work.DRAIN: 3, Work.PREEMPT: 1, Work.CANCEL: 2}[work]
    # Only a pod that is still saving can be cancelled.
    habits = [Habit.SAVES_FOR_EVER] if work is Work.CANCEL else list(Habit)
    return PlannedAction(
        at=round(random.uniform(0, _MARKS_UNTIL), 1),
        name=work,
        # Of a cancellation: from the mark to its removal.
        seconds=round(random.uniform(0.2, 8), 1) if work is Work.CANCEL else 0.0,
        count=random.randint(2 if work is Work.GANG else 1, most),
        habit=random.choice(habits),
    )


def _fault(random: Random, fault: Fault) -> PlannedAction:
    least, most = _SECONDS.get(fault, (0.0, 0.0))
    seconds = round(random.uniform(least, most), 1)
    if fault is Fault.STEP_CLOCK:
        seconds = random.choice([-3600.0, -90.0, 90.0, 3600.0])
    return PlannedAction(
        at=round(random.uniform(0.5, _FAULTS_UNTIL), 1), name=fault, seconds=seconds
    )


_SECONDS: dict[Fault, tuple[float, float]] = {
    Fault.KILL_LEADER: (0.0, 3.0),
    Fault.KILL_STANDBY: (0.0, 5.0),
    Fault.STOP_LEADER: (1.0, 20.0),
    Fault.STEAL_LEASE: (1.0, 4.0),
    Fault.KILL_WEBHOOKS: (0.0, 4.0),
    Fault.STOP_WEBHOOKS: (0.5, 6.0),
    Fault.KILL_APISERVER: (0.0, 4.0),
    Fault.KILL_ETCD: (0.0, 4.0),
    Fault.SLOW_ETCD: (3.0, 10.0),
    Fault.KILL_SCHEDULER: (0.0, 3.0),
    Fault.HOLD_WATCHES: (2.0, 10.0),
    Fault.TOO_MANY_REQUESTS: (2.0, 8.0),
    Fault.SERVER_ERRORS: (2.0, 8.0),
    Fault.LOST_ANSWERS: (2.0, 8.0),
    Fault.SLOW_CALLS: (2.0, 10.0),
}
"""How long each lasts, from and to: after a kill, until the program is started again."""


def _dealt(deck: list[T], random: Random) -> Iterator[T]:
    """Deal a shuffled deck again and again, so that nothing is left to chance for an hour."""
    while True:
        random.shuffle(deck)
        yield from deck
