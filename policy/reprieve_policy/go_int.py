"""Whole numbers exactly as Go's `strconv.ParseInt(text, 10, bits)` reads them: what upstream accepts, we accept."""

import re

_INTEGER = re.compile(r"[+-]?[0-9]+")
_LONGEST = 64
"""Characters: more digits than any int64 needs, few enough that a long text costs nothing."""


def parse(text: str, bits: int) -> int | None:
    """Return the signed number, `None` where the text is not one or does not fit into `bits` bits."""
    if len(text) > _LONGEST or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    limit = 1 << (bits - 1)
    return number if -limit <= number < limit else None
