"""How large the selectors of one object may be: without this, one user would fill the memory.

Each is evaluated for many pods, too.
"""

from collections.abc import Iterable

from .snapshot import Requirement

_MAX_BYTES = 16 * 1024
"""Of the keys and values that one object selects by."""
_ENTRY_BYTES = 64
"""Counted for each key, value and name besides its text. Without this, a selector of half a million
empty values would count as small."""


def is_too_large(requirements: Iterable[Requirement], names: Iterable[str] = ()) -> bool:
    """True if these requirements, and names beside them, are beyond any usual selector."""
    selected_by = (text for one in requirements for text in (one.key, *one.values))
    return count_bytes(selected_by) + count_bytes(names) > _MAX_BYTES


def count_bytes(texts: Iterable[str]) -> int:
    """Return how much room these texts take."""
    return sum(len(text) + _ENTRY_BYTES for text in texts)
