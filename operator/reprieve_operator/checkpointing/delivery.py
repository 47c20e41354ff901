"""What is known of a hint, as a table: (knowledge x reply) -> knowledge. Nothing is hinted twice for one attempt.

The state on the pod says that a hint is *about to be* sent (it is written first), so an operator that finds such a
state after a restart does not know whether the workload has heard: it asks before it tells.

An answer that names no request is to the last one that the workload heard of. Whoever does not know that it heard of this one
cannot count it. Without this, what was saved for an eviction that was taken back would end the next, hours of work later.
"""

from enum import Enum, auto

from reprieve_policy.lifecycle.eviction import Eviction

from .transport import Heard


class Knowledge(Enum):
    """What this process knows of the current attempt."""

    UNSENT = auto()
    """Certainly not received: tell."""
    UNSURE = auto()
    """Told, outcome unknown: ask."""
    INHERITED = auto()
    """Another process meant to tell: ask."""
    HEARD = auto()
    """It answered: ask how far it is."""
    DOUBTED = auto()
    """It answered, and then, once, knew of no such request: ask again, as that may be a race."""
    FORGOTTEN = auto()
    """It answered, and then knew of no such request twice: it was started anew, and is to be told in another attempt."""
    UNNAMED = auto()
    """Told, outcome unknown, and it says of no answer what it is to: it is to be told in another attempt."""
    SILENT = auto()
    """It may have heard, or cannot, and cannot be asked: only time, or an annotation, will tell."""
    LOST = auto()
    """Another process's attempt was in vain: the table decides about another."""


_ALWAYS = {Heard.ANSWER: Knowledge.HEARD}

_LEARNED: dict[Knowledge, dict[Heard, Knowledge]] = {
    Knowledge.UNSENT: _ALWAYS
    | {Heard.UNSURE: Knowledge.UNSURE, Heard.DELIVERED: Knowledge.SILENT, Heard.BARRED: Knowledge.SILENT},
    Knowledge.UNSURE: _ALWAYS
    | {
        Heard.UNKNOWN_THERE: Knowledge.UNSENT,
        # Not UNSENT: it may well be to this very attempt, and nothing is hinted twice for one.
        Heard.UNNAMED: Knowledge.UNNAMED,
        Heard.UNSUPPORTED: Knowledge.SILENT,
    },
    Knowledge.INHERITED: _ALWAYS
    | dict.fromkeys((Heard.UNKNOWN_THERE, Heard.UNNAMED, Heard.UNSUPPORTED, Heard.NOT_RECEIVED), Knowledge.LOST),
    Knowledge.HEARD: _ALWAYS | {Heard.UNKNOWN_THERE: Knowledge.DOUBTED},
    Knowledge.DOUBTED: _ALWAYS | dict.fromkeys((Heard.UNKNOWN_THERE, Heard.UNNAMED), Knowledge.FORGOTTEN),
    Knowledge.FORGOTTEN: _ALWAYS,
    Knowledge.UNNAMED: _ALWAYS,
    Knowledge.SILENT: _ALWAYS,
    Knowledge.LOST: _ALWAYS,
}


def inherit(state: Eviction) -> Knowledge:
    """Return what is known of a hint that an earlier process wrote down."""
    return Knowledge.INHERITED if state.answered_at is None else Knowledge.HEARD


def give_up(knowledge: Knowledge) -> Knowledge:
    """Return what is left to do where there is no further attempt: what has answered this one is still asked how far it is.

    Only what names this request counts of that: what no longer knows of it may speak of an earlier one.
    """
    return Knowledge.DOUBTED if knowledge is Knowledge.FORGOTTEN else Knowledge.SILENT


def learn(knowledge: Knowledge, heard: Heard) -> Knowledge:
    """Return what is known after a reply; a reply that says nothing changes nothing."""
    return _LEARNED[knowledge].get(heard, knowledge)
