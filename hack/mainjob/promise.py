"""Checks of what a chapter promises.

These are not `assert` statements: they also hold under `python -O`, and their texts are sentences.
"""

import re


class BrokenPromiseError(Exception):
    """The cluster did not do what a chapter promises."""


def keep(*, claim: bool, otherwise: str) -> None:
    """Raise unless the claim is true."""
    if not claim:
        raise BrokenPromiseError(otherwise)


def same(what: str, found: object, wanted: object) -> None:
    """Raise unless `found` equals `wanted`."""
    keep(claim=found == wanted, otherwise=f"{what} is {found!r}, not {wanted!r}")


def says(text: str, *parts: str) -> None:
    """Raise unless the text contains every part."""
    for part in parts:
        keep(claim=part in text, otherwise=f"nothing says {part!r} in {shortened(text)!r}")


def within(what: str, seconds: float, least: float, most: float) -> None:
    """Raise unless a measured time is between `least` and `most` seconds."""
    keep(
        claim=least <= seconds <= most,
        otherwise=f"{what} took {seconds:.1f} s, not {least:g} to {most:g} s",
    )


def shortened(text: str, most: int = 400) -> str:
    """Return the text on one line; shorten a long one in the middle."""
    line = re.sub(r"\s+", " ", text.strip())
    return line if len(line) <= most else f"{line[: most // 2]} … {line[-most // 2 :]}"
