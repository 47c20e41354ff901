"""What a pod's gang means for it where some of the gang are evicted, and others are a scheduler's."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.victims.gang_eviction import GangEviction
from reprieve_operator.victims.gang_member import GangMember
from reprieve_operator.victims.gang_registry import GangRegistry
from reprieve_policy.gangs import disruption
from reprieve_policy.lifecycle.eviction import Eviction, Phase, ProtectionReason
from reprieve_policy.lifecycle.machine import ObservedVictim
from reprieve_policy.preemption.protection import Protection
from reprieve_testing.builders import after, an_eviction

PREEMPTED = an_eviction().asked_by_scheduler().build()
EVICTED = replace(an_eviction().build(), must_evict=True)
ALMOST_COMPLETE = Protection(ProtectionReason.NEAR_COMPLETION, after(60))


def a_muster(
    origin: Eviction, *, is_under_way: bool = False, protected_by: Protection | None = None
) -> GangEviction:
    muster = GangEviction("train", disruption.decide_gang("train", origin, ()), {})
    muster.is_in_progress, muster.protection = is_under_way, protected_by
    return muster


def member_of(muster: GangEviction) -> GangMember:
    member = GangMember(cast("GangRegistry", None), "uid", lambda: None)
    member.join(muster)
    return member


NOBODY = ObservedVictim()
BY_A_PERSON = ObservedVictim(is_requested_again=True)
BY_AN_EVICTION = ObservedVictim(is_requested_again=True, must_evict=True)
SEEN = {
    "its gang is evicted": (a_muster(EVICTED, is_under_way=True), NOBODY, True),
    "it is, and so is the pod": (a_muster(EVICTED, is_under_way=True), BY_AN_EVICTION, True),
    "a person insists all the same": (a_muster(EVICTED, is_under_way=True), BY_A_PERSON, False),
    "its gang is a scheduler's": (a_muster(PREEMPTED, is_under_way=True), NOBODY, False),
    "it is, and the pod is evicted": (
        a_muster(PREEMPTED, is_under_way=True),
        BY_AN_EVICTION,
        False,
    ),
    "the pod is evicted, the gang goes nowhere yet": (a_muster(PREEMPTED), BY_AN_EVICTION, True),
}


@pytest.mark.parametrize(("muster", "seen", "must_evict"), SEEN.values(), ids=SEEN)
def test_whether_it_is_an_eviction_that_insists_where(
    muster: GangEviction, seen: ObservedVictim, *, must_evict: bool
) -> None:
    assert member_of(muster).observe(seen, has_room=True).must_evict is must_evict


BEGINS = {
    "of one that nobody asked for": (a_muster(EVICTED), True),
    "of one that is let finish": (a_muster(PREEMPTED, protected_by=ALMOST_COMPLETE), True),
    "not of one that a scheduler may have": (a_muster(PREEMPTED), False),
}


@pytest.mark.parametrize(("muster", "must_evict"), BEGINS.values(), ids=BEGINS)
def test_an_eviction_of_one_has_all_of_the_gang_evicted(
    muster: GangEviction, *, must_evict: bool
) -> None:
    begun = asyncio.run(member_of(muster).look_up_gang(VictimPod(), EVICTED, begins=True))
    other = member_of(muster).initial_state("other", None, after(1))
    assert (begun.phase, begun.gang, begun.must_evict) == (Phase.REQUESTED, "train", must_evict)
    assert other is not None
    assert other.must_evict is must_evict
