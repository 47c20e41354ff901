"""What a chapter acts with: a namespace, a folder, and commands that are shown as they run."""

import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from realcluster import install
from realcluster.client.kubectl import Done, Kubectl, shown

from .installation import Installation
from .narrator import Narrator
from .promise import BrokenPromiseError, shortened

T = TypeVar("T")


@dataclass(frozen=True)
class Background:
    """The growing output of a command, or of another program, while the chapter goes on."""

    command: str
    output: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def text(self) -> str:
        """Return what it has written so far."""
        return self.output.read_text(errors="replace")

    def stop(self) -> None:
        """End the command."""
        if self.process is None:
            return
        self.process.terminate()
        self.process.wait(10)


class Session:
    """One chapter's namespace and folder. Each command that is shown is the one that ran."""

    def __init__(self, installation: Installation, narrator: Narrator, namespace: str) -> None:
        self.installation = installation
        self.narrator = narrator
        self.namespace = namespace
        self.began_at = datetime.now(UTC)
        self._folder = installation.home / "demo" / namespace
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        # Commands name the tree's own files by short names, which also work from the tree's root.
        (self._folder / install.MANIFESTS.name).symlink_to(install.MANIFESTS)
        self.quiet: Kubectl = replace(installation.kubectl, folder=self._folder)
        """kubectl whose commands are not shown: the chapter uses it for its own checks."""

    def make_namespace(self) -> None:
        """Create the chapter's namespace; remove an existing one first."""
        self.installation.make_namespace(self.namespace)

    def write(self, name: str, text: str) -> str:
        """Write a manifest into the chapter's folder, show it, and return its name."""
        (self._folder / name).write_text(text)
        self.narrator.show_file(name, text)
        return name

    def example(self, name: str) -> str:
        """Show one of the tree's examples and return its name."""
        path = f"{install.MANIFESTS.name}/examples/{name}"
        self.narrator.show_file(path, (self._folder / path).read_text())
        return path

    def run(self, *words: object, stdin: str | None = None) -> Done:
        """Run a command that must succeed, and show it."""
        done = self.attempt(*words, stdin=stdin)
        if done.status:
            raise BrokenPromiseError(f"{done.command} failed: {shortened(done.output)}")
        return done

    def refused(self, *words: object, only: str = "") -> Done:
        """Run a command that must be refused, and show it."""
        done = self.attempt(*words, only=only)
        if not done.status:
            raise BrokenPromiseError(f"{done.command} was not refused")
        return done

    def attempt(self, *words: object, stdin: str | None = None, only: str = "") -> Done:
        """Run a command, whatever its status, and show it.

        With `only`, only the lines that contain it.
        """
        done = self.quiet.run(*words, stdin=stdin)
        if only:
            lines = "\n".join(line for line in done.output.splitlines() if only in line)
            self.narrator.show(f"{done.command} 2>&1 | grep {shlex.quote(only)}", lines)
        else:
            self.narrator.show(done.command, done.output)
        return done

    def wait(self, what: str, condition: Callable[[], T | None], seconds: float = 60) -> T:
        """Wait for a condition of the cluster; show the wait if it takes long."""
        return self.narrator.wait(what, seconds, condition)

    @contextmanager
    def watching(self, *words: object) -> Iterator[Background]:
        """Run a command in the background for the block; `show_watched` shows its output.

        A watch (`-w`) first lists what is there. The block begins once it has, so that it misses
        nothing of what the block does.
        """
        command = [str(word) for word in words]
        output = self._folder / f"watch-{len(list(self._folder.glob('watch-*')))}.txt"
        background = Background(shown(command), output, self.quiet.start(*command, output=output))
        try:
            if "-w" in command:
                self.wait("first line of the watch", lambda: background.text or None)
            yield background
        finally:
            background.stop()

    def file(self, path: Path) -> Background:
        """Return a file that another program writes, as if it were a command's output."""
        return Background(f"tail -f {path}", path)

    def show_watched(self, watched: Background) -> None:
        """Show what a background command wrote while it ran."""
        self.narrator.show(
            f"{watched.command}    (in the background since before the mark)", watched.text
        )
