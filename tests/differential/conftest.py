"""A cluster of its own: no guard, no webhook and no controller's pods take part in what the two engines say."""

import os
from collections.abc import Iterator

import pytest

from reprieve_testing.cluster import ClusterHandle

NAME = "reprieve-differential"


@pytest.fixture(scope="session")
def cluster() -> Iterator[ClusterHandle]:
    """A control plane; `REPRIEVE_DIFFERENTIAL_CLUSTER` names one that is then left running."""
    kept = os.environ.get("REPRIEVE_DIFFERENTIAL_CLUSTER")
    handle = ClusterHandle.up(kept or NAME)
    try:
        yield handle
    finally:
        if kept is None:
            handle.down()
