"""Where many pods are victims at once: calls that only inform are then put together, or put off."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from reprieve_operator.clock import Clock
from reprieve_runtime.bounded_dict import BoundedDict

MANY = 10
"""So many within the window are no burst yet: each is reported by itself, as client-go does."""
WINDOW_SECONDS = 60.0
_MAX_GROUPS = 1000


@dataclass(slots=True)
class _Window:
    began_at: float
    members: set[str] = field(default_factory=set)
    """At most one more than `MANY`."""


class Bursts:
    """Counts the different members that each group had within a minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._windows: BoundedDict[Hashable, _Window] = BoundedDict(_MAX_GROUPS)

    def note(self, group: Hashable, member: str) -> bool:
        """Count a member of a group; return whether the group has a burst now."""
        window = self._current(group)
        if window is None:
            window = self._windows[group] = _Window(self._clock.monotonic())
        if len(window.members) <= MANY:
            window.members.add(member)
        return len(window.members) > MANY

    def is_burst(self, group: Hashable) -> bool:
        """True if more members than `MANY` were counted within the minute."""
        window = self._current(group)
        return window is not None and len(window.members) > MANY

    def _current(self, group: Hashable) -> _Window | None:
        window = self._windows.get(group)
        is_over = window is None or self._clock.monotonic() - window.began_at > WINDOW_SECONDS
        return None if is_over else window
