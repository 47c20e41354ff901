"""One real cluster for all cluster tests. If it cannot be started, tests fail with the reason.

No test is skipped. `REPRIEVE_TEST_CLUSTER` names another cluster, which the tests leave running: a
second run then starts faster.
"""

from collections.abc import Generator, Iterator

import pytest

from reprieve_testing.cluster.handle import ClusterHandle, Program, cluster_for_tests

NAME = "reprieve-test"


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterHandle]:
    """A cluster of simulated nodes with the operator's rights; tests start our programs."""
    with cluster_for_tests(NAME) as handle:
        handle.install_operator_rights()
        yield handle


@pytest.fixture(scope="module")
def operator(cluster: ClusterHandle) -> Iterator[Program]:
    """An operator with the default policy, for all tests of a module; it leads."""
    cluster.set_policy()
    program = cluster.start_operator()
    program.wait_leading()
    yield program
    assert program.stop() == 0


@pytest.fixture
def namespace(cluster: ClusterHandle, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of one test, named after the test's file."""
    prefix = request.path.stem.removeprefix("test_").replace("_", "-")
    with cluster.namespace(prefix) as name:
        yield name


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Append the last log lines of our programs to a failure: on CI there is no other trace of
    them.
    """
    report = yield
    handle = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and isinstance(handle, ClusterHandle):
        report.sections += [(program.log.name, program.tail()) for program in handle.programs]
    return report
