"""Runs the chapters in order and reports the result."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from realcluster.errors import ClusterError

from .chapters import checkpoint, cleaner, crash, priority_classes, refusals, rights, unwilling
from .narrator import Narrator
from .promise import BrokenPromiseError
from .world import World


class Chapter(NamedTuple):
    """One part of the main job.

    `tell` returns a sentence that says what was shown, or raises BrokenPromiseError.
    """

    title: str
    tell: Callable[[World, Narrator], str]
    has_workload: bool = False
    """True if containers, or local processes in their place, must run."""


CHAPTERS: Sequence[Chapter] = (
    Chapter(refusals.TITLE, refusals.tell),
    Chapter(rights.TITLE, rights.tell),
    Chapter(priority_classes.TITLE, priority_classes.tell),
    Chapter(checkpoint.TITLE, checkpoint.tell, has_workload=True),
    Chapter(unwilling.TITLE, unwilling.tell, has_workload=True),
    Chapter(cleaner.TITLE, cleaner.tell, has_workload=True),
    Chapter(crash.TITLE, crash.tell, has_workload=True),
)


def tell(world: World, narrator: Narrator, chapters: Sequence[Chapter] = CHAPTERS) -> bool:
    """Run the chapters; return whether each kept its promise."""
    for number, chapter in enumerate(CHAPTERS, 1):
        if chapter not in chapters:
            continue
        narrator.headline(f"{number}. {chapter.title}")
        try:
            narrator.ok(number, chapter.tell(world, narrator))
        except (BrokenPromiseError, ClusterError) as broken:
            narrator.fail(f"{number} {chapter.title}: {broken}")
            return False
    return True
