"""Commands print through `output.terminal` only, which escapes control characters."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import reprieve_cli

PACKAGE = Path(reprieve_cli.__file__).parent
FILES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))
PRINTING = {
    "Console",
    "Live",
    "confirm",
    "dump",
    "dumps",
    "echo_via_pager",
    "print",
    "print_exc",
    "print_exception",
    "print_json",
    "prompt",
    "secho",
    "write",
    "writelines",
}
"""The last parts of the names of functions that print, or write JSON that is printed."""
EXCEPTIONS: Mapping[str, set[str]] = {
    "output/terminal.py": {"click.echo", "json.dumps"},
    # Their texts are constants and numbers.
    "output/progress.py": {"Console"},
    "commands/cleanup.py": {"Console"},
    "commands/reclaim.py": {"click.confirm"},
    # `rich` prints the table (`unit/cli/test_watch_table.py`), and the page with escaped lines.
    "commands/watch.py": {"Console", "Live"},
    # A format of `check`, whose parts are printed by `echo_part`.
    "commands/check.py": {"writer.write"},
    # A YAML document of the policy's settings, in which YAML escapes control characters.
    "commands/render.py": {"output.write"},
}


def printing_calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name == "click.echo" or name.rpartition(".")[2] in PRINTING:
                yield name


@pytest.mark.parametrize("file", FILES)
def test_a_module_prints_only_by_the_functions_that_escape_control_characters(file: str) -> None:
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    assert set(printing_calls(tree)) == EXCEPTIONS.get(file, set())


def test_every_exception_is_a_module() -> None:
    assert set(EXCEPTIONS) <= set(FILES)


def test_a_call_that_prints_is_found() -> None:
    code = "click.echo(a)\nprint(b)\nconsole.print(c)\nsys.stdout.write(d)\necho(e)"
    assert list(printing_calls(ast.parse(code))) == [
        "click.echo",
        "print",
        "console.print",
        "sys.stdout.write",
    ]
