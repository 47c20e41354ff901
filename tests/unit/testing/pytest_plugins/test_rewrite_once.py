"""Which test modules are rewritten before the workers start."""

import os
from pathlib import Path

import pytest

from reprieve_testing.pytest_plugins import rewrite_once
from reprieve_testing.pytest_plugins.rewrite_once import is_rewritten

FAR_FUTURE = 2.0**32


def a_module(folder: Path, name: str = "test_a") -> Path:
    folder.mkdir(exist_ok=True)
    module = folder / f"{name}.py"
    module.write_text("def test_one() -> None:\n    assert True\n")
    return module


def test_a_folder_stands_for_its_test_modules_and_a_test_for_its_own(tmp_path: Path) -> None:
    first, second = a_module(tmp_path / "x"), a_module(tmp_path / "y", "test_b")
    (tmp_path / "x" / "conftest.py").touch()
    arguments = ["x", "y/test_b.py::test_one"]
    assert list(rewrite_once.test_modules(arguments, tmp_path)) == [first, second]


def test_a_module_is_rewritten_once_and_again_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")
    modules = [a_module(tmp_path), a_module(tmp_path, "test_b")]
    assert not any(map(is_rewritten, modules))
    rewrite_once.rewrite(modules, processes=3)
    assert all(map(is_rewritten, modules))
    os.utime(modules[0], (FAR_FUTURE, FAR_FUTURE))
    assert [is_rewritten(module) for module in modules] == [False, True]
