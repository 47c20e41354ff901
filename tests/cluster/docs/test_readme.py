"""The commands of the README and of docs/getting-started.md run on a real cluster.

Each `$ command` of a `console` block must print what is shown. Each line of an `sh` block must end
with 0. What differs from run to run (ages, times, the random part of a name) is compared by its
shape.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mainjob import installation
from mainjob.installation import Installation
from realcluster.binaries import build
from realcluster.progress import Progress
from realcluster.real_nodes import node
from reprieve_testing.cluster.handle import cleared

ROOT = Path(__file__).parents[3]
PAGES = ("README.md", "docs/getting-started.md")
CLUSTER = "reprieve-readme"
COMMAND_SECONDS = 120
READING = ("kubectl get ", "kubectl logs ")
READ_SECONDS = 60
BLOCK = re.compile(r"^```(console|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
KUBECTL_LOG = re.compile(r"^[IWE]\d{4} \d\d:\d\d:\d\d\.\d+ .*\n", re.MULTILINE)
"""A line of kubectl's own log, such as that the watch of `kubectl wait` was closed."""
VARYING = (
    (re.compile(r"\btraining-[a-z0-9]{5}\b"), "training-xxxxx"),
    (re.compile(r"\b\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\bstep \d+\b"), "step 0"),
    (re.compile(r"^\d+ objects checked", re.MULTILINE), "0 objects checked"),
    (re.compile(r" +"), " "),
)

pytestmark = [pytest.mark.cluster, pytest.mark.real_node]


class Command(NamedTuple):
    """A command that a page shows, and what it prints; `None`: it is not shown."""

    line: str
    output: str | None


def transcripts(page: str) -> list[list[Command]]:
    """Return, for each `console` block of a page, its commands with what they print."""
    blocks = [text for kind, text in _blocks(page) if kind == "console"]
    return [[_split(part) for part in block[2:].split("\n$ ")] for block in blocks]


def bare_commands(page: str) -> list[Command]:
    """Return each line of a page's `sh` blocks."""
    lines = [line for kind, text in _blocks(page) if kind == "sh" for line in text.splitlines()]
    return [Command(line, None) for line in lines if line]


def shape(output: str) -> list[str]:
    """Return the lines of an output, without what differs from run to run."""
    for pattern, stand_in in VARYING:
        output = pattern.sub(stand_in, output)
    return [line.strip() for line in output.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def running() -> Iterator[Installation]:
    if obstacle := node.can_run():
        pytest.skip(f"no real node can run here: {obstacle}")
    with cleared(CLUSTER):
        started = installation.bring_up(CLUSTER, Progress())
        # The README shows what an admin does in a namespace of some team's.
        started.make_namespace("team")
        yield started


def test_the_pages_show_commands() -> None:
    assert [len(transcripts(page)) for page in PAGES] == [1, 2]
    assert [len(bare_commands(page)) for page in PAGES] == [5, 0]


@pytest.mark.parametrize("page", PAGES)
def test_each_command_prints_what_the_page_says(running: Installation, page: str) -> None:
    commands = [command for block in transcripts(page) for command in block]
    for command in (*commands, *bare_commands(page)):
        done = _run(command.line, running)
        if command.output is None:
            assert done.returncode == 0, f"{command.line}\n{done.stdout}"
        else:
            printed = _read_until(command, done.stdout, running)
            assert shape(printed) == shape(command.output), command.line


def _read_until(command: Command, printed: str, running: Installation) -> str:
    """Return what a command prints; repeats one that only reads until that is what is shown.

    A container is ready before its program has printed its first line, and Events come late.
    """
    deadline = time.monotonic() + READ_SECONDS
    while command.line.startswith(READING) and time.monotonic() < deadline:
        if shape(printed) == shape(command.output or ""):
            break
        time.sleep(0.5)
        printed = _run(command.line, running).stdout
    return printed


def _blocks(page: str) -> list[tuple[str, str]]:
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def _split(part: str) -> Command:
    line, _, output = part.partition("\n")
    return Command(line, output)


def _run(command: str, running: Installation) -> "subprocess.CompletedProcess[str]":
    folders = (str(build.bin_directory()), str(Path(sys.executable).parent), os.environ["PATH"])
    path = os.pathsep.join(folders)
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(running.kubectl.kubeconfig)}
    done = subprocess.run(
        command, shell=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=COMMAND_SECONDS, check=False,
    )  # fmt: skip
    done.stdout = KUBECTL_LOG.sub("", done.stdout)
    return done
