"""The list of commands is complete and quick to print."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from reprieve_cli import main

HEAVY = {"aiohttp", "kubernetes", "rich", "yaml", "msgspec", "asyncio", "reprieve_policy"}


def run(*words: str) -> str:
    result = CliRunner().invoke(main.reprieve, words)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version") == f"reprieve {version('reprieve')}\n"


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_lists_every_command_with_a_sentence(flag: str) -> None:
    text = run(flag)
    for name, entry in main.COMMANDS.items():
        assert f"  {name} " in text
        assert " ".join(entry.help.split()[:3]) in text


def test_every_command_can_be_imported_and_prints_its_usage() -> None:
    for name in main.COMMANDS:
        assert "Usage: " in run(name, "--help")


def test_an_unknown_command_exits_with_2() -> None:
    result = CliRunner().invoke(main.reprieve, ["chek"])
    assert result.exit_code == 2
    assert "No such command 'chek'" in result.output


def test_help_imports_no_library_of_a_command() -> None:
    script = (
        "import sys; from reprieve_cli.main import reprieve;"
        "reprieve(['--help'], standalone_mode=False);"
        "print(*sys.modules, sep='\\n', file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=_path()
    )
    assert HEAVY & set(done.stderr.split()) == set()


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("kubectl-reprieve", "kubectl reprieve"),
        ("reprieve", "reprieve"),
        ("__main__.py", "reprieve"),
    ],
)
def test_usage_names_the_program_as_it_was_called(
    file: str, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [f"/usr/local/bin/{file}", "--help"])
    with pytest.raises(SystemExit):
        main.main()
    assert capsys.readouterr().out.startswith(f"Usage: {shown} ")


def test_the_commands_are_click_commands() -> None:
    context = click.Context(main.reprieve)
    assert all(
        isinstance(main.reprieve.get_command(context, name), click.Command)
        for name in main.COMMANDS
    )


def _path() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(main.__file__).parents[1])}
