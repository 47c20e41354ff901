"""How long something may run."""

import msgspec
import pytest

from reprieve_policy.config import walltime
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.kube.jobs import Job, JobSpec, JobStatus
from reprieve_testing.objects.builders import NOW, after

READ = {
    "both are set": ("2026-11-21T11:00:00Z", 3600, Walltime(after(-3600), 3600)),
    "no start time": (None, 3600, None),
    "no active deadline": ("2026-11-21T11:00:00Z", None, None),
    "an unreadable start time": ("an hour ago", 3600, None),
}


@pytest.mark.parametrize(("started_at", "seconds", "want"), READ.values(), ids=READ)
def test_a_walltime_is_known_if(
    started_at: str | None, seconds: int | None, want: Walltime | None
) -> None:
    job = Job(spec=JobSpec(activeDeadlineSeconds=seconds), status=JobStatus(startTime=started_at))
    assert walltime.read(job) == want


def test_the_walltime_of_a_job_bounds_all_its_pods() -> None:
    job = {"spec": {"activeDeadlineSeconds": 3600}, "status": {"startTime": "2026-11-21T11:00:00Z"}}
    assert walltime.read(msgspec.convert(job, Job)) == Walltime(after(-3600), 3600)
    assert walltime.read(Job()) is None


def test_the_walltime_that_ends_first_counts() -> None:
    own, its_jobs = Walltime(after(-100), 700), Walltime(after(-500), 800)
    assert walltime.tightest((own, None, its_jobs), NOW) == its_jobs
    assert walltime.tightest((None, None), NOW) is None


FIRST, LATER = Walltime(after(-500), 600), Walltime(after(-500), 900)
COUNTS = {
    "a walltime seen for the first time": (None, FIRST, FIRST),
    "an unchanged walltime": (FIRST, FIRST, FIRST),
    "the earlier walltime after a longer deadline": (FIRST, LATER, FIRST),
    "the new walltime after a shorter deadline": (LATER, FIRST, FIRST),
    "none after the deadline was removed": (FIRST, None, None),
    "the new walltime after a restart": (
        FIRST,
        Walltime(after(-5), 900),
        Walltime(after(-5), 900),
    ),
}


@pytest.mark.parametrize(("first", "found", "want"), COUNTS.values(), ids=COUNTS)
def test_the_known_walltime_is(
    first: Walltime | None, found: Walltime | None, want: Walltime | None
) -> None:
    assert walltime.as_known(first, found) == want


def test_a_start_time_in_the_future_counts_as_not_started() -> None:
    assert Walltime(after(50), 100).left(NOW) == 100


def test_no_number_of_seconds_is_too_large() -> None:
    assert Walltime(after(-1), 2**63 - 1).left(NOW) > 0
    assert Walltime(after(-1), -(2**63)).left(NOW) < 0
