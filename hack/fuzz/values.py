"""Hostile values. Those that no JSON encoder writes are represented by names until `encode`."""

from __future__ import annotations

import json
import math
import re
from copy import deepcopy
from random import Random
from typing import Any

_DEEP, _DEEPER = 200, 10_000
_RAW: dict[str, bytes] = {
    "deep arrays": b"[" * _DEEP + b"]" * _DEEP,
    "deeper arrays": b"[" * _DEEPER + b"]" * _DEEPER,
    "deep objects": b'{"a":' * _DEEP + b"null" + b"}" * _DEEP,
    "deeper objects": b'{"a":' * _DEEPER + b"null" + b"}" * _DEEPER,
    "deeper templates": b'{"template":{"spec":' * _DEEPER + b"{}" + b"}}" * _DEEPER,
    "no end of arrays": b"[" * _DEEPER,
    "long number": b"1" + b"0" * 10_000,
    "long fraction": b"0." + b"3" * 10_000,
    "high exponent": b"1e999999999",
    "low exponent": b"1e-999999999",
    "leading zero": b"01",
    "half a number": b"-",
    "half a word": b"tru",
    "single quotes": b"'a'",
    "unknown escape": b'"\\x41"',
    "half an escape": b'"\\u12"',
    "control character": b'"\x01\x00"',
    "not UTF-8": b'"\xff\xfe"',
    "surrogate in UTF-8": b'"\xed\xa0\x80"',
    "overlong UTF-8": b'"\xc0\x80"',
    "nothing": b"",
    "comment": b"/* */ 1",
}
_NAMED = re.compile(rb'"@raw ([^@]*)@"')

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2**31 - 1, 2**31, -(2**31) - 1, 2**63, 2**64, -(2**64), 10**400),
    *(0.5, -0.0, 1e308, 5e-324, math.nan, math.inf, -math.inf),
    *(
        "",
        " ",
        "x",
        "0",
        "11",
        "-1",
        "1h",
        "10m",
        "9" * 5000,
        "x" * 300,
        "x" * 100_000,
        "[" * 50_000,
    ),
    *(
        "\ud800",
        "\udfff\ud800",
        "a\udc00b",
        "\x00",
        "\x1b[31m",
        "\u202e",
        "\ufeff",
        "１",
        "𝟙",
        "é" * 5000,
        "\n",
    ),
    *(
        "true",
        "True",
        "requested",
        "none",
        "auto",
        "sensitive",
        "enforce",
        "0-6",
        "6-0",
        "0-999999999",
    ),
    *(
        "http://:8080/x",
        "http://:99999/",
        "http://evil.example/",
        "signal://USR1?container=\x00",
        "grpc://",
    ),
    *(
        "{}",
        '{"timestamp":NaN}',
        "[" * 200,
        '{"a":1,"a":2}',
        "1e9",
        "0x1",
        "null",
        "None",
        "..",
        "a/b",
    ),
    *([], {}, [[]], [None], {"": ""}, {"a": None}, {"a": 1}, {"": {"": {}}}),
)


def hostile(rng: Random) -> Any:
    """Return a random value of any type."""
    if rng.random() < 0.15:
        return raw(rng.choice(tuple(_RAW)))
    # Without the copy, a change by one case would affect all that follow.
    return deepcopy(rng.choice(VALUES))


def text(rng: Random) -> str:
    """Return a text, usually a strange one."""
    return rng.choice([value for value in VALUES if isinstance(value, str)])


def raw(name: str) -> str:
    """Return a name that `encode` replaces by bytes that are no JSON value, or a very large one."""
    return f"@raw {name}@"


TWICE = "@twice"
"""Suffix of a key that `encode` writes without it, so that the key appears twice."""


def encode(document: Any) -> bytes:
    """Return the document as JSON, or nearly JSON."""
    written = json.dumps(document).encode().replace(TWICE.encode() + b'"', b'"')
    return (
        _NAMED.sub(lambda found: _RAW[found[1].decode()], written)
        if b'"@raw ' in written
        else written
    )
