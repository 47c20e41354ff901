"""Which runs of the tests need clusters, and so wait for each other."""

from pathlib import Path

import pytest

from reprieve_testing.pytest_plugins.run_lock import needs_clusters

ROOT = Path("/repository")
NEED = ["tests", ".", "tests/cluster", "tests/cluster/cli/test_audit.py::test_x[a]", "tests/chaos"]
NEED_NONE = ["tests/unit", "tests/unit/cli", "tests/integration/webhooks/test_program.py::test_y"]


@pytest.mark.parametrize("argument", NEED)
def test_a_run_needs_clusters_if_its_arguments_reach_such_tests(argument: str) -> None:
    assert needs_clusters([argument], ROOT, ROOT / "tests")
    assert needs_clusters([*NEED_NONE, argument], ROOT, ROOT / "tests")


@pytest.mark.parametrize("argument", NEED_NONE)
def test_a_run_of_other_tests_needs_none(argument: str) -> None:
    assert not needs_clusters([argument], ROOT, ROOT / "tests")
