"""Reads JSON with the line of each key: one document or several, as kubectl and jq write them."""

import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from .field_paths import PathStep
from .sources import Unreadable

_SPACE = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(r'[ \t\r\n:,]*(?:(?P<open>[{\[])|(?P<close>[}\]])|(?P<text>")|[^\s:,{}\[\]"]+)')


def split(text: str) -> Iterator[tuple[int, str]]:
    """Yield each document with its first line; raises `Unreadable` with the line in the text."""
    position = _end_of_space(text, 0)
    line = 1 + text.count("\n", 0, position)
    while position < len(text):
        end = _end_of_document(text, position, line)
        yield line, text[position:end]
        following = _end_of_space(text, end)
        line += text.count("\n", position, following)
        position = following


def read(text: str) -> Any:
    """Return the values of a document from `split`; raises `Unreadable` on a repeated key."""
    try:
        return _DECODER.decode(text)
    except _DuplicateKeyError as key:
        raise Unreadable(
            f'the key "{key}" appears twice in one object', _line_of_second(text, str(key))
        ) from None


def line_of(text: str, steps: Sequence[PathStep]) -> int:
    """Return the line of a key, or of the last key on its path that exists; counted from 0."""
    position = _positions(text)
    for step in steps:
        following = (position.children or {}).get(step)
        if following is None:
            break
        position = following
    return position.line


def scalar_at(text: str, steps: Sequence[PathStep]) -> None:
    """Return nothing: in JSON, a value is written as it is shown."""


def _end_of_document(text: str, position: int, line: int) -> int:
    try:
        return _SCANNER.raw_decode(text, position)[1]
    except json.JSONDecodeError as error:
        raise Unreadable(
            f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", error.lineno - 1
        ) from None
    except RecursionError:
        raise Unreadable("nested too deeply", line - 1) from None
    except Unreadable as error:
        raise Unreadable(error.reason, line - 1) from None
    except ValueError:
        raise Unreadable("a number with too many digits", line - 1) from None


def _end_of_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


@dataclass(slots=True)
class _Position:
    line: int
    children: "dict[PathStep, _Position] | None" = None
    """Of an object or a list. Without this, each scalar of a large list would hold a mapping."""


class _OpenContainer:
    """An object or list that is not closed yet; in an object, also the key without a value."""

    def __init__(self, position: _Position, *, is_object: bool) -> None:
        self._children: dict[PathStep, _Position] = {}
        position.children = self._children
        self._is_object = is_object
        self._key: _Position | None = None

    def next_position(self, line: int, word: str | None) -> _Position | None:
        """Return the position of the next value; `None` if the word is a key."""
        if self._key is not None:
            position, self._key = self._key, None
            return position
        if not self._is_object:
            position = _Position(line)
            self._children[len(self._children)] = position
            return position
        assert word is not None
        # The objects of a list have the same few keys.
        self._key = self._children[sys.intern(word)] = _Position(line)
        return None


@lru_cache(maxsize=1)
def _positions(text: str) -> _Position:
    """Return the positions of all keys and items. The text is valid JSON, so tokens are enough."""
    root = _Position(0)
    stack: list[_OpenContainer] = []
    for line, match, word in _tokens(text):
        if match["close"]:
            stack.pop()
            continue
        position = stack[-1].next_position(line, word) if stack else root
        if match["open"]:
            assert position is not None
            stack.append(_OpenContainer(position, is_object=match["open"] == "{"))
    return root


def _tokens(text: str) -> Iterator[tuple[int, "re.Match[str]", str | None]]:
    """Yield each bracket, string and other word with its line; for a string also its value."""
    line = counted = position = 0
    while match := _TOKEN.match(text, position):
        word, position = (
            _SCANNER.raw_decode(text, match.start("text")) if match["text"] else (None, match.end())
        )
        line += text.count("\n", counted, match.end())
        counted = match.end()
        yield line, match, word


def _line_of_second(text: str, key: str) -> int:
    """Return the line of the second occurrence, in the first object that repeats the key."""
    open_objects: list[set[str]] = []
    for line, match, word in _tokens(text):
        if match["open"]:
            open_objects.append(set())
        elif match["close"]:
            open_objects.pop()
        elif word == key and _is_key(text, match):
            if key in open_objects[-1]:
                return line
            open_objects[-1].add(key)
    return 0


def _is_key(text: str, match: "re.Match[str]") -> bool:
    _, end = _SCANNER.raw_decode(text, match.start("text"))
    return text.startswith(":", _end_of_space(text, end))


class _DuplicateKeyError(ValueError):
    """A key that appears twice in one object."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKeyError(key)
        found[key] = value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise Unreadable(f"{name} is not a JSON number")


_SCANNER = json.JSONDecoder(parse_constant=_refuse_constant)
_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
