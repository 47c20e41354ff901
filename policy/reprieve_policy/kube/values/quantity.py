"""Quantities of resources exactly as Kubernetes reads them: `2`, `500m`, `1.5Gi`, `2e3`.

Mirrors apimachinery `resource.ParseQuantity`: decimal and binary suffixes, exponents, and no
precision below a nano; the rest is rounded away from zero. So a quantity is a whole number of
nanos, and sums and comparisons are exact.
"""

import re
from decimal import ROUND_UP, Context, Decimal, localcontext

from reprieve_policy.verdict import Violation, ViolationKind

NANOS = 10**9
"""Nanos in one unit."""

EXPECTED = 'must be a quantity, like "2", "500m" or "1.5Gi"'
_LONGEST = 64
_MAX_EXPONENT = 99
"""Upstream has no limit. 1e99 is more than there are bytes, and writing out a billion digits would
hang the program."""
_QUANTITY = re.compile(
    r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([KMGTPE]i|[numkMGTPE])|[eE]([+-]?[0-9]{1,10}))?"
)
_EXACT = Context(prec=256, rounding=ROUND_UP)

_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_SHOWN = tuple(reversed(_BINARY.items()))


def parse(written: str | float, path: str) -> int | Violation:
    """Return the quantity in nanos. In JSON it may also be a bare number."""
    text = written if isinstance(written, str) else repr(written)
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or abs(int(match[3] or 0)) > _MAX_EXPONENT:
        return Violation(path, ViolationKind.INVALID, text, EXPECTED)
    with localcontext(_EXACT):
        number = Decimal(match[1]).scaleb(int(match[3] or _DECIMAL.get(match[2], 0)) + 9)
        return int((number * 2 ** _BINARY.get(match[2], 0)).to_integral_value())


def render(nanos: int) -> str:
    """Return the shortest usual text that `parse` reads as `nanos`."""
    units, rest = divmod(nanos, NANOS)
    if rest:
        return _render_fraction(nanos)
    for suffix, bits in _SHOWN:
        if units and units % (1 << bits) == 0:
            return f"{units >> bits}{suffix}"
    return str(units)


def _render_fraction(nanos: int) -> str:
    for suffix, exponent in (("m", 6), ("u", 3)):
        if nanos % 10**exponent == 0:
            return f"{nanos // 10**exponent}{suffix}"
    return f"{nanos}n"
