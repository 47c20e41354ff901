"""A pytest plugin: the order of the test files, for runs with several workers.

Each worker takes the next file of the list. Tests of one file stay together, in their order.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest

_CLUSTER_FOLDERS = ("chaos", "cluster", "differential")
_WAITING_FOLDER = "integration"
_WAITING_SHARE = 0.9


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the files in order."""
    tests = config.rootpath / "tests"
    items_by_file: dict[Path, list[pytest.Item]] = {}
    for item in items:
        items_by_file.setdefault(item.path, []).append(item)
    folders = {file: file.relative_to(tests).parts[0] for file in items_by_file}
    items[:] = [item for file in in_order(folders) for item in items_by_file[file]]


def in_order(folders: Mapping[Path, str]) -> list[Path]:
    """Return the files in the order in which they run; `folders` has the folder of each.

    Cluster tests come first, the longest before the others: else a run ends with one worker that is
    busy. Then, some workers compute while others wait: the integration tests, which wait, are
    spread over the others, which compute. The last tenth of the list has no integration test.
    """
    first = [file for name in _CLUSTER_FOLDERS for file in folders if folders[file] == name]
    waiting = [file for file in folders if folders[file] == _WAITING_FOLDER]
    computing = [
        file for file in folders if folders[file] not in {*_CLUSTER_FOLDERS, _WAITING_FOLDER}
    ]
    places = [(_WAITING_SHARE * n / len(waiting), file) for n, file in enumerate(waiting)]
    places += [(n / len(computing), file) for n, file in enumerate(computing)]
    return first + [file for _, file in sorted(places, key=lambda place: place[0])]
