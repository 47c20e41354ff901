"""What all tests share: plugins, the order of tests, and what is measured."""

import gc
from collections.abc import Iterator

import pytest

pytest_plugins = [
    "reprieve_testing.pytest_plugins.run_lock",
    "reprieve_testing.pytest_plugins.rewrite_once",
    "reprieve_testing.pytest_plugins.progress",
]

_ORDER = ("chaos", "cluster", "differential", "integration", "contract", "unit")
"""Folders, those with the longest files first: else a run ends with one worker that is busy."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes long; within that, keep the order of files and tests."""
    tests = config.rootpath / "tests"
    folders = {item: item.path.relative_to(tests).parts[0] for item in items}
    items.sort(key=lambda item: _ORDER.index(folders[item]))
    for item in items:
        # Unit tests alone cover the policy. Measuring the others takes them four times as long.
        if folders[item] != "unit":
            item.add_marker("no_cover")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Collect without the garbage collector, and keep what was collected out of its later runs.

    Modules and tests stay until the end: to walk through them again and again frees nothing.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
