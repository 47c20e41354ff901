"""A pytest plugin for runs with several workers: each test module's `assert`s are rewritten once.

pytest rewrites `assert` in a test module at its first import, which takes a processor most of the
time of that import, and keeps the result in `__pycache__`. Each worker of pytest-xdist imports all
test modules in the same order. Without this, in a clean clone each of them would rewrite all.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

FEW = 20
"""As many modules as each worker may rewrite itself: collecting in advance takes seconds."""


def test_modules(arguments: Sequence[str], invoked_in: Path) -> Iterator[Path]:
    """Yield the test modules that the arguments of pytest name."""
    for argument in arguments:
        path = invoked_in / argument.partition("::")[0]
        yield from sorted(path.rglob("test_*.py")) if path.is_dir() else [path]


def is_rewritten(module: Path) -> bool:
    """Say whether pytest has rewritten this version of a module."""
    kept = (module.parent / "__pycache__").glob(f"{module.stem}.*-pytest-*.pyc")
    changed = module.stat().st_mtime
    return any(file.stat().st_mtime >= changed for file in kept)


def rewrite(modules: Sequence[Path], *, processes: int) -> None:
    """Collect the modules, each in one process; what is wrong with a module, its worker tells."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "--quiet",
        "-p",
        "no:cacheprovider",
    ]
    shares = [share for n in range(processes) if (share := modules[n::processes])]
    running = [
        subprocess.Popen(
            [*command, *map(str, share)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for share in shares
    ]
    for process in running:
        process.wait()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Rewrite before pytest-xdist starts the workers."""
    config = session.config
    if not getattr(config.option, "numprocesses", None) or sys.dont_write_bytecode:
        return
    named = test_modules(config.args, config.invocation_params.dir)
    new = [module for module in named if module.exists() and not is_rewritten(module)]
    if len(new) > FEW:
        os.write(1, f"rewriting {len(new)} test modules that are new or changed\n".encode())
        rewrite(new, processes=os.cpu_count() or 1)
