"""One round of `make test-robustness`, so that what plays it keeps working."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from reprieve_testing.cluster.handle import ClusterHandle, new_cluster, own_name
from reprieve_testing.robustness import plan, report
from reprieve_testing.robustness.programs import install_reprieve
from reprieve_testing.robustness.run import play

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_a_round_of_random_faults_breaks_no_promise(tmp_path: Path, say: Callable[[str], None]):
    with new_cluster(own_name("reprieve-robustness"), kwok_nodes=8) as cluster:
        handle = ClusterHandle.of(cluster)
        install_reprieve(handle)
        outcome = asyncio.run(play(handle, plan.generate(1, 0.5), tmp_path, say))
    assert report.failures(outcome) == [], report.render(outcome)
    assert outcome.checks["victims"] > 0
