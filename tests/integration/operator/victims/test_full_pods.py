"""The last state of a victim whose annotations its owner has filled meanwhile."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.victims.termination.state_writer import TerminationStateWriter
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import after, an_eviction

CARRIED = replace(
    an_eviction().in_phase(Phase.HINTED, deadline=after(60)).build(),
    phase=Phase.TERMINATING,
    outcome=CheckpointOutcome.SAVED,
    must_evict=True,
    grace_seconds=30,
)
HELD = replace(CARRIED, phase=Phase.CANCELLED, outcome=CheckpointOutcome.HELD_BY_BUDGET)


class FullPod:
    """Accepts a state of so many characters, or none at all."""

    def __init__(self, room: int) -> None:
        self._room = room
        self.written: Eviction | None = None

    async def write_cancelled(
        self, pod: VictimPod, state: Eviction, *, has_room: bool = True
    ) -> VictimPod:
        if has_room and len(eviction.render(state)) > self._room:
            raise ApiError(422, "Invalid", "metadata.annotations: Too long: may not be more than")
        self.written = state if has_room else None
        return pod


SHORT = eviction.shortened(HELD)
ROOMS = {
    "room for all of it": (len(eviction.render(HELD)), HELD),
    "room for what it carried": (len(eviction.render(CARRIED)), SHORT),
    "no room": (0, None),
}


@pytest.mark.parametrize(("room", "want"), ROOMS.values(), ids=ROOMS)
async def test_the_record_of_a_budgets_hold_is_kept_where_there_was_room_for_the_state(
    room: int, want: Eviction | None
) -> None:
    """Without it, each eviction of the pod would hold its preemptors for as long as the first."""
    pod = FullPod(room)
    writes: Any = pod
    policy: Any = SimpleNamespace()
    writer = TerminationStateWriter(
        writes,
        policy,
        Clock(),
        adds_finalizer=lambda *_: False,
        on_pod_written=lambda _: None,
        on_state_written=lambda *_: None,
    )
    await writer.write_cancelled(VictimPod(), HELD)
    assert pod.written == want
