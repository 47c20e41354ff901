"""Each command on a page exists: subcommands and options of `reprieve`, make targets, folders."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from reprieve_cli.main import reprieve
from reprieve_testing import manifests

PAGES = [
    *(
        manifests.ROOT / page
        for page in ("README.md", "CONTRIBUTING.md", "manifests/README.md", "tests/README.md")
    ),
    *sorted((manifests.ROOT / "docs").glob("**/*.md")),
]
MAKEFILE = (manifests.ROOT / "Makefile").read_text(encoding="utf-8")
_BLOCK = re.compile(r"^ *```[^`\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(
    r"`((?:kubectl )?reprieve [^`]+|make [a-z-]+[^`]*|kubectl (?:apply|delete) [^`]+)`"
)


def commands(page: Path) -> Iterator[list[str]]:
    """Yield the words of each command on a page."""
    text = page.read_text(encoding="utf-8")
    lines = [
        line for block in _BLOCK.findall(text) for line in block.splitlines()
    ] + _INLINE.findall(text)
    for line in lines:
        for part in line.strip().removeprefix("$ ").split(" | "):
            if re.match(r"(kubectl|reprieve|make) ", part):
                yield [word.strip("[]") for word in shlex.split(part, comments=True)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(manifests.ROOT)))
def test_each_command_that_a_page_shows_exists(page: Path) -> None:
    for words in commands(page):
        if words[0] == "make":
            # `make bench-…` means all targets with this prefix.
            target = re.escape(words[1]).replace("…", "[a-z-]+")
            assert re.search(f"^{target}:", MAKEFILE, re.MULTILINE), words
        elif words[:2] == ["kubectl", "reprieve"]:
            _assert_exists(words[2:])
        elif words[0] == "reprieve":
            _assert_exists(words[1:])
        elif words[1] in ("apply", "delete"):
            files = [word for word in words if word.startswith("manifests/")]
            assert all((manifests.ROOT / file).exists() for file in files), words


def _assert_exists(words: list[str]) -> None:
    """Fail where `reprieve` has no such subcommand, or that has no such option."""
    group: click.Command = reprieve
    while isinstance(group, click.Group) and words:
        found = group.get_command(click.Context(group), words[0])
        assert found is not None, words
        group, words = found, words[1:]
    options = {name for parameter in group.params for name in parameter.opts} | {"--help", "-h"}
    assert {
        word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)
    } <= options, words


def test_heavy_tests_are_left_out_by_test_fast_alone_and_not_in_the_public_ci() -> None:
    lines = MAKEFILE.splitlines()
    (recipe,) = [number for number, line in enumerate(lines) if "not heavy" in line]
    assert lines[recipe - 1].startswith("test-fast:")
    for workflow in ("ci.yaml", "release.yaml"):
        text = (manifests.ROOT / ".github" / "workflows" / workflow).read_text(encoding="utf-8")
        assert text.count("test-fast") == text.count("test-fast HEAVY=1") == 1
