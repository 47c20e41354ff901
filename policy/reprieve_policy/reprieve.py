"""What protects a pod against preemption, and until when (document 001, "Non-Preemptible Allocations")."""

from datetime import datetime
from typing import NamedTuple

from .eviction import Ground


class Reprieve(NamedTuple):
    """A preemption is refused until then; `None`: for as long as the pod lives."""

    ground: Ground
    until: datetime | None
