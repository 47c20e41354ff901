"""An upper bound of what the API server counts for a CEL expression.

Mirrors cel-go `interpreter/runtimecost.go` and Kubernetes' `apiserver/pkg/cel/library/cost.go`. A
step costs 1, a list that is made 10, a map 30, a permission 350,000; a text costs a tenth of its
length each time it is read, and a pattern that times a quarter of its own length. An expression is
cut off at `LIMIT` (`PerCallLimit`): a request is then refused with `failurePolicy: Fail`, and
admitted with `Ignore`.

All branches are added up, and every loop runs to its end.
"""

import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

LIMIT = 1_000_000
OBJECT_BYTES = 1_572_864
"""What etcd stores of one object at most."""
LONGEST_LIST = OBJECT_BYTES // 5
"""Entries of the longest list of texts: as protobuf, a finalizer of three characters takes five
bytes."""
LONGEST_ANNOTATION = 262_144
"""Characters of all annotations of an object together."""

Size = Callable[[str], int]


class Sizes(NamedTuple):
    """How large the value of an expression is at most, where neither a literal nor a guard says."""

    loops: Size
    """Entries of what a loop goes through."""
    lists: Size
    """Entries of what `in` searches; a map counts as one."""
    texts: Size
    """Characters of what a pattern is matched with."""


_LITERAL = re.compile(r"""(\br')[^']*'|(\br")[^"]*"|(')(?:[^'\\]|\\.)*'|(")(?:[^"\\]|\\.)*\"""")
_LOOP = re.compile(r"\.(exists|all|filter|map)\(")
_LOOP_COSTS = {"exists": 4, "all": 4, "map": 12, "filter": 14}
"""The steps of one turn besides the loop's own expression; `map` and `filter` make a list."""
_PATTERN = re.compile(r"\.(?:matches|find)\((r?'[^']*')\)")
_PERMISSION = re.compile(r"\.check\(")
_IN = re.compile(r"\bin (?=[\w(])")
_LONG_TEXT = re.compile(r"\.(?:startsWith|split|trim|substring|join|quote)\(")
_COMPARED = re.compile(r"[=!<>]=?\s+(?![\d('\"]|true|false|null)[\w(]")
_COMPARED_ANNOTATION = re.compile(r"nnotations\[[^]]*\]\s*[!=]=")
_WEIGHT = re.compile(r"\bcosts_(\d+)\b")
_TOKEN = re.compile(r"\w+|[^\w\s]")
_TOKEN_COSTS = {"[": 10, "{": 30}
_LONG_KEY = 317
"""Characters: a prefix, `/` and a name."""


class Loop(NamedTuple):
    """One `exists`, `all`, `filter` or `map`."""

    values: str
    """What it goes through: an expression, which may end with further loops."""
    kind: str
    body: str
    body_start: int
    guard: int | None
    """The most entries, where `values.size() > N ||` or `values.size() <= N &&` is before it."""

    @property
    def known_size(self) -> int | None:
        """The most entries, if a literal or a guard says so."""
        return self.guard or _literal_size(without_loops(self.values))


def worst_cost(expression: str, sizes: Sizes) -> int:
    """Return the bound."""
    text = _PERMISSION.sub(".costs_350000(", _weigh_patterns(expression, sizes.texts))
    # Once each: the turns of a loop compare different annotations of one object.
    compared = len(_COMPARED_ANNOTATION.findall(_mask(expression)))
    return _cost(_mask(text), sizes) + compared * math.ceil(0.1 * LONGEST_ANNOTATION)


def loops(expression: str) -> Iterator[Loop]:
    """Yield all loops, also those within others."""
    for loop in _outer_loops(_mask(expression)):
        yield loop
        yield from loops(loop.body)


def pattern_cost(text_length: int, pattern_length: int) -> int:
    """Return the cost of one `matches` or `find`."""
    return math.ceil(0.1 * (text_length + 1)) * math.ceil(0.25 * pattern_length)


def without_loops(values: str) -> str:
    """Return what the first of several loops in a row goes through.

    None of them makes a list longer.
    """
    while values.endswith(")"):
        opened = _opening(values, len(values) - 1)
        head = re.search(r"\s*\.(?:exists|all|filter|map)$", values[:opened])
        if head is None:
            break
        values = values[: head.start()]
    return values


