"""Whether an operator is there, by what is seen of its Lease: no clock is compared with another machine's."""

from reprieve_runtime.lease import Lease, LeaseSpec
from reprieve_webhooks.facts.operator_liveness import OperatorLiveness


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


def test_without_a_lease_nobody_is_there() -> None:
    assert not Watched().is_fresh


def test_a_lease_that_was_there_before_us_says_nothing_until_it_is_renewed() -> None:
    watched = Watched().see("2026-11-21T12:00:00Z")
    assert not watched.is_fresh
    assert watched.see("2026-11-21T12:00:02Z").is_fresh


def test_whatever_the_other_machines_clock_says_a_renewal_counts_from_when_it_is_seen() -> None:
    watched = Watched().see("1999-01-01T00:00:00Z").see("1999-01-01T00:00:02Z")
    assert watched.is_fresh
    watched.now += 14.9
    assert watched.is_fresh
    watched.now += 0.1
    assert not watched.is_fresh


def test_a_list_made_anew_brings_no_renewal() -> None:
    watched = Watched().see("1").see("2")
    watched.now += 20
    assert not watched.see("2").is_fresh
    assert watched.see("3").is_fresh


def test_one_that_is_given_back_is_over_at_once() -> None:
    assert not Watched().see("1").see("2").see("3", holder="", seconds=1).is_fresh
    assert not Watched().see("1").see("2").see("3", holder=None).is_fresh


def test_for_how_long_nobody_was_there_counts_from_when_the_last_one_was_or_from_our_start() -> (
    None
):
    watched = Watched()
    watched.now += 5
    assert watched.see("1").presence.seconds_without_leader == 5
    watched.see("2").now += 20
    assert watched.presence.seconds_without_leader == 5
    assert watched.see("3").presence.seconds_without_leader == 0
    watched.see("4", holder="")
    watched.now += 3
    assert watched.see("4", holder="").presence.seconds_without_leader == 3


def test_one_that_is_deleted_is_over_at_once() -> None:
    watched = Watched().see("1").see("2")
    watched.presence.observe_deletion(("reprieve-system", "reprieve-operator"))
    assert not watched.is_fresh


def test_a_lease_without_a_duration_is_none_and_a_long_one_ends_after_a_minute() -> None:
    assert not Watched().see("1").see("2", seconds=None).is_fresh
    watched = Watched().see("1").see("2", seconds=2**31)
    watched.now += 61
    assert not watched.is_fresh
