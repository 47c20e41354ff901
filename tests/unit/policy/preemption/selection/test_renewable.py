"""One large gang of a tenant does not make the search for renewable refusals long."""

from collections.abc import Mapping
from typing import Any

import pytest

from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection.snapshot import GangKey, ScheduledPod
from reprieve_testing.objects.snapshots import (
    a_node_info,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
)

ONE = a_preemptor()
MEMBERS = 2_000
MINIMUM = MEMBERS - 1
NOTIFIED: Mapping[str, Any] = {"is_leaving": True, "notified": True}
HELD: Mapping[str, Any] = {"is_leaving": True, "notified": False, "is_held_by_budget": True}

LAST_LEAVES: dict[str, tuple[Mapping[str, Any], DisruptionMode, bool]] = {
    "of a gang that can spare none": (NOTIFIED, DisruptionMode.SINGLE, True),
    "for this very preemptor": (
        {**NOTIFIED, "preemptor_uid": ONE.demand.uid},
        DisruptionMode.SINGLE,
        False,
    ),
    "as soon as a budget allows, of a gang that leaves as a whole": (
        HELD,
        DisruptionMode.ALL,
        True,
    ),
}


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the pods of which it was read whether they leave, one entry for each time."""
    read = list[str]()

    def is_leaving(pod: ScheduledPod) -> bool:
        read.append(pod.name)
        return pod.release is not None

    monkeypatch.setattr(ScheduledPod, "is_leaving", property(is_leaving))
    return read


@pytest.mark.parametrize(("leaves", "mode", "is_found"), LAST_LEAVES.values(), ids=LAST_LEAVES)
def test_the_members_of_a_gang_are_read_once_not_for_each_of_its_pods(
    leaves: Mapping[str, Any],
    mode: DisruptionMode,
    is_found: bool,  # noqa: FBT001 - a parameter
    reads: list[str],
) -> None:
    pods = [
        a_scheduled_pod(f"pod-{number}", gang=GangKey("team", "old")) for number in range(MEMBERS)
    ]
    pods[-1] = a_scheduled_pod("last", gang=GangKey("team", "old"), **leaves)
    snapshot = (
        a_snapshot(a_node_info("a", *pods, cpu=MEMBERS, pods=MEMBERS))
        .with_gang("old", mode, min_available=MINIMUM)
        .build()
    )

    recorded = selection.renewably_refused(ONE, snapshot, ["a"], MEMBERS)

    assert len(recorded) == (MEMBERS - 1 if is_found else 0)
    assert MEMBERS <= len(reads) <= 5 * MEMBERS
