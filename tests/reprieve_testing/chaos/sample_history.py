"""The records of one victim that keeps every promise: tests of the checks change them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase
from reprieve_testing.chaos.invariants import VictimExpectation
from reprieve_testing.chaos.records import Hint, WorkloadAnswer, Write
from reprieve_testing.objects.builders import after

POD = "team/victim"
HINTED = Eviction(
    eviction_id="u-1",
    phase=Phase.HINTED,
    requested_at=after(0),
    attempt=1,
    hinted_at=after(1),
    deadline=after(60),
)
TERMINATING = replace(
    HINTED,
    phase=Phase.TERMINATING,
    outcome=CheckpointOutcome.SAVED,
    deadline=None,
    grace_seconds=30,
)
HINT = Hint(uid="u", eviction_id="u-1", attempt=1, at=after(2), deadline=after(60))
SAVED = WorkloadAnswer(uid="u", at=after(19), state="saved")
VICTIM = VictimExpectation(uid="u", pod=POD, marked_at=after(0), max_duration=timedelta(seconds=70))


def write(seconds: float, verb: str, state: Eviction | None = None, **changes: Any) -> Write:
    """Return a write of the operator that succeeded, so many seconds after the mark."""
    made = Write(
        at=after(seconds),
        done=after(seconds + 0.1),
        verb=verb,
        subresource="",
        pod=POD,
        status=200,
        uid="u",
        version="" if verb == "delete" else "7",
        state=state,
        user="system:serviceaccount:reprieve-system:reprieve-operator",
    )
    return replace(made, **changes)


DELETED = write(20.2, "delete")
