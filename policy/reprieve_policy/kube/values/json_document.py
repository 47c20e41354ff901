"""JSON that users or other programs wrote: read within limits, and checked value by value.

Every reader of an annotation or an answer uses this module, so that none forgets a limit.
"""

import json
from typing import TypeGuard

INT64_MAX = 2**63 - 1
"""Go's decoders accept no larger whole number."""


def parse(text: str | bytes, limit: int) -> object:
    """Return the document, or raise `ValueError` if the text is too long or not JSON.

    Without the limits, a user's annotation could cost any time, and deep nesting ends in a
    `RecursionError` that callers do not expect.
    """
    if len(text) > limit:
        raise ValueError("too long")
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("too deep") from error


def read(text: str | bytes, limit: int) -> object:
    """Return the document, `None` if it cannot be read."""
    try:
        return parse(text, limit)
    except ValueError:
        return None


def is_optional_text(value: object) -> bool:
    """True for a text or an absent value."""
    return value is None or isinstance(value, str)


def is_whole_number(value: object, lowest: int, highest: int = INT64_MAX) -> TypeGuard[int]:
    """True for a number within bounds; in JSON, unlike in Python, `true` is not a number."""
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest
