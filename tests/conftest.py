"""What all tests share: a line of progress a minute, and the order in which they begin."""

import pytest

pytest_plugins = ["reprieve_testing.progress"]

_ORDER = ("chaos", "cluster", "differential", "integration", "contract", "unit")
"""Folders, those with the longest files first: else a run ends with one worker that is busy."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes long; within that, keep the order of files and tests."""
    tests = config.rootpath / "tests"
    items.sort(key=lambda item: _ORDER.index(item.path.relative_to(tests).parts[0]))
