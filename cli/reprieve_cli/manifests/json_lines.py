"""JSON as `kubectl get -o json` and `jq` write it, one document or several on end: values, and the line of each key."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from .field_paths import PathStep
from .sources import Unreadable

_SPACE = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(r'[ \t\r\n:,]*(?:(?P<open>[{\[])|(?P<close>[}\]])|(?P<text>")|[^\s:,{}\[\]"]+)')


def split(text: str) -> Iterator[tuple[int, str]]:
    """Yield each document with the line that it starts in; raises `Unreadable` with a line of the whole text."""
    position = _end_of_space(text, 0)
    line = 1 + text.count("\n", 0, position)
    while position < len(text):
        end = _end_of_document(text, position, line)
        yield line, text[position:end]
        following = _end_of_space(text, end)
        line += text.count("\n", position, following)
        position = following


def read(text: str) -> Any:
    """Return one document, that `split` yielded, as plain values; two equal keys are refused."""
    try:
        return _DECODER.decode(text)
    except _DuplicateKeyError as twice:
        raise Unreadable(
            f'the key "{twice}" stands twice in one object', _line_of_second(text, str(twice))
        ) from None


def line_of(text: str, steps: Sequence[PathStep]) -> int:
    """Return the line, counted from 0, of the key that the steps lead to, or of the last one that is there."""
    place = _positions(text)
    for step in steps:
        following = place.children.get(step)
        if following is None:
            break
        place = following
    return place.line


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
        raise Unreadable("a number of too many digits", line - 1) from None


def _end_of_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


class _Position(NamedTuple):
    line: int
    children: "dict[PathStep, _Position]"


class _OpenContainer:
    """An object or list that is being walked, and in an object the key that waits for its value."""

    def __init__(self, place: _Position, *, is_object: bool) -> None:
        self._position = place
        self._is_object = is_object
        self._key: _Position | None = None

    def next_position(self, line: int, word: str | None) -> _Position | None:
        """Return the place of the value that comes next, `None` where the word is a key instead."""
        if self._key is not None:
            place, self._key = self._key, None
            return place
        step = word if self._is_object else len(self._position.children)
        assert step is not None
        place = self._position.children[step] = _Position(line, {})
        if self._is_object:
            self._key = place
            return None
        return place


@lru_cache(maxsize=1)
def _positions(text: str) -> _Position:
    """Return where each key and item stands. The text is known to be JSON: tokens are enough."""
    root = _Position(0, {})
    stack: list[_OpenContainer] = []
    for line, match, word in _tokens(text):
        if match["close"]:
            stack.pop()
            continue
        place = stack[-1].next_position(line, word) if stack else root
        if match["open"]:
            assert place is not None
            stack.append(_OpenContainer(place, is_object=match["open"] == "{"))
    return root


def _tokens(text: str) -> Iterator[tuple[int, "re.Match[str]", str | None]]:
    """Yield each bracket, text and other word with its line; of a text also what it says."""
    line = counted = position = 0
    while match := _TOKEN.match(text, position):
        word, position = (
            _SCANNER.raw_decode(text, match.start("text")) if match["text"] else (None, match.end())
        )
        line += text.count("\n", counted, match.end())
        counted = match.end()
        yield line, match, word


def _line_of_second(text: str, key: str) -> int:
    """Return the line of a key that stands twice: the first such object's, as the decoder met them."""
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
    """A key that stands twice."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise _DuplicateKeyError(key)
        found[key] = value
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise Unreadable(f"{name} is no JSON number")


_SCANNER = json.JSONDecoder(parse_constant=_refuse_constant)
_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
