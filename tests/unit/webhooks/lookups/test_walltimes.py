"""The walltimes of Jobs as they were seen first."""

from reprieve_policy.config.walltime import Walltime
from reprieve_testing.builders import NOW
from reprieve_webhooks.lookups.walltimes import Walltimes

SHORT, LONG = Walltime(NOW, 300), Walltime(NOW, 600)


def test_whoever_lengthens_a_jobs_walltime_gains_nothing() -> None:
    seen = Walltimes()
    assert seen.take("job", SHORT) == SHORT
    assert seen.take("job", LONG) == SHORT
    assert seen.take("job", None) is None
    assert seen.take("job", LONG) == SHORT
    assert seen.take("another", LONG) == LONG


def test_a_job_that_is_gone_is_forgotten() -> None:
    seen = Walltimes()
    seen.take("job", SHORT)
    seen.forget("job")
    seen.forget("never-was")
    assert seen.take("job", LONG) == LONG


def test_of_too_many_those_that_were_asked_for_longest_ago_are_forgotten() -> None:
    seen = Walltimes(most=2)
    for uid in ("a", "b", "a", "c"):
        seen.take(uid, SHORT)
    assert [seen.take(uid, LONG) for uid in ("a", "c", "b")] == [SHORT, SHORT, LONG]
    assert seen.take("unbounded", None) is None
