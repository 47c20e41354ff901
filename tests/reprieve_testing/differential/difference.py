"""Where Reprieve deliberately chooses other victims than upstream's plugin: a name and a reason
each.

`shown` has a scenario for each difference that shows only that one, and `rule` knows what each of
them changes. `tests/differential` requires that some of these differences explain every scenario
with different outcomes, and that each of them occurs.
"""

from collections.abc import Mapping
from enum import StrEnum


class Difference(StrEnum):
    """A deliberate difference."""

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
    Difference.MOST_VICTIMS: "001: a decision takes at most three victims (`maxVictims`), and "
    "fewer and larger ones where there would be more; upstream takes any number",
    Difference.GOING: "001: a pod that is terminating is not a victim again, and its room counts "
    "as free: where that is enough, no other pod of that node is a victim; upstream counts it "
    "like any other pod. kube-scheduler calls an extender only for nodes where it would be enough "
    "to remove all pods of lower priority; a terminating pod of the same or a higher priority is "
    "not among them, so its node is considered beside others, or once it is gone",
    Difference.OVERFLOW: "toleration seconds above 9223372036 are unreadable, so no preemptor is "
    "tolerated; upstream's duration overflows, and some values become years",
    Difference.COST: "001: where a pod states a preference about its preemption, victims are of "
    "the lower class, then of the lower cost, and few large ones rather than many small ones, "
    "also between nodes that upstream's first four criteria find equal; upstream takes the pods "
    "that started last",
    Difference.CLASS: "001: a victim's class is below the preemptor's; upstream has no classes",
    Difference.PREEMPTIBLE: "000: a pod may be labelled not preemptible; upstream has no such "
    "label",
    Difference.CAN_PREEMPT: "000: a pod may be labelled as one that takes no victims; "
    "upstream has no such label",
    Difference.DEFENCE: "003: a pod's preemption priority protects it; upstream compares "
    "only its scheduling priority",
    Difference.GANG: "003, 004: an all-or-nothing gang is evicted as a unit, wherever its pods "
    "run, and is one victim; no preemptor takes pods of its own gang; upstream takes single pods "
    "of any gang",
}
