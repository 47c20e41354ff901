"""One real cluster for all cluster tests. Where it cannot be had, tests fail and say why: none is skipped.

`REPRIEVE_TEST_CLUSTER` names another cluster, which is then left running: for the second run of an impatient author.
"""

from collections.abc import Generator, Iterator

import pytest

from reprieve_testing.cluster import ClusterHandle, cluster_for_tests

NAME = "reprieve-test"


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterHandle]:
    """A cluster of simulated nodes with the operator's rights installed; our programs are started by the tests."""
    with cluster_for_tests(NAME) as handle:
        handle.install_operator_rights()
        yield handle


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what our programs said last: on a machine that nobody can look into, it is all there is."""
    report = yield
    handle = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(handle, ClusterHandle):
        report.sections += [(program.log.name, program.tail()) for program in handle.programs]
    return report