def _literal_size(values: str) -> int | None:
    if not values.startswith("[") or _closing(values, 0) != len(values) - 1:
        return None
    depth, size = 0, 1
    for character in values:
        depth += (character in "([{") - (character in ")]}")
        size += character == "," and depth == 1
    return size


def _cost(text: str, sizes: Sizes) -> int:
    rest, cost = text, 0
    for loop in reversed(list(_outer_loops(text))):
        size = loop.known_size or sizes.loops(loop.values)
        cost += size * (_LOOP_COSTS[loop.kind] + _cost(loop.body, sizes))
        rest = rest[: loop.body_start] + rest[loop.body_start + len(loop.body) :]
    return cost + _own_cost(rest, sizes)


def _own_cost(text: str, sizes: Sizes) -> int:
    """Return the cost of an expression without the bodies of its loops."""
    cost = sum(int(weight) for weight in _WEIGHT.findall(text))
    cost += sum(_TOKEN_COSTS.get(token, 1) for token in _TOKEN.findall(text))
    cost += sum(
        sizes.lists(text[found.end() : _chain_end(text, found.end())])
        for found in _IN.finditer(text)
    )
    return cost + math.ceil(0.1 * _LONG_KEY) * sum(
        len(pattern.findall(text)) for pattern in (_LONG_TEXT, _COMPARED)
    )


def _weigh_patterns(expression: str, characters: Size) -> str:
    """Replace each `matches(PATTERN)` by its cost."""
    masked, text = _mask(expression), expression
    for found in reversed(list(_PATTERN.finditer(masked))):
        start = _chain_start(masked, found.start())
        matched = expression[start : found.start()]
        before = expression[:start].rstrip()
        guard = re.search(
            rf"(?:dyn\({re.escape(matched)}\)|{re.escape(matched)})\.size\(\) <= (\d+) &&"
            rf"(?: {re.escape(matched)}\.matches\(r?'[^']*'\) &&)?$",
            before,
        )
        length = int(guard[1]) if guard else characters(matched)
        cost = pattern_cost(length, len(_text_of(expression[slice(*found.span(1))])))
        text = f"{text[: found.start()]}.costs_{cost}{text[found.end() :]}"
    return text


def _text_of(literal: str) -> str:
    return literal.removeprefix("r")[1:-1]


def _mask(expression: str) -> str:
    """Hide what is in literals: brackets there close nothing."""
    return _LITERAL.sub(_hide, expression)


def _hide(literal: re.Match[str]) -> str:
    opened = literal[literal.lastindex or 0]
    return opened + "_" * (len(literal[0]) - len(opened) - 1) + opened[-1]


def _outer_loops(text: str) -> Iterator[Loop]:
    at = 0
    while found := _LOOP.search(text, at):
        end = _closing(text, found.end() - 1)
        start = _chain_start(text, found.start())
        values = text[start : found.start()].rstrip()
        body_start = text.index(",", found.end()) + 1
        sized = rf"{re.escape(without_loops(values))}\.size\(\)"
        guard = re.search(
            rf"(?:^|[(,]|\|\||&&)\s*{sized} (?:> (\d+)\s*\|\|\s*!?|<= (\d+)\s*&&\s*)$", text[:start]
        )
        size = int(guard[1] or guard[2]) if guard else None
        yield Loop(values, found[1], text[body_start:end], body_start, size)
        at = end


def _chain_start(text: str, end: int) -> int:
    """Return where an expression begins that ends with calls, indices and fields at `end`."""
    at = end
    while at:
        before = text[at - 1]
        if before in ")]":
            at = _opening(text, at - 1)
        elif before.isalnum() or before in "_.?":
            at -= 1
        elif before.isspace() and text[at : at + 1] in (".", ""):
            at = len(text[:at].rstrip())
        else:
            break
    return at


def _chain_end(text: str, start: int) -> int:
    """Return where such an expression ends that begins at `start`."""
    at = start
    while at < len(text):
        if text[at] in "([":
            at = _closing(text, at) + 1
        elif text[at].isalnum() or text[at] in "_.?":
            at += 1
        else:
            break
    return at


def _opening(text: str, closing: int) -> int:
    depth = 0
    for at in range(closing, -1, -1):
        depth += (text[at] in ")]}") - (text[at] in "([{")
        if depth == 0:
            return at
    raise ValueError(text)


def _closing(text: str, opening: int) -> int:
    depth = 0
    for at in range(opening, len(text)):
        depth += (text[at] in "([{") - (text[at] in ")]}")
        if depth == 0:
            return at
    raise ValueError(text)
