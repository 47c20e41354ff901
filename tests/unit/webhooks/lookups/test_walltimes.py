"""The walltimes of Jobs as they were seen first."""

from reprieve_policy.config.walltime import Walltime
from reprieve_testing.builders import NOW
from reprieve_webhooks.lookups.walltimes import FirstSeenWalltimes

SHORT, LONG = Walltime(NOW, 300), Walltime(NOW, 600)


def test_whoever_lengthens_a_jobs_walltime_gains_nothing() -> None:
    seen = FirstSeenWalltimes()
    assert seen.observe("job", SHORT) == SHORT
    assert seen.observe("job", LONG) == SHORT
    assert seen.observe("job", None) is None
    assert seen.observe("job", LONG) == SHORT
    assert seen.observe("another", LONG) == LONG


def test_a_job_that_is_gone_is_forgotten() -> None:
    seen = FirstSeenWalltimes()
    seen.observe("job", SHORT)
    seen.forget("job")
    seen.forget("never-was")
    assert seen.observe("job", LONG) == LONG


def test_of_too_many_those_that_were_asked_for_longest_ago_are_forgotten() -> None:
    seen = FirstSeenWalltimes(max_entries=2)
    for uid in ("a", "b", "a", "c"):
        seen.observe(uid, SHORT)
    assert [seen.observe(uid, LONG) for uid in ("a", "c", "b")] == [SHORT, SHORT, LONG]
    assert seen.observe("unbounded", None) is None
