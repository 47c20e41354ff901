"""Measures one part of the gate in this process, and writes its figures to a file.

A part runs a program of ours in the main thread, as its command line starts it. Each part has a
process of its own, in which hashes are the same each time.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path

from . import decoding

PARTS = {
    "reviews": "review of ",
    "extender_call": "call of the extender",
    "victim": "life of a victim",
    "cel_overlay": "CEL overlay",
}
"""The modules, each with a function `measure`, and how the names of their figures begin."""


def main() -> None:
    """Measure the part that the command line names."""
    parser = argparse.ArgumentParser("bench.gate.part", description=__doc__)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("output", type=Path, help="file for the figures")
    found = parser.parse_args()
    decoding.install()
    measured = importlib.import_module(f"{__package__}.{found.part}").measure()
    found.output.write_text(json.dumps(measured), encoding="utf-8")


if __name__ == "__main__":
    main()
