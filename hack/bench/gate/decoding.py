"""Counts what a program has msgspec decode: bytes of JSON, and blocks of memory of the values.

What is decoded twice counts twice. `install` must come before the program's modules are imported:
they make their decoders then.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

_REAL_DECODER, _real_decode = msgspec.json.Decoder, msgspec.json.decode


class Decoded:
    """The sums so far."""

    def __init__(self) -> None:
        self.bytes = 0
        self.blocks = 0
        """Of the interpreter's memory; most values take one. No other thread runs meanwhile."""

    def counted(self, decode: Callable[[Any], Any], text: Any) -> Any:
        """Decode one text (bytes, `msgspec.Raw` or a string), and count it."""
        self.bytes += len(text) if isinstance(text, str) else memoryview(text).nbytes
        before = sys.getallocatedblocks()
        value = decode(text)
        self.blocks += sys.getallocatedblocks() - before
        return value


DECODED = Decoded()


class _CountingDecoder:
    """A `msgspec.json.Decoder` that counts."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._decoder = _REAL_DECODER(*arguments, **options)

    def __class_getitem__(cls, _: object) -> type[_CountingDecoder]:
        return cls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decoder, name)

    def decode(self, text: Any) -> Any:
        return DECODED.counted(self._decoder.decode, text)

    def decode_lines(self, text: Any) -> Any:
        return DECODED.counted(self._decoder.decode_lines, text)


def _counting_decode(text: Any, **options: Any) -> Any:
    return DECODED.counted(partial(_real_decode, **options), text)


def install() -> None:
    """Count from now on."""
    msgspec.json.Decoder = _CountingDecoder  # type: ignore[assignment, misc]
    msgspec.json.decode = _counting_decode
