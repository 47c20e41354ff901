"""What all tests share: a line of progress a minute, and the order in which they begin."""

import pytest

pytest_plugins = ["reprieve_testing.progress"]

_ORDER = ("chaos", "cluster", "differential", "integration", "contract", "unit")
"""Folders, those with the longest files first: with several workers, a long file that begins last is waited for."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes long; within that, keep the order of files and tests."""
    tests = config.rootpath / "tests"

    def place(item: pytest.Item) -> tuple[bool, int]:
        folder = item.path.relative_to(tests).parts[0]
        return item.get_closest_marker("early") is None, _ORDER.index(folder)

    items.sort(key=place)
