"""Terms of CEL: literals, a value as messages show it, and a violation as a list of texts.

A violation is `[text]`, or `[before, value, after]` if the value has yet to be quoted: only refused
objects pay for quoting.
"""

from collections.abc import Iterable

from reprieve_policy.verdict import HIDDEN_CODE_POINTS, MAX_VALUE_SHOWN, REPLACEMENT, ViolationKind

_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n"})
_UNSHOWN = (
    "[" + "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in HIDDEN_CODE_POINTS) + "]"
)


def text(value: str) -> str:
    """Return a literal."""
    return f"'{value.translate(_ESCAPES)}'"


def texts(values: Iterable[str]) -> str:
    """Return a list of literals."""
    return f"[{', '.join(map(text, values))}]"


def entry(part: str, key: str) -> str:
    """Return the entry under `key`, as an optional; `part` is the expression of a map."""
    return f"{part}[?{text(key)}]"


def refusal(path: str, kind: ViolationKind, value: str | None, detail: str) -> str:
    """Return a list of one violation; `value` is an expression, `detail` the text of a literal."""
    if value is None:
        return f"[[{text(f'{path}: {kind.text}: {detail}')}]]"
    return f"[[{text(f'{path}: {kind.text}: ')}, {value}, {text(f': {detail}')}]]"


def _shown(violations: str) -> str:
    """Return the expression of the violations' texts."""
    longest = MAX_VALUE_SHOWN
    shortened = f"v[1].size() > {longest} ? v[1].substring(0, {longest}) + '…' : v[1]"
    cleaned = f"v[1].split('').map(c, c.matches(r'{_UNSHOWN}') ? '{REPLACEMENT}' : c).join('')"
    return (
        f"{violations}\n.map(v, v.size() == 1 ? [string(v[0])]"
        f" : [string(v[0]), strings.quote({shortened}), string(v[2])])\n"
        f".map(v, v.size() == 1 ? v[0]"
        f" : v[0] + (v[1].matches(r'{_UNSHOWN}') ? {cleaned} : v[1]) + v[2])"
    )


def message(violations: str) -> str:
    """Return the expression of the message: one as a line, several in the API server's brackets."""
    opened, closed = (f"({violations}.size() == 1 ? '' : '{bracket}')" for bracket in "[]")
    return f"{opened} + {_shown(violations)}.join(', ') + {closed}"
