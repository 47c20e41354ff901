"""The library runs on the oldest Python that its package names, and imports nothing but itself."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from reprieve_testing import manifests

CLIENT = manifests.ROOT / "client"
PACKAGE = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]
OLDEST = PACKAGE["requires-python"].removeprefix(">=")

# Every module but those of frameworks; then one request over each hint that needs no API server.
PROGRAM = """
import http.client, json, pkgutil, importlib, sys, threading
import reprieve_client as reprieve

for module in pkgutil.walk_packages(reprieve.__path__, "reprieve_client."):
    if not module.name.startswith("reprieve_client.frameworks."):
        importlib.import_module(module.name)

saved = []
session = reprieve.checkpointing(lambda step: saved.append(step), hint="http://:0/save").open()
call = http.client.HTTPConnection("127.0.0.1", session._hint.port)
call.request("POST", "/save", '{"id":"uid-1"}')
assert json.loads(call.getresponse().read())["state"] == "accepted"
session.step(4)
session.close()
folder = reprieve.CheckpointFolder(sys.argv[1])
folder.write(4, lambda path: reprieve.atomic_write(path / "state", "4"))
outside = {name.partition(".")[0] for name in sys.modules} - {"reprieve_client"}
print(json.dumps({"saved": saved, "latest": folder.latest().step, "modules": sorted(outside)}))
"""


def python(version: str) -> str | None:
    """Return an interpreter of a version, as `python3.9` or in pyenv's folder."""
    found = shutil.which(f"python{version}")
    if found and not subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode:
        return found
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    return next((str(each) for each in versions.glob(f"{version}.*/bin/python")), None)


def test_the_oldest_python_runs_the_library(tmp_path: Path) -> None:
    interpreter = python(OLDEST)
    if interpreter is None:
        pytest.skip(f"there is no Python {OLDEST} on this machine")
    _play(interpreter, tmp_path)


def test_the_library_imports_the_standard_library_only(tmp_path: Path) -> None:
    modules = set(_play(sys.executable, tmp_path)["modules"])
    assert modules - sys.stdlib_module_names - {"__main__"} <= _of_site_packages()
    assert PACKAGE["dependencies"] == []


def _of_site_packages() -> set[str]:
    """Return what the interpreter itself imports at its start, such as editable installations."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def _play(interpreter: str, folder: Path) -> dict[str, list[str]]:
    environment = {"PYTHONPATH": str(CLIENT), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [interpreter, "-W", "error", "-c", PROGRAM, str(folder)],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["saved"], told["latest"]) == ([4], 4)
    assert isinstance(told, dict)
    return told
