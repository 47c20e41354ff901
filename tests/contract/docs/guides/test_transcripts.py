"""Each `$ command` of these pages prints exactly what follows it, without a cluster.

Run this file to write what the commands print into the pages.
"""

import contextlib
import os
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from reprieve_cli.main import reprieve

ROOT = Path(__file__).parents[4]
DOCS = ROOT / "docs"
PAGES = (DOCS / "simulate.md", *sorted((DOCS / "cookbook").glob("*.md")))
BLOCK = re.compile(
    r"^(?P<indent> *)```console\n *\$ (?P<command>.+)\n(?P<output>(?:.*\n)*?) *```$", re.MULTILINE
)


def transcripts(page: Path) -> list[tuple[str, str]]:
    """Return each command of a page with what it should print."""
    return [
        (match["command"], re.sub(f"^{match['indent']}", "", match["output"], flags=re.MULTILINE))
        for match in BLOCK.finditer(page.read_text(encoding="utf-8"))
    ]


SHOWN = [found for page in PAGES for found in transcripts(page)]


def printed(command: str) -> str:
    """Return what a command of `reprieve` prints, in the root of the tree and without a cluster."""
    program, *words = shlex.split(command)
    assert program == "reprieve", command
    with contextlib.chdir(ROOT):
        result = CliRunner(env={"KUBECONFIG": os.devnull}).invoke(reprieve, words)
    assert isinstance(result.exception, SystemExit | None), command
    return result.output


def test_the_pages_have_transcripts() -> None:
    assert [page.name for page in PAGES if not transcripts(page)] == ["README.md"]


@pytest.mark.parametrize(("command", "output"), SHOWN, ids=[command for command, _ in SHOWN])
def test_each_command_prints_the_output_on_the_page(command: str, output: str) -> None:
    assert printed(command) == output


def _written(match: "re.Match[str]") -> str:
    indent, command = match["indent"], match["command"]
    output = re.sub(r"^(?=.)", indent, printed(command), flags=re.MULTILINE)
    return f"{indent}```console\n{indent}$ {command}\n{output}{indent}```"


def main() -> None:
    """Write what the commands print now."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(BLOCK.sub(_written, text), encoding="utf-8")


if __name__ == "__main__":
    main()
