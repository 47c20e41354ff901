"""The slopes of memory and open files, over programs that are killed and started again."""

import os
from collections.abc import Callable, Iterator

import pytest

from reprieve_testing.robustness import report, resources
from reprieve_testing.robustness.resources import ResourceSample, ResourceSlope


def life(
    pid: int, since: float, until: float, rss: Callable[[float], float], files: int = 10
) -> Iterator[ResourceSample]:
    for seconds in range(int(since), int(until), 5):
        yield ResourceSample("first", pid, seconds, rss(seconds), files)


def test_a_line_has_its_slope():
    assert resources.common_slope([[(0, 1), (1, 3), (2, 5)]]) == pytest.approx(2)


def test_lines_of_different_heights_have_one_slope():
    lines = [[(0, 10), (1, 12)], [(5, 100), (6, 102)]]
    assert resources.common_slope(lines) == pytest.approx(2)


@pytest.mark.parametrize("lines", [[], [[]], [[(1.0, 2.0)]], [[(1.0, 2.0), (1.0, 5.0)]]])
def test_too_few_points_have_no_slope(lines: list[list[tuple[float, float]]]):
    assert resources.common_slope(lines) == 0


def test_a_program_that_grows_by_36_mib_an_hour_is_seen_across_restarts():
    grows = [
        *life(1, 0, 600, lambda at: 80 + at / 100),
        *life(2, 600, 1200, lambda at: 50 + at / 100),
    ]
    (found,) = resources.slopes(grows)
    assert found.rss_mib_an_hour == pytest.approx(36)
    assert found.descriptors_an_hour == 0
    assert found.most_rss_mib == pytest.approx(85.95)


def test_the_start_of_a_program_is_no_growth():
    (found,) = resources.slopes(life(1, 0, 600, lambda at: min(at, 60)))
    assert found.rss_mib_an_hour == 0
    assert found.most_rss_mib == 60


def test_a_program_that_never_ran_long_enough_has_no_slope():
    (found,) = resources.slopes(life(1, 0, 60, lambda at: at))
    assert (found.samples, found.rss_mib_an_hour) == (0, 0)


STEEP = ResourceSlope("first", 100, 61, 0, 90, 20)
LEAKS = ResourceSlope("second", 100, 1, 61, 90, 200)
FLAT = ResourceSlope("webhooks", 100, 5, 1, 90, 20)


def test_growth_fails_a_long_run_only():
    slopes = [STEEP, LEAKS, FLAT]
    assert report.growing(slopes, report.LONG_RUN_SECONDS - 1) == []
    assert report.growing(slopes, report.LONG_RUN_SECONDS) == [
        "first: grows by 61.0 MiB and 0.0 open files an hour",
        "second: grows by 1.0 MiB and 61.0 open files an hour",
    ]


def test_a_process_is_read_and_one_that_ended_is_not():
    found = resources.read_sample("me", os.getpid(), 1.0)
    assert found is not None
    assert found.rss_mib > 1
    assert found.descriptors > 0
    assert resources.read_sample("nobody", 2**22 + 1, 1.0) is None
