"""docs/simulate.md: each `$ command` prints exactly what follows it. Run this file to update it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from reprieve_policy.preemption.selection import STATUS_MESSAGES, DryRunStatus

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "simulate.md"
BLOCK = re.compile(r"^```console\n\$ (?P<command>.+)\n(?P<output>(?:.*\n)*?)```$", re.MULTILINE)


def commands() -> list[tuple[str, str]]:
    return [
        (match["command"], match["output"])
        for match in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))
    ]


def printed(command: str) -> str:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    # Without a kubeconfig: a dump needs no cluster.
    environment = {**os.environ, "PATH": path, "KUBECONFIG": os.devnull}
    words = ["sh", "-c", command]
    return subprocess.run(
        words,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    ).stdout


def test_the_page_has_transcripts() -> None:
    assert commands()


@pytest.mark.parametrize(("command", "output"), commands(), ids=lambda text: text[:50])
def test_each_command_prints_the_output_on_the_page(command: str, output: str) -> None:
    assert printed(command) == output


def test_every_obstacle_has_words() -> None:
    assert STATUS_MESSAGES.keys() == set(DryRunStatus)


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(
        BLOCK.sub(
            lambda match: f"```console\n$ {match['command']}\n{printed(match['command'])}```", text
        ),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
