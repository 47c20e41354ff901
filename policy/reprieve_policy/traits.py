"""The values that all pods of one gang share (documents 000, 003 and 004).

A scheduler takes or spares a gang as a whole, so its pods must agree on them.
"""

from typing import NamedTuple


class GangTraits(NamedTuple):
    """These values as one pod states them, in the form that Reprieve and the schedulers read."""

    preemptible: bool
    can_preempt: bool
    preemption_class: int
    priority: int
    preemption_priority: int
    min_available: int | None
    size: int | None
