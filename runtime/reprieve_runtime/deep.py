"""Decodes JSON of any depth: the API server stores ten thousand levels, the decoder is recursive.

Any user can write an object of a thousand levels, in `metadata.managedFields` for example. Without
this, one would end a program that lists it, or have a review fail that reads it.
"""

import re
import sys
from functools import cache
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

MAX_DEPTH = 100
"""Levels that are decoded; in a list of objects, Reprieve's fields are at most ten levels deep."""
_STORED_LEVELS = 11_000
"""More than an API server stores. To skip so many takes the decoder half a megabyte of stack."""
_OPENING = (b"[", b"{")


class TooDeepError(msgspec.DecodeError):
    """The JSON has deep values that would take too long to find."""


def up_to(stops: bytes) -> re.Pattern[bytes]:
    """Match the text before the next of these characters that is in no JSON string, and it.

    At the end of the text, the group is empty. Without that case, a search would begin again at
    each byte of a string without end, and take hours.
    """
    stop = re.escape(stops)
    return re.compile(rb'(?:[^"%b]++|"(?:[^"\\]++|\\.)*+"?+)*+([%b]|\Z)' % (stop, stop), re.DOTALL)


_TO_BRACKET = up_to(b"[]{}")


def decode(
    text: bytes | str | msgspec.Raw, decode_as: type[T], max_brackets: int = sys.maxsize
) -> T:
    """Decode JSON; very deep values become null. Raises `msgspec.MsgspecError`.

    `max_brackets`: as in `decode_by`.
    """
    try:
        return msgspec.json.decode(text, type=decode_as)
    except RecursionError:
        whole = text.encode() if isinstance(text, str) else bytes(text)
        return _decode_deep(msgspec.json.Decoder(decode_as), whole, max_brackets)


def decode_by(decoder: msgspec.json.Decoder[T], text: bytes, max_brackets: int) -> T:
    """Decode JSON; very deep values become null. Raises `msgspec.MsgspecError`.

    `max_brackets`: a text with more is refused (`TooDeepError`) if it has deep values that cannot
    be skipped. To find these takes a quarter of a second for each million of brackets.
    """
    try:
        return decoder.decode(text)
    except RecursionError:
        return _decode_deep(decoder, text, max_brackets)


def _decode_deep(decoder: msgspec.json.Decoder[T], text: bytes, max_brackets: int) -> T:
    decode_as: Any = decoder.type
    if _only_skips(decode_as):
        try:
            return _decode_stored_levels(decoder, text)
        except RecursionError:  # deeper, or a Python whose limit is fixed
            pass
    return decoder.decode(prune(text, max_brackets))


def prune(text: bytes, max_brackets: int = sys.maxsize) -> bytes:
    """Return the JSON text with null in place of values deeper than `MAX_DEPTH` levels.

    Raises `TooDeepError` if the text has more brackets.
    """
    kept, depth, begins_at = bytearray(), 0, 0
    for number, found in enumerate(_TO_BRACKET.finditer(text)):
        if not found[1]:
            break
        if number == max_brackets:
            raise TooDeepError("the JSON is nested too deeply")
        if found[1] in _OPENING:
            if depth == MAX_DEPTH:
                kept += text[begins_at : found.start(1)] + b"null"
            depth += 1
        else:
            depth -= 1
            if depth == MAX_DEPTH:
                begins_at = found.end()
    return bytes(kept) + text[begins_at:] if depth <= MAX_DEPTH else bytes(kept)


def _decode_stored_levels(decoder: msgspec.json.Decoder[T], text: bytes) -> T:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _STORED_LEVELS))
    try:
        return decoder.decode(text)
    finally:
        sys.setrecursionlimit(limit)


@cache
def _only_skips(decode_as: Any) -> bool:
    """Return whether all deep values are in fields that are not decoded.

    A value of any form would be built level by level, which takes megabytes of stack.
    """
    return "AnyType" not in repr(msgspec.inspect.type_info(decode_as))
