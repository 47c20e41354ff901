"""One real cluster for all cluster tests. Where it cannot be had, tests fail and say why: none is skipped.

`REPRIEVE_TEST_CLUSTER` names another cluster, which is then left running: for the second run of an impatient author.
"""

import os
from collections.abc import Iterator

import pytest

from reprieve_testing.cluster import ClusterHandle

NAME = "reprieve-test"


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterHandle]:
    """A cluster of simulated nodes with the operator's rights installed; our programs are started by the tests."""
    kept = os.environ.get("REPRIEVE_TEST_CLUSTER")
    handle = ClusterHandle.up(kept or NAME)
    try:
        handle.install_operator_rights()
        yield handle
    finally:
        handle.stop_programs()
        if kept is None:
            handle.down()
