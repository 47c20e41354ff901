"""What `reprieve watch` prints: a victim's line, its steps, the table with its totals, and JSON.

To change a text, delete `golden/watch.txt`, run this test twice, and read the difference.
"""

import io
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from reprieve_cli.cluster.steps import VictimStep
from reprieve_cli.cluster.totals import Totals
from reprieve_cli.cluster.victim_table import TableLayout, VictimRow, build_table
from reprieve_cli.cluster.victims import VictimStatus
from reprieve_cli.commands import watch
from reprieve_policy.lifecycle.eviction import (
    Checkpoint,
    CheckpointOutcome,
    Eviction,
    Phase,
    ProtectionReason,
)
from reprieve_testing.objects.builders import NOW, after

GOLDEN = Path(__file__).parents[1] / "golden" / "watch.txt"
STATE = Eviction(
    eviction_id="e1",
    phase=Phase.CHECKPOINTING,
    requested_at=after(-60),
    hinted_at=after(-60),
    deadline=after(540),
    initiator="system:kube-scheduler",
    reason="room for team/urgent",
    attempt=1,
)
SAVED = replace(
    STATE,
    phase=Phase.TERMINATING,
    outcome=CheckpointOutcome.SAVED,
    checkpoint=Checkpoint(saved_at=after(-20), step=7, path="/data/7"),
)


def a_victim(name: str, state: Eviction | None, phase: str = "") -> VictimStatus:
    return VictimStatus(
        namespace="team",
        name=name,
        uid=f"uid-{name}",
        phase=phase or (state.phase if state else "requested"),
        preemption_class="4",
        state=state,
    )


def a_step(name: str, seconds: float, reason: str, note: str) -> VictimStep:
    return VictimStep(
        at=after(seconds), namespace="team", name=name, uid=f"uid-{name}", reason=reason, note=note
    )


VICTIMS = (
    a_victim("new", None),
    a_victim("train", STATE),
    a_victim("ready", SAVED),
    a_victim(
        "stays",
        replace(
            STATE,
            phase=Phase.REPRIEVED,
            refused_on=ProtectionReason.NEAR_COMPLETION,
            deadline=after(90),
        ),
    ),
)
STEPS = {
    "uid-train": [
        a_step("train", -60, "CheckpointRequested", "asked to save a checkpoint by 12:09:00Z"),
        a_step("train", -58.6, "CheckpointAcknowledged", "the workload is saving\x1b[2J"),
    ],
    "uid-ready": [
        a_step("ready", -60, "CheckpointRequested", "asked to save a checkpoint by 12:09:00Z"),
        a_step("ready", -20, "CheckpointSaved", "the workload acknowledged a checkpoint at step 7"),
        a_step("ready", -20, "SoftEvictionDeleting", "deleting the pod: SIGTERM now"),
    ],
}


def some_totals() -> Totals:
    """Return the totals of three victims that have ended, and of others that have not."""
    totals = Totals(after(-3600))
    lost = replace(SAVED, outcome=CheckpointOutcome.UNRESPONSIVE, checkpoint=None)
    for name, state in (("saved", SAVED), ("lost", lost), ("unread", SAVED)):
        totals.see(a_victim(name, state), {}, NOW)
        since = {} if name == "unread" else {f"uid-{name}": after(-7200)}
        totals.see(a_victim(name, state, Phase.GONE), since, NOW)
    totals.see(a_victim("back", STATE, Phase.CANCELLED), {}, NOW)
    return totals


def shown() -> Iterator[str]:
    for form, title in ((watch.TEXT, "text"), (watch.JSON, "json")):
        yield f"== {title}, a change"
        yield from (form.change(victim, NOW) for victim in VICTIMS)
        yield f"== {title}, --once --steps"
        for victim in VICTIMS:
            yield from form.timeline(victim, STEPS.get(victim.uid, ()), NOW)
        yield f"== {title}, a step"
        yield form.step(STEPS["uid-ready"][1])
    yield "== the table"
    console = Console(file=io.StringIO(), width=110, force_terminal=False)
    layout = TableLayout(110, 24, totals=some_totals().describe())
    console.print(build_table([VictimRow(each, NOW) for each in VICTIMS], NOW, layout))
    assert isinstance(console.file, io.StringIO)
    yield from (line.rstrip() for line in console.file.getvalue().splitlines())
    yield "== totals"
    yield Totals(NOW).describe()
    yield some_totals().describe()


def test_what_it_prints_is_pinned() -> None:
    text = "\n".join(shown()) + "\n"
    if not GOLDEN.exists():
        GOLDEN.write_text(text, encoding="utf-8")
        pytest.fail("wrote golden/watch.txt: read it, and run this test again")
    assert text == GOLDEN.read_text(encoding="utf-8")


def test_the_work_that_counts_is_that_before_the_save_or_the_end() -> None:
    totals = some_totals()
    # Two hours to now, less the 20 s since the save; and two hours to the end.
    assert totals.kept_hours == pytest.approx(timedelta(hours=2, seconds=-20) / timedelta(hours=1))
    assert totals.lost_hours == 2.0
    assert (totals.ended, totals.saved, totals.unsaved, totals.not_known) == (3, 2, 1, 1)
