"""Runs kubectl with one kubeconfig, as a user would, without the user's own preferences."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from realcluster.errors import ClusterError

from .objects import NOT_PLAIN, Client

TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Done:
    """A finished command: the words, the status, the output."""

    command: str
    status: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """All output, as a terminal shows it: warnings come before the result."""
        return self.stderr + self.stdout


@dataclass(frozen=True)
class Kubectl:
    """kubectl with a kubeconfig. Words are arguments; no shell reads them."""

    program: Path
    kubeconfig: Path
    folder: Path = field(default_factory=Path.cwd)
    """The working directory: relative file names in commands start here."""
    client: Client = field(init=False, repr=False, compare=False)
    """The same credentials, without a process."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "client", Client(self.kubeconfig))

    def run(
        self, *words: object, stdin: str | None = None, seconds: float = TIMEOUT_SECONDS
    ) -> Done:
        """Run one command to its end, whatever its status."""
        command = [str(word) for word in words]
        try:
            done = subprocess.run(
                [self.program, *command],
                input=stdin,
                capture_output=True,
                text=True,
                cwd=self.folder,
                env=self.environment,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"{shown(command)} did not end within {seconds:.0f} s") from None
        return Done(shown(command), done.returncode, done.stdout, done.stderr)

    def read(self, *words: object, stdin: str | None = None) -> str:
        """Return what a command writes to standard output; raises ClusterError when it fails."""
        done = self.run(*words, stdin=stdin)
        if done.status:
            raise ClusterError(
                f"{done.output.strip()}\n{done.command} failed with status {done.status}"
            )
        return done.stdout

    def get(self, *words: object) -> Any:
        """Return the JSON of `kubectl get …`; raises ClusterError when it fails."""
        found = self.client.get([str(word) for word in words])
        return json.loads(self.read("get", *words, "-o", "json")) if found is NOT_PLAIN else found

    def find(self, *words: object) -> Any | None:
        """Return the JSON of one object, None where there is none of that name."""
        found = self.client.get([str(word) for word in words], ignore_not_found=True)
        if found is not NOT_PLAIN:
            return found
        text = self.read("get", *words, "-o", "json", "--ignore-not-found")
        return json.loads(text) if text else None

    def apply(self, *objects: Any) -> None:
        """Apply objects given as JSON."""
        if self.client.has_token():
            self.client.apply(*objects)
            return
        self.read(
            "apply",
            "-f",
            "-",
            stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}),
        )

    def start(self, *words: object, output: Path) -> subprocess.Popen[bytes]:
        """Start a command that goes on (a watch); its output goes to the file `output`.

        The caller ends it.
        """
        with output.open("wb") as file:
            return subprocess.Popen(
                [self.program, *(str(word) for word in words)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=self.environment,
            )

    @property
    def environment(self) -> Mapping[str, str]:
        """The caller's environment with this kubeconfig, without preferences for the output."""
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "KUBERC": "off"}


def shown(words: list[str]) -> str:
    """Return a command as a user would type it."""
    return shlex.join(["kubectl", *words])
