"""Build pinned programs once: cached by version and by all inputs, safe to interrupt.

A build writes to a temporary name and renames it, under a lock. No partial binary is visible, and
nothing is built twice.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import threading
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from realcluster import paths
from realcluster.build_lock import build_lock
from realcluster.errors import ClusterError
from realcluster.progress import Progress

from . import pins, toolchain
from .pins import BINARIES, Binary

LAST_LINES = 30  # of a failed compiler run, shown to the user


def ensure(names: Sequence[str], progress: Progress) -> dict[str, Path]:
    """Return the path of each program in `names` (rows of `pins.BINARIES`).

    Build the missing ones.
    """
    wanted = {name: path_of(name) for name in names}
    if any(not path.exists() for path in wanted.values()):
        # Two builds at once would compile the same packages twice.
        with build_lock(paths.cache_home() / "bin/.lock", progress):
            _build_all([name for name, path in wanted.items() if not path.exists()], progress)
    _link_into(bin_directory(), wanted)
    return wanted


def path_of(name: str) -> Path:
    """Return the program's path in the cache, whether it exists or not."""
    binary = BINARIES[name]
    return paths.cache_home() / "bin" / f"{name}-{pins.version(binary)}-{key(binary)}" / name


def key(binary: Binary) -> str:
    """Return a short hash of everything that determines the program, except the compiler."""
    digest = hashlib.sha256()
    for file in (*pins.pin_files(binary.pin), *pins.own_sources(binary)):
        digest.update(file.read_bytes())
    digest.update("\0".join([*_arguments(binary), str(binary.cgo), platform.machine()]).encode())
    return digest.hexdigest()[:10]


def bin_directory() -> Path:
    """Return the directory of links to put on PATH.

    Each state of the pins has its own directory, so that branches do not collide.
    """
    keys = "".join(str(path_of(name)) for name in BINARIES)
    return paths.cache_home() / f"path-{hashlib.sha256(keys.encode()).hexdigest()[:10]}"


def link_cached() -> Path:
    """Return `bin_directory`, with a link to every cached program."""
    _link_into(
        bin_directory(), {name: path for name in BINARIES if (path := path_of(name)).exists()}
    )
    return bin_directory()


def _arguments(binary: Binary) -> list[str]:
    tags = [f"-tags={','.join(binary.tags)}"] if binary.tags else []
    flags = ["-mod=readonly", "-trimpath", "-buildvcs=false", *tags]
    return [*flags, "-ldflags", pins.link_flags(binary), binary.package]


def _link_into(directory: Path, programs: dict[str, Path]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, program in programs.items():
        link = directory / name
        if not link.exists():
            fresh = directory / f".{name}.{os.getpid()}"
            fresh.symlink_to(program)
            fresh.replace(link)


def _build_all(names: list[str], progress: Progress) -> None:
    if not names:
        return
    least = max(
        pins.go_directive(pins.pin_files(BINARIES[name].pin)[0].read_text()) for name in names
    )
    go = toolchain.find_go(least, progress)
    minutes = max(1, round(sum(BINARIES[name].seconds for name in names) / 60))
    progress.say(
        f"building {', '.join(names)} from source: about {minutes} min on two cores the first "
        f"time, then cached in {paths.cache_home() / 'bin'}"
    )
    for number, name in enumerate(names, 1):
        _build(go, name, f"[{number}/{len(names)}] {name} {pins.version(BINARIES[name])}", progress)


def _build(go: Path, name: str, title: str, progress: Progress) -> None:
    target = path_of(name)
    target.parent.mkdir(parents=True, exist_ok=True)
    for left_over in target.parent.glob(".*.part"):
        left_over.unlink()
    part = target.parent / f".{name}.part"
    binary = BINARIES[name]
    command = [str(go), "build", "-v", "-o", str(part), *_arguments(binary)]
    with progress.task(title) as task:
        compiler = Compiler(command, pins.pin_files(binary.pin)[0].parent, _environment(binary))
        try:
            while compiler.running():
                task.tick(compiler.doing)
        finally:
            compiler.stop()
        if compiler.status:
            raise ClusterError(
                f"{compiler.last_lines()}\nbuilding {name} failed; run the same command again to "
                "resume"
            )
        part.replace(target)


def _environment(binary: Binary) -> dict[str, str]:
    """Return the environment of a build: the user's own, without what would change the result."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("GOFLAGS", "GOOS", "GOARCH")
    }
    return kept | {
        "GOTOOLCHAIN": "local",
        "GOFLAGS": "",
        "GOWORK": "off",
        "CGO_ENABLED": str(int(binary.cgo)),
    }


class Compiler:
    """One `go build -v`. Its output names the packages that it compiles, and errors."""

    def __init__(self, command: list[str], cwd: Path, env: dict[str, str]) -> None:
        self._lines: deque[str] = deque(maxlen=LAST_LINES)
        self._packages = 0
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, cwd=cwd, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def doing(self) -> str:
        """The package or module that was last named."""
        return (
            f"{self._packages} packages, {self._lines[-1]}"
            if self._lines
            else "reading the module graph"
        )

    @property
    def status(self) -> int:
        """The exit status, or None while it runs."""
        return self._process.wait()

    def running(self) -> bool:
        """Wait a moment, and return whether it still runs."""
        try:
            self._process.wait(0.1)
        except subprocess.TimeoutExpired:
            return True
        return False

    def stop(self) -> None:
        """End it if it still runs (Ctrl-C).

        Go's cache keeps what it compiled, so the next run resumes.
        """
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()
        self._reader.join(2)

    def last_lines(self) -> str:
        """Return the end of the output."""
        return "\n".join(self._lines)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                text = line.rstrip()
                self._packages += not text.startswith(("go:", "#"))
                self._lines.append(text)
