"""The walltimes of Jobs as they were seen first."""

from reprieve_policy.config.walltime import Walltime
from reprieve_testing.objects.builders import NOW
from reprieve_webhooks.lookups.walltimes import FirstSeenWalltimes

SHORT, LONG = Walltime(NOW, 300), Walltime(NOW, 600)


def test_a_lengthened_walltime_of_a_job_does_not_count() -> None:
    seen = FirstSeenWalltimes()
    assert seen.observe("job", SHORT) == SHORT
    assert seen.observe("job", LONG) == SHORT
    assert seen.observe("job", None) is None
    assert seen.observe("job", LONG) == SHORT
    assert seen.observe("another", LONG) == LONG


def test_a_deleted_job_is_forgotten() -> None:
    seen = FirstSeenWalltimes()
    seen.observe("job", SHORT)
    seen.forget("job")
    seen.forget("never-was")
    assert seen.observe("job", LONG) == LONG


def test_beyond_the_limit_the_jobs_seen_longest_ago_are_forgotten() -> None:
    seen = FirstSeenWalltimes(max_entries=2)
    for uid in ("a", "b", "a", "c"):
        seen.observe(uid, SHORT)
    assert [seen.observe(uid, LONG) for uid in ("a", "c", "b")] == [SHORT, SHORT, LONG]
    assert seen.observe("unbounded", None) is None
