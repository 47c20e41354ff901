"""The values that one label or annotation accepts, as data.

Python executes them, and `reprieve_policy.cel` writes them as CEL. Everything here must mean the
same in both engines: patterns keep to what Python's `re` and RE2 agree on (literals, ASCII classes,
groups, alternatives, counts; no look-around, no Unicode classes), and sizes count code points.
Parsing upstream's own formats (`go_int`, `duration`) does not belong here.
"""

import re
from abc import abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar

from reprieve_policy.kube.values import duration, go_int
from reprieve_policy.verdict import Violation, ViolationKind, unsupported

T_co = TypeVar("T_co", covariant=True)

LONGEST = 512
"""Characters of the longest text that a value may have if nothing else bounds it.

An annotation may have 262,144. The API server counts the cost of a pattern by the length of the
text, and a CEL expression that costs too much decides nothing.
"""

INT64 = range(-(2**63), 2**63)
"""The numbers that Go's `ParseInt(text, 10, 64)` returns."""


class Value(Generic[T_co]):
    """The texts that a key accepts, and the values they stand for."""

    __slots__ = ()

    @abstractmethod
    def parse(self, text: str, path: str) -> T_co | Violation:
        """Return the value of `text`, or what is wrong with it at `path`."""

    def check(self, text: str, path: str) -> Violation | None:
        """Return what is wrong with `text`, `None` if nothing is."""
        value = self.parse(text, path)
        return value if isinstance(value, Violation) else None


@dataclass(frozen=True, slots=True)
class OneOf(Value[str]):
    """One of a few words."""

    choices: tuple[str, ...]

    def parse(self, text: str, path: str) -> str | Violation:
        """Return the word."""
        return text if text in self.choices else unsupported(path, text, self.choices)


@dataclass(frozen=True, slots=True)
class Matches(Value[re.Match[str]]):
    """A text that matches a pattern completely, of at most `longest` characters.

    `None`: no limit. CEL evaluates only patterns with a limit.
    """

    pattern: str
    detail: str
    kind: ViolationKind = ViolationKind.INVALID
    longest: int | None = None

    def parse(self, text: str, path: str) -> re.Match[str] | Violation:
        """Return the match, with the pattern's groups."""
        is_short = self.longest is None or len(text) <= self.longest
        match = _compiled(self.pattern).fullmatch(text) if is_short else None
        return Violation(path, self.kind, text, self.detail) if match is None else match


@dataclass(frozen=True, slots=True)
class WholeNumber(Value[int]):
    """A whole number between two bounds, written as Go's `ParseInt` reads it.

    Go reads any number of leading zeros; a text of more than `LONGEST` characters is refused here.
    """

    lowest: int
    highest: int
    detail: str = ""
    """What is accepted, if the two bounds do not say it."""
    too_high: str = ""
    """The message for a number above `highest`, if it is not `detail`."""

    @property
    def expected(self) -> str:
        """What is accepted, in words."""
        return self.detail or f"must be a whole number between {self.lowest} and {self.highest}"

    def parse(self, text: str, path: str) -> int | Violation:
        """Return the number."""
        is_short = len(text) <= LONGEST
        number = go_int.parse(text, 64) if is_short else None
        if number is not None and self.lowest <= number <= self.highest:
            return number
        exceeds = is_short and go_int.exceeds_int64(text)
        is_too_high = exceeds if number is None else number > self.highest
        return Violation(
            path,
            ViolationKind.INVALID,
            text,
            (self.too_high if is_too_high else "") or self.expected,
        )


@dataclass(frozen=True, slots=True)
class Duration(Value[int]):
    """A duration in seconds: at least one second, or also `0s` if that switches something off."""

    longest: int | None = None
    """In seconds; `None`: no limit."""
    origin: str = ""
    """Text for the message: the origin of the limit `longest`."""
    may_be_zero: bool = False

    @property
    def too_long(self) -> str:
        """The message for a longer duration."""
        return f"must be at most {duration.render(self.longest or 0)}{self.origin}"

    def parse(self, text: str, path: str) -> int | Violation:
        """Return the seconds."""
        seconds = duration.parse(text)
        if seconds is None:
            return Violation(path, ViolationKind.INVALID, text, duration.EXPECTED)
        if seconds == 0 and not self.may_be_zero:
            return Violation(path, ViolationKind.INVALID, text, duration.TOO_SHORT)
        if self.longest is not None and seconds > self.longest:
            return Violation(path, ViolationKind.INVALID, text, self.too_long)
        return seconds


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern once. All patterns are this package's own: none comes from a user."""
    return re.compile(pattern)
