"""Where Reprieve chooses otherwise than upstream's plugin, on purpose: a name, why, and a scenario that shows it and nothing else.

`rule` knows what each of them changes. `tests/differential` demands that every scenario about which the two schedulers differ is
explained by some of these, and that each of these shows.
"""

from collections.abc import Mapping
from enum import StrEnum


class Difference(StrEnum):
    """One on-purpose difference."""

    MOST_VICTIMS = "most-victims"
    GOING = "going"
    OVERFLOW = "overflow"
    COST = "cost"
    CLASS = "class"
    PREEMPTIBLE = "preemptible"
    CAN_PREEMPT = "can-preempt"
    DEFENCE = "defence"
    GANG = "gang"


WHY: Mapping[Difference, str] = {
    Difference.MOST_VICTIMS: "001: a decision takes at most three victims (`maxVictims`), fewer and larger ones where it would "
    "be more; upstream takes any number",
    Difference.GOING: "001: who goes already is no victim again, and its room counts as free: where that is enough, nobody "
    "else goes on that node; upstream counts it like any other",
    Difference.OVERFLOW: "toleration seconds above 9223372036 are unreadable, so nothing is tolerated; upstream's duration "
    "overflows, and some of them come out as years",
    Difference.COST: "001: where a pod says anything of its preemption, the lower class goes, then the cheaper, and few large "
    "ones rather than many small ones, also between nodes that upstream's first four criteria find equal; upstream takes "
    "those that started last",
    Difference.CLASS: "001: a victim's class is below the preemptor's; upstream knows no classes",
    Difference.PREEMPTIBLE: "000: a pod may be labelled not preemptible; upstream knows no such label",
    Difference.CAN_PREEMPT: "000: a pod may be labelled as one that takes no victims; upstream knows no such label",
    Difference.DEFENCE: "003: a pod is defended with its preemption priority; upstream knows only the one it is scheduled with",
    Difference.GANG: "003, 004: an all-or-nothing gang goes as a whole, wherever its pods run, and is one victim; nobody "
    "takes pods of its own gang; upstream takes single pods of any",
}
