"""The README's transcripts are run: each `$ command` of a `console` block, on a real cluster, must print what stands there.

What differs from run to run (ages, times, the random part of a name) is compared by its shape.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainjob import world
from mainjob.world import World
from realcluster import build, node
from realcluster.progress import Progress
from reprieve_testing.cluster import cleared

ROOT = Path(__file__).parents[3]
CLUSTER = "reprieve-readme"
COMMAND_SECONDS = 120
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARYING = (
    (re.compile(r"\btraining-[a-z0-9]{5}\b"), "training-xxxxx"),
    (re.compile(r"\b\d\d:\d\d:\d\dZ"), "TIME"),
    (re.compile(r"\bstep \d+\b"), "step 0"),
    (re.compile(r"^\d+ objects checked", re.MULTILINE), "0 objects checked"),
    (re.compile(r" +"), " "),
)

pytestmark = [pytest.mark.cluster, pytest.mark.real_node]


def transcripts() -> list[list[tuple[str, str]]]:
    """Return, for each block, its commands with what they print."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return [[split(part) for part in block[2:].split("\n$ ")] for block in BLOCK.findall(text)]


def split(part: str) -> tuple[str, str]:
    command, _, output = part.partition("\n")
    return command, output


def shape(output: str) -> list[str]:
    for pattern, stand_in in VARYING:
        output = pattern.sub(stand_in, output)
    return [line.strip() for line in output.splitlines() if line.strip()]


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    if obstacle := node.can_run():
        pytest.skip(f"no real node can run here: {obstacle}")
    with cleared(CLUSTER):
        yield world.bring_up(CLUSTER, Progress())


def test_the_readme_shows_transcripts() -> None:
    assert len(transcripts()) == 3


def test_each_command_prints_what_the_readme_says(running: World) -> None:
    path = os.pathsep.join((str(build.bin_directory()), str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(running.kubectl.kubeconfig)}
    for command, expected in (pair for block in transcripts() for pair in block):
        done = subprocess.run(
            command, shell=True, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, timeout=COMMAND_SECONDS, check=False,
        )  # fmt: skip
        assert shape(done.stdout) == shape(expected), command
