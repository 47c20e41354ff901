"""The cluster that the operator's victims are in."""

from collections.abc import AsyncIterator

import pytest

from reprieve_testing.played_cluster import PlayedCluster


@pytest.fixture
async def cluster() -> AsyncIterator[PlayedCluster]:
    cluster = PlayedCluster()
    cluster.sets.on_listed()
    yield cluster
    await cluster.registry.close()
