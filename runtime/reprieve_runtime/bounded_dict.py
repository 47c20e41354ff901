"""A dictionary that drops its oldest entries, so that what a program remembers is bounded."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedDict(OrderedDict[K, V], Generic[K, V]):
    """Keeps at most `max_entries`; setting a key makes its entry the newest and drops the oldest.

    Reading a key does not change its age. Without the bound, a cluster in which many pods are
    created and deleted would fill the memory of a program that remembers something of each.
    """

    def __init__(self, max_entries: int) -> None:
        super().__init__()
        self._max_entries = max_entries

    def __setitem__(self, key: K, value: V) -> None:
        """Set the entry as the newest one, and drop the oldest beyond the bound."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._max_entries:
            self.popitem(last=False)
