"""What all tests share: plugins, and what is measured."""

import gc
from collections.abc import Iterator

import pytest

pytest_plugins = [
    "reprieve_testing.pytest_plugins.file_order",
    "reprieve_testing.pytest_plugins.run_lock",
    "reprieve_testing.pytest_plugins.rewrite_once",
    "reprieve_testing.pytest_plugins.progress",
]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Measure unit tests alone: they cover the policy, and others would take four times as long."""
    if not config.getoption("cov_source", None):
        return
    unit = config.rootpath / "tests" / "unit"
    for item in items:
        if not item.path.is_relative_to(unit):
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
