"""Whether an operator is live, by its Lease: clocks of two machines are never compared."""

import math

from reprieve_runtime.lease import Lease, LeaseSpec
from reprieve_webhooks.facts.gate_facts import OperatorLiveness


class Watched:
    """A presence, and the hand that moves its clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.presence = OperatorLiveness(lambda: self.now)

    def see(self, renewed: str, holder: str | None = "one", seconds: int | None = 15) -> "Watched":
        spec = LeaseSpec(holderIdentity=holder, leaseDurationSeconds=seconds, renewTime=renewed)
        self.presence.observe(Lease(spec=spec))
        return self

    @property
    def is_fresh(self) -> bool:
        return self.presence.has_leader


def test_without_a_lease_no_operator_is_live() -> None:
    assert not Watched().is_fresh


def test_a_lease_from_before_the_start_shows_nothing_until_it_is_renewed() -> None:
    watched = Watched().see("2026-11-21T12:00:00Z")
    assert not watched.is_fresh
    assert watched.see("2026-11-21T12:00:02Z").is_fresh


def test_a_renewal_counts_from_when_it_is_observed_whatever_the_other_machines_clock_shows() -> (
    None
):
    watched = Watched().see("1999-01-01T00:00:00Z").see("1999-01-01T00:00:02Z")
    assert watched.is_fresh
    watched.now += 14.9
    assert watched.is_fresh
    watched.now += 0.1
    assert not watched.is_fresh


def test_a_new_list_is_no_renewal() -> None:
    watched = Watched().see("1").see("2")
    watched.now += 20
    assert not watched.see("2").is_fresh
    assert watched.see("3").is_fresh


def test_a_released_lease_expires_at_once() -> None:
    assert not Watched().see("1").see("2").see("3", holder="", seconds=1).is_fresh
    assert not Watched().see("1").see("2").see("3", holder=None).is_fresh


def test_an_operator_led_until_it_released_its_lease_or_until_that_ended_or_was_listed_again() -> (
    None
):
    watched = Watched()
    assert watched.presence.led_until == -math.inf, "none was seen"
    assert watched.see("1").presence.led_until == 1000, "one that holds it may lead"
    assert watched.see("2").presence.led_until == 1015
    watched.now += 20
    assert watched.presence.led_until == 1015
    assert watched.see("2").presence.led_until == 1020, "it could not be watched meanwhile"
    assert watched.see("3").presence.led_until == 1035
    watched.now += 5
    assert watched.see("4", holder="").presence.led_until == 1025
    watched.now += 3
    assert watched.see("4", holder="").presence.led_until == 1025


def test_an_operator_whose_lease_was_released_before_the_start_may_have_led_until_now() -> None:
    watched = Watched().see("1", holder="")
    assert watched.presence.led_until == 1000
    watched.now += 3
    assert watched.see("1", holder="").presence.led_until == 1000
    assert not watched.presence.may_fail_over


def test_a_deleted_lease_expires_at_once() -> None:
    watched = Watched().see("1").see("2")
    watched.presence.observe_deletion(("reprieve-system", "reprieve-operator"))
    assert not watched.is_fresh
    assert watched.presence.led_until == -math.inf


def test_a_lease_without_a_duration_does_not_count_and_a_long_one_expires_after_a_minute() -> None:
    assert not Watched().see("1").see("2", seconds=None).is_fresh
    watched = Watched().see("1").see("2", seconds=2**31)
    watched.now += 61
    assert not watched.is_fresh
