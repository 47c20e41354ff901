"""The sets of victims that were returned to a scheduler lately: whoever is refused one victim's deletion marks its whole set.

A hint, never a right: a set holds only what our own policy decided for a preemptor that is pending, and it is known to the
replica that was asked and no other. Where it is missing, victims are found out one by one, as without the extender.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

REMEMBERED_SECONDS = 600.0
"""A scheduler that is asked to come back in 30 s does so eleven times before it waits for an event: 330 s, and some more."""
_MOST_NODES = 50_000
"""Ten decisions about the largest cluster that Kubernetes supports; some 20 MB."""


@dataclass(frozen=True, slots=True)
class Named:
    """One pod, as a write to it must name it."""

    uid: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Choice:
    """The victims of one node for one preemptor, the most important first."""

    preemptor: Named
    node: str
    victims: tuple[Named, ...]


class LastChoices(Protocol):
    """What the guard may ask."""

    def of(self, node: str, victim_uid: str) -> Choice | None:
        """Return the latest set of `node` that this victim is in; `None` where none is remembered."""


@dataclass(frozen=True, slots=True)
class _Answer:
    at: float
    by_node: Mapping[str, Choice]


class RememberedChoices:
    """`LastChoices`, by preemptor: the latest answer for each, as long as it can matter."""

    def __init__(self, *, most_nodes: int = _MOST_NODES, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._most_nodes, self._monotonic = most_nodes, monotonic
        self._answers: dict[str, _Answer] = {}
        self._nodes = 0

    def remember(self, preemptor: Named, choices: Mapping[str, Choice]) -> None:
        """Take in what was just returned for a preemptor, by node; it replaces what it was told before."""
        self._drop(preemptor.uid)
        self._answers[preemptor.uid] = _Answer(self._monotonic(), choices)
        self._nodes += len(choices)
        self._expire()

    def of(self, node: str, victim_uid: str) -> Choice | None:
        """Return the latest set of `node` that this victim is in; `None` where none is remembered."""
        self._expire()
        for answer in reversed(self._answers.values()):
            choice = answer.by_node.get(node)
            if choice is not None and any(victim.uid == victim_uid for victim in choice.victims):
                return choice
        return None

    def _expire(self) -> None:
        """Forget what is old, and the oldest of what is too much; the latest answer stays, however large."""
        oldest_allowed = self._monotonic() - REMEMBERED_SECONDS
        while self._answers:
            uid, answer = next(iter(self._answers.items()))
            is_too_much = self._nodes > self._most_nodes and len(self._answers) > 1
            if answer.at > oldest_allowed and not is_too_much:
                return
            self._drop(uid)

    def _drop(self, uid: str) -> None:
        dropped = self._answers.pop(uid, None)
        self._nodes -= 0 if dropped is None else len(dropped.by_node)
