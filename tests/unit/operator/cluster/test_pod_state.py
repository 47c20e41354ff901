"""What a pod's metadata says of it, as a member of its gang."""

from typing import Any

import msgspec
import pytest

from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.pods import VictimPod
from reprieve_policy import keys
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_testing.objects.builders import an_eviction

CANCELLED = an_eviction().in_phase(Phase.CANCELLED).build()
MEMBERS = {
    "a pod without a mark stays": (None, None, False),
    "a marked pod leaves": (None, "requested", True),
    "a victim leaves": (an_eviction().build(), "requested", True),
    "a phase without a state that can be read": (None, "terminating", True),
    "a cancelled pod stays": (CANCELLED, None, False),
    "a cancelled pod stays while it is labelled so": (CANCELLED, "cancelled", False),
    "a cancelled pod that is marked again leaves": (CANCELLED, "requested", True),
}


@pytest.mark.parametrize(("state", "label", "is_leaving"), MEMBERS.values(), ids=MEMBERS)
def test_a_pod_of_a_gang_leaves_from_its_mark_on(
    state: Eviction | None, label: str | None, *, is_leaving: bool
) -> None:
    """Without this, a gang could fall below the number of pods that it needs."""
    metadata: dict[str, Any] = {"name": "p", "uid": "u"}
    if state is not None:
        metadata["annotations"] = {keys.EVICTION: eviction.render(state)}
    if label is not None:
        metadata["labels"] = {keys.SOFT_EVICTION: label}
    pod = msgspec.convert({"metadata": metadata, "spec": {}}, VictimPod)
    assert pod_state.member_of(pod).is_leaving is is_leaving
