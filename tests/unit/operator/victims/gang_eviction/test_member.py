"""What the eviction of its gang means for a pod: by the Eviction API, or by a DELETE."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.victims.gang_eviction.eviction import GangEviction
from reprieve_operator.victims.gang_eviction.member import GangMember
from reprieve_operator.victims.gang_eviction.registry import GangRegistry
from reprieve_policy.gangs import disruption
from reprieve_policy.lifecycle.eviction import (
    CheckpointOutcome,
    Eviction,
    Phase,
    Protection,
    ProtectionReason,
)
from reprieve_policy.lifecycle.machine import ObservedVictim
from reprieve_testing.objects.builders import after, an_eviction

PREEMPTED = an_eviction().asked_by_scheduler().build()
EVICTED = replace(an_eviction().build(), must_evict=True)
ALMOST_COMPLETE = Protection(ProtectionReason.NEAR_COMPLETION, after(60))


def a_gang_eviction(
    origin: Eviction, *, is_in_progress: bool = False, protected_by: Protection | None = None
) -> GangEviction:
    gang_eviction = GangEviction("train", disruption.decide_gang("train", origin, ()), {})
    gang_eviction.is_in_progress, gang_eviction.protection = is_in_progress, protected_by
    return gang_eviction


def member_of(gang_eviction: GangEviction) -> GangMember:
    member = GangMember(cast("GangRegistry", None), "uid", lambda: None)
    member.join(gang_eviction)
    return member


NO_REQUEST = ObservedVictim()
BY_A_USER = ObservedVictim(is_requested_again=True)
BY_AN_EVICTION = ObservedVictim(is_requested_again=True, must_evict=True)
SEEN = {
    "the gang is evicted": (a_gang_eviction(EVICTED, is_in_progress=True), NO_REQUEST, True),
    "the gang and the pod are evicted": (
        a_gang_eviction(EVICTED, is_in_progress=True),
        BY_AN_EVICTION,
        True,
    ),
    "a user requests a deletion all the same": (
        a_gang_eviction(EVICTED, is_in_progress=True),
        BY_A_USER,
        False,
    ),
    "the gang is preempted": (a_gang_eviction(PREEMPTED, is_in_progress=True), NO_REQUEST, False),
    "the gang is preempted, and the pod is evicted": (
        a_gang_eviction(PREEMPTED, is_in_progress=True),
        BY_AN_EVICTION,
        False,
    ),
    "the pod is evicted, and the eviction of its gang has not started": (
        a_gang_eviction(PREEMPTED),
        BY_AN_EVICTION,
        True,
    ),
}


@pytest.mark.parametrize(("gang_eviction", "seen", "must_evict"), SEEN.values(), ids=SEEN)
def test_whether_the_eviction_api_must_be_used_where(
    gang_eviction: GangEviction, seen: ObservedVictim, *, must_evict: bool
) -> None:
    assert member_of(gang_eviction).observe(seen, EVICTED, has_room=True).must_evict is must_evict


BEGINS = {
    "of a gang that is evicted": (a_gang_eviction(EVICTED), True),
    "of a gang that is protected": (a_gang_eviction(PREEMPTED, protected_by=ALMOST_COMPLETE), True),
    "not of a gang that is preempted": (a_gang_eviction(PREEMPTED), False),
}


@pytest.mark.parametrize(("gang_eviction", "must_evict"), BEGINS.values(), ids=BEGINS)
def test_the_eviction_of_one_pod_evicts_the_whole_gang(
    gang_eviction: GangEviction, *, must_evict: bool
) -> None:
    begun = asyncio.run(member_of(gang_eviction).look_up_gang(VictimPod(), EVICTED, begins=True))
    other = member_of(gang_eviction).initial_state(after(1))
    assert (begun.phase, begun.gang, begun.must_evict) == (Phase.REQUESTED, "train", must_evict)
    assert other is not None
    assert other.must_evict is must_evict


NOTIFIED = replace(
    an_eviction().in_phase(Phase.HINTED, deadline=after(60)).build(),
    gang="train",
    hinted_at=after(0),
)
DELETED_BY_OTHERS = replace(
    NOTIFIED, phase=Phase.TERMINATING, outcome=CheckpointOutcome.OVERTAKEN, deadline=None
)
LOOKED_UP = {
    "a notified pod": (NOTIFIED, True),
    "one that another client deleted after its notice": (DELETED_BY_OTHERS, True),
    "not one that another client deleted before it": (
        replace(DELETED_BY_OTHERS, hinted_at=None),
        False,
    ),
    "not one that was deleted with its gang": (
        replace(DELETED_BY_OTHERS, outcome=CheckpointOutcome.UNRESPONSIVE),
        False,
    ),
    "not one that is evicted alone": (replace(NOTIFIED, gang=""), False),
}


class Registry:
    """Counts what is looked up in it."""

    def __init__(self) -> None:
        self.looked_up = 0

    async def find_eviction(self, pod: VictimPod, state: Eviction) -> GangEviction | None:
        del pod, state
        self.looked_up += 1
        return None


@pytest.mark.parametrize(("state", "is_looked_up"), LOOKED_UP.values(), ids=LOOKED_UP)
def test_the_next_operator_looks_for_pods_of_the_gang_that_were_left_out(
    state: Eviction, *, is_looked_up: bool
) -> None:
    registry = Registry()
    member = GangMember(cast("GangRegistry", registry), "uid", lambda: None)
    asyncio.run(member.look_up_gang(VictimPod(), state, begins=False))
    assert bool(registry.looked_up) is is_looked_up
