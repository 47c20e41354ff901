"""What a pod's gang means for it where some of the gang are evicted, and others are a scheduler's."""

import asyncio
from dataclasses import replace
from typing import cast

import pytest

from reprieve_operator.cluster.pods import Pod
from reprieve_operator.victims.gang_eviction import Muster
from reprieve_operator.victims.gang_member import Membership
from reprieve_operator.victims.gang_registry import Gangs
from reprieve_policy.gangs import disruption
from reprieve_policy.lifecycle.eviction import Eviction, Ground, Phase
from reprieve_policy.lifecycle.machine import Seen
from reprieve_policy.preemption.protection import Reprieve
from reprieve_testing.builders import after, an_eviction

PREEMPTED = an_eviction().asked_by_scheduler().build()
EVICTED = replace(an_eviction().build(), must_evict=True)
ALMOST_COMPLETE = Reprieve(Ground.NEAR_COMPLETION, after(60))


def a_muster(origin: Eviction, *, is_under_way: bool = False, protected_by: Reprieve | None = None) -> Muster:
    muster = Muster("train", disruption.call_roll("train", origin, ()), {})
    muster.is_under_way, muster.reprieve = is_under_way, protected_by
    return muster


def member_of(muster: Muster) -> Membership:
    member = Membership(cast("Gangs", None), "uid", lambda: None)
    member.enter(muster)
    return member


NOBODY = Seen()
BY_A_PERSON = Seen(is_insisted_on=True)
BY_AN_EVICTION = Seen(is_insisted_on=True, must_evict=True)
SEEN = {
    "its gang is evicted": (a_muster(EVICTED, is_under_way=True), NOBODY, True),
    "it is, and so is the pod": (a_muster(EVICTED, is_under_way=True), BY_AN_EVICTION, True),
    "a person insists all the same": (a_muster(EVICTED, is_under_way=True), BY_A_PERSON, False),
    "its gang is a scheduler's": (a_muster(PREEMPTED, is_under_way=True), NOBODY, False),
    "it is, and the pod is evicted": (a_muster(PREEMPTED, is_under_way=True), BY_AN_EVICTION, False),
    "the pod is evicted, the gang goes nowhere yet": (a_muster(PREEMPTED), BY_AN_EVICTION, True),
}


@pytest.mark.parametrize(("muster", "seen", "must_evict"), SEEN.values(), ids=SEEN)
def test_whether_it_is_an_eviction_that_insists_where(muster: Muster, seen: Seen, *, must_evict: bool) -> None:
    assert member_of(muster).see(seen, has_room=True).must_evict is must_evict


BEGINS = {
    "of one that nobody asked for": (a_muster(EVICTED), True),
    "of one that is let finish": (a_muster(PREEMPTED, protected_by=ALMOST_COMPLETE), True),
    "not of one that a scheduler may have": (a_muster(PREEMPTED), False),
}


@pytest.mark.parametrize(("muster", "must_evict"), BEGINS.values(), ids=BEGINS)
def test_an_eviction_of_one_has_all_of_the_gang_evicted(muster: Muster, *, must_evict: bool) -> None:
    begun = asyncio.run(member_of(muster).take_part(Pod(), EVICTED, begins=True))
    other = member_of(muster).begin("other", None, after(1))
    assert (begun.phase, begun.gang, begun.must_evict) == (Phase.REQUESTED, "train", must_evict)
    assert other is not None
    assert other.must_evict is must_evict
