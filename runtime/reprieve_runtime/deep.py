"""Decodes JSON of any depth: the API server stores ten thousand levels, the decoder is recursive.

Without this, one object with a thousand nested brackets in a field that is not read (of a custom
resource, for example) would end the programs that list it.
"""

import re
from typing import TypeVar

import msgspec

T = TypeVar("T")

MAX_DEPTH = 100
"""Levels that are decoded; in a list of objects, Reprieve's fields are at most ten levels deep."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[][{}]', re.DOTALL)
_OPENING = (b"[", b"{")


def decode(text: bytes | msgspec.Raw, decode_as: type[T]) -> T:
    """Decode JSON; very deep values become null. Raises `msgspec.MsgspecError`."""
    try:
        return msgspec.json.decode(text, type=decode_as)
    except RecursionError:
        return msgspec.json.decode(prune(bytes(text)), type=decode_as)


def prune(text: bytes) -> bytes:
    """Return the JSON text with null in place of values deeper than `MAX_DEPTH` levels."""
    kept, depth, begins_at = bytearray(), 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] in _OPENING:
            if depth == MAX_DEPTH:
                kept += text[begins_at : token.start()] + b"null"
            depth += 1
        elif token[0][:1] != b'"':
            depth -= 1
            if depth == MAX_DEPTH:
                begins_at = token.end()
    return bytes(kept) + text[begins_at:] if depth <= MAX_DEPTH else bytes(kept)
