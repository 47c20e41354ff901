"""The turns of one setting, each in a file of its own: a run that was stopped can be continued."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from . import figures
from .figures import PreemptionTurn
from .sources import SOURCES
from .trace import Trace


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is replayed, but for the seed: turns of one setting can be compared."""

    trace: str
    """A row of `SOURCES`."""
    jobs: int
    nodes: int
    window_seconds: float | None = None
    """None: as long as the trace says."""
    publishes: bool = True
    """Workloads publish when they saved."""

    @property
    def name(self) -> str:
        """The name of its folder."""
        parts = [self.trace, f"{self.jobs}-jobs", f"{self.nodes}-nodes"]
        if self.window_seconds is not None:
            parts.append(f"{self.window_seconds:g}-seconds")
        if not self.publishes:
            parts.append("unpublished")
        return "-".join(parts)


@cache
def draw(setting: Setting, seed: int) -> Trace:
    """Return the trace of a seed."""
    generate = SOURCES[setting.trace].generate_short
    return generate(seed, setting.jobs, setting.nodes, setting.window_seconds)


class TurnFiles:
    """The files of one setting's turns in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, contender: str, seed: int) -> Path:
        """Return the file of a contender's turn; `contender` is its key."""
        return self._folder / f"{contender}-seed-{seed}.json"

    def write(self, contender: str, turn: PreemptionTurn) -> None:
        """Write a turn, whole or not at all."""
        path = self.path(contender, turn.seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        written = path.with_suffix(".part")
        written.write_text(json.dumps(figures.turn_document(turn)) + "\n")
        written.replace(path)

    def read(self, contender: str) -> list[PreemptionTurn]:
        """Return all turns of a contender, by seed."""
        files = self._folder.glob(f"{contender}-seed-*.json")
        turns = [figures.turn_from(json.loads(file.read_text())) for file in files]
        return sorted(turns, key=lambda turn: turn.seed)
