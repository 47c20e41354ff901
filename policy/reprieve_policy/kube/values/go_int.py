"""Whole numbers exactly as Go's `strconv.ParseInt(text, 10, bits)` reads them.

So Reprieve accepts what upstream accepts.
"""

import re

LARGE = r"\+?0*[1-9][0-9]{18,}"
"""A positive number of at least 19 digits: it may not fit into 64 bits."""

_INTEGER = re.compile(r"([+-]?)(?=[0-9])0*+([0-9]{0,19})")
"""Any number of leading zeros, as Go allows, and the 19 digits that an int64 needs: a long text
costs nothing."""

_LARGE = re.compile(LARGE)


def exceeds_int64(text: str) -> bool:
    """True if the text is a whole number above all that 64 bits can hold."""
    return _LARGE.fullmatch(text) is not None and parse(text, 64) is None


def parse(text: str, bits: int) -> int | None:
    """Return the signed number, `None` if the text is not one or does not fit into `bits` bits."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    number = int(match[1] + (match[2] or "0"))
    limit = 1 << (bits - 1)
    return number if -limit <= number < limit else None
