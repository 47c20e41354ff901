"""Delays after failures double, up to a longest one, and are spread at random."""

from reprieve_runtime.backoff import Backoff


def test_delays_double_up_to_the_longest():
    backoff = Backoff(1.0, 5.0, jitter=0.0)
    assert [backoff.next_delay() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_after_a_success_the_first_delay_holds_again():
    backoff = Backoff(1.0, 60.0, jitter=0.0)
    backoff.next_delay()
    backoff.next_delay()
    backoff.reset()
    assert backoff.next_delay() == 1.0


def test_jitter_only_shortens_a_delay():
    delays = {Backoff(8.0, 60.0).next_delay() for _ in range(50)}
    assert len(delays) > 1
    assert all(4.0 <= delay <= 8.0 for delay in delays)


def test_what_the_server_asks_for_counts_up_to_the_longest_delay():
    assert Backoff(1.0, 10.0).next_delay(at_least_seconds=7.0) == 7.0
    assert Backoff(1.0, 10.0).next_delay(at_least_seconds=3600.0) == 10.0
