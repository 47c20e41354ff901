"""Reads and writes the checked-in figures: one file for each version of Python, one figure a line.

Versions of Python call functions for different things: their counts cannot be compared.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).with_name("figures")
_LIBRARIES = ("aiohttp", "msgspec", "uvloop")
"""Whose calls are counted, too."""
_HEAD = """\
# What `make bench-gate` counts, and fails by where it grows. `make bench-gate UPDATE=1` writes this
# file. One figure a line, by name: where two changes meet, run that after the merge.
"""


@dataclass(frozen=True, slots=True)
class KnownFigures:
    """The figures of a version of Python."""

    figures: Mapping[str, float]
    libraries: Mapping[str, str]
    """The versions of libraries with which they were counted."""


def interpreter() -> str:
    """Return the name of the running interpreter, like `cpython-3.11`."""
    return f"{sys.implementation.name}-{sys.version_info[0]}.{sys.version_info[1]}"


def path_of(interpreter: str) -> Path:
    """Return the file of an interpreter, which may not exist."""
    return FOLDER / f"{interpreter}.toml"


def libraries() -> dict[str, str]:
    """Return the versions of the libraries here."""
    return {name: version(name) for name in _LIBRARIES}


def read(path: Path) -> KnownFigures | None:
    """Return the figures of a file; `None` without one."""
    if not path.exists():
        return None
    found = tomllib.loads(path.read_text(encoding="utf-8"))
    return KnownFigures(found["figures"], found["libraries"])


def write(path: Path, known: KnownFigures) -> None:
    """Write figures to a file."""
    path.write_text(rendered(known), encoding="utf-8")


def rendered(known: KnownFigures) -> str:
    """Return the text of a file."""
    lines = [_HEAD, "[libraries]"]
    lines += [f'{name} = "{number}"' for name, number in sorted(known.libraries.items())]
    lines += ["", "[figures]"]
    lines += [
        f"{json.dumps(name)} = {round(value, 1):.12g}"
        for name, value in sorted(known.figures.items())
    ]
    return "\n".join(lines) + "\n"
