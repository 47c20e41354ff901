"""What all pods of one gang agree on: a scheduler takes or spares them together (documents 000, 003 and 004)."""

from typing import NamedTuple


class GangTraits(NamedTuple):
    """What one pod of a gang says, as the other half of Reprieve and the schedulers read it."""

    preemptible: bool
    can_preempt: bool
    preemption_class: int
    priority: int
    preemption_priority: int
    min_available: int | None
    size: int | None
