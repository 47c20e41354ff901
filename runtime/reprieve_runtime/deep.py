"""JSON of any depth: the API server stores ten thousand levels, and what decodes here goes as deep as the stack does.

Without this, one object with a thousand brackets in a field that nobody reads (a custom resource's, say) would end the
programs that list it.
"""

import re
from typing import TypeVar

import msgspec

T = TypeVar("T")

MAX_DEPTH = 100
"""Levels that are read: of a list of objects, the fields of ours are ten deep."""
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[][{}]', re.DOTALL)
_OPENING = (b"[", b"{")


def decode(text: bytes | msgspec.Raw, decode_as: type[T]) -> T:
    """Decode JSON, of which what is very deep reads as null; raises `msgspec.MsgspecError`."""
    try:
        return msgspec.json.decode(text, type=decode_as)
    except RecursionError:
        return msgspec.json.decode(prune(bytes(text)), type=decode_as)


def prune(text: bytes) -> bytes:
    """Return JSON with null in place of whatever is deeper than `DEEPEST` levels."""
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
