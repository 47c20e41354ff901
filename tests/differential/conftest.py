"""A cluster of its own: no guard, webhook or controller influences what the two engines answer."""

from collections.abc import Iterator

import pytest

from reprieve_testing.cluster.handle import ClusterHandle, cluster_for_tests

NAME = "reprieve-differential"


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterHandle]:
    """A control plane; `REPRIEVE_DIFFERENTIAL_CLUSTER` names one that is then left running."""
    with cluster_for_tests(NAME, variable="REPRIEVE_DIFFERENTIAL_CLUSTER") as handle:
        yield handle
