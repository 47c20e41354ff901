"""Runs the chapters in order and reports the result."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from realcluster.errors import ClusterError

from .chapters import checkpoint, crash, deadlines, finalizers, priority_classes, refusals, rights
from .installation import Installation
from .narrator import Narrator
from .promise import BrokenPromiseError


class Chapter(NamedTuple):
    """One part of the main job.

    `run` returns a sentence that says what was shown, or raises BrokenPromiseError.
    """

    title: str
    run: Callable[[Installation, Narrator], str]
    has_workload: bool = False
    """True if containers, or local processes in their place, must run."""


CHAPTERS: Sequence[Chapter] = (
    Chapter(refusals.TITLE, refusals.run),
    Chapter(rights.TITLE, rights.run),
    Chapter(priority_classes.TITLE, priority_classes.run),
    Chapter(checkpoint.TITLE, checkpoint.run, has_workload=True),
    Chapter(deadlines.TITLE, deadlines.run, has_workload=True),
    Chapter(finalizers.TITLE, finalizers.run, has_workload=True),
    Chapter(crash.TITLE, crash.run, has_workload=True),
)


def run(
    installation: Installation, narrator: Narrator, chapters: Sequence[Chapter] = CHAPTERS
) -> bool:
    """Run the chapters; return whether each kept its promise."""
    for number, chapter in enumerate(CHAPTERS, 1):
        if chapter not in chapters:
            continue
        narrator.headline(f"{number}. {chapter.title}")
        try:
            narrator.ok(number, chapter.run(installation, narrator))
        except (BrokenPromiseError, ClusterError) as broken:
            narrator.fail(f"{number} {chapter.title}: {broken}")
            return False
    return True
