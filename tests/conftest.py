"""What all tests share: plugins, the order of tests, and what is measured."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = [
    "reprieve_testing.pytest_plugins.run_lock",
    "reprieve_testing.pytest_plugins.rewrite_once",
    "reprieve_testing.pytest_plugins.progress",
]

_CLUSTER_FOLDERS = ("chaos", "cluster", "differential")
"""Folders with the longest files, in this order: else a run ends with one worker that is busy."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes long; within that, keep the order of files and tests."""
    tests = config.rootpath / "tests"
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    folders = {file: file.relative_to(tests).parts[0] for file in files}
    if config.getoption("cov_source", None):
        _measure_unit_tests_alone(items, folders)
    first = [file for name in _CLUSTER_FOLDERS for file in files if folders[file] == name]
    waiting = [file for file in files if folders[file] == "integration"]
    computing = [file for file in files if folders[file] not in {*_CLUSTER_FOLDERS, "integration"}]
    items[:] = [item for file in first + _mix(waiting, computing) for item in files[file]]


def _measure_unit_tests_alone(items: list[pytest.Item], folders: dict[Path, str]) -> None:
    """They alone cover the policy. Measuring the others takes them four times as long."""
    for item in items:
        if folders[item.path] != "unit":
            item.add_marker("no_cover")


def _mix(waiting: list[Path], computing: list[Path]) -> list[Path]:
    """Spread both evenly over one list, so that some workers compute while others wait.

    Files that wait take longest: the last tenth of the list has none.
    """
    places = [(0.9 * index / len(waiting), file) for index, file in enumerate(waiting)]
    places += [(index / len(computing), file) for index, file in enumerate(computing)]
    return [file for _, file in sorted(places, key=lambda place: place[0])]


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
