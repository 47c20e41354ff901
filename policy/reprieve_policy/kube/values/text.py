"""Text from users, made fit to be kept in a victim's small state and shown in one line."""

import json

LONGEST = 512
"""Bytes of the longest text in a victim's state. JSON doubles quotes and backslashes, and a state
holds 1.5 of these and a checkpoint's path: at most 2.5 KB of the 4096 bytes that containerd allows
for it."""


def clip(text: str, limit: int = LONGEST) -> str:
    """Return `text` as one printable line of at most `limit` bytes of UTF-8.

    Without this, one control character would take six bytes in JSON, and a lone surrogate could not
    be sent at all.
    """
    line = text[:limit]
    if not line.isprintable():
        line = "".join(character if character.isprintable() else " " for character in line)
    return line.encode()[:limit].decode(errors="ignore")


def is_clean(text: str, limit: int = LONGEST) -> bool:
    """True if `text` can be kept exactly as it is."""
    return clip(text, limit) == text


def show(value: object) -> str:
    """Return a value of a JSON document in the form in which a message shows it.

    Nested values are only hinted at. Without this, rendering would fail at a depth that reading has
    just survived.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "{…}"
    return "[…]" if isinstance(value, list) else json.dumps(value)
