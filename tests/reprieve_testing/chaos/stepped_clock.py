"""A program whose clock is off by the seconds in a file, which may change while it runs.

It changes `time.time` of the program's process: every module in it reads the time from there.
"""

from pathlib import Path

_PRELUDE = (
    "import pathlib, time; real = time.time; file = pathlib.Path({file!r}); "
    "time.time = lambda: real() + float(file.read_text())"
)


def prelude(file: Path) -> str:
    """Return the line of Python that steps the clock of the process that runs it."""
    return _PRELUDE.format(file=str(file))


def step(file: Path, seconds: float) -> None:
    """Step the clock; a reader never sees half a file."""
    part = file.with_suffix(".part")
    part.write_text(str(seconds))
    part.replace(file)
