"""Settings: precedence of flags, environment, file, defaults; all errors are reported at once."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from reprieve_runtime import settings
from reprieve_runtime.settings import setting


@dataclass(frozen=True, kw_only=True)
class Example:
    name: str = setting("x", help="a text")
    port: int = setting(8443, help="a port")
    share: float = setting(0.5, help="a share")
    is_on: bool = setting(False, help="a switch")
    names: tuple[str, ...] = setting((), help="a list")
    file: Path | None = setting(None, help="a path")


def load(argv: list[str] | None = None, **environ: str) -> Example:
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in environ.items():
            patch.setenv(variable, value)
        return settings.load(Example, program="example", description="", argv=argv or [])


def test_defaults_hold_without_other_sources() -> None:
    assert load() == Example()


def test_flags_win_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"name": "file", "port": 1, "share": 0.1, "names": ["a", "b"]}))
    loaded = load(
        ["--config", str(file), "--name", "flag"], REPRIEVE_NAME="environment", REPRIEVE_PORT="2"
    )
    assert loaded == Example(name="flag", port=2, share=0.1, names=("a", "b"))


def test_every_type_is_read_from_text() -> None:
    argv = ["--port", "1", "--share", "2", "--is-on", "Yes", "--names", "a, b,", "--file", "/x"]
    assert load(argv) == Example(port=1, share=2.0, is_on=True, names=("a", "b"), file=Path("/x"))


def test_all_errors_are_reported_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"nme": 1}')
    with pytest.raises(SystemExit) as stopped:
        load(["--config", str(file), "--port", "many", "--share", "half"], REPRIEVE_IS_ON="perhaps")
    assert stopped.value.code == 2
    *errors, of_a_boolean = capsys.readouterr().err.splitlines()
    assert errors == [
        f"example: --config {file}: unknown setting 'nme'",
        "example: --port: 'many' is not a valid integer.",
        "example: --share: 'half' is not a valid float.",
    ]
    # The end of this message, the list of accepted values, differs between versions of click.
    assert of_a_boolean.startswith("example: REPRIEVE_IS_ON: 'perhaps' is not a valid boolean.")


def test_an_invalid_value_in_the_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.json"
    file.write_text('{"port": 1.5}')
    with pytest.raises(SystemExit):
        load(["--config", str(file)])
    assert capsys.readouterr().err == "example: port in the file: '1.5' is not a valid integer.\n"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--nam", "x"], "No such option"),
        (["x"], "Got unexpected extra argument (x)"),
        (["--name"], "requires an argument"),
    ],
    ids=["an abbreviation", "an argument", "a flag without a value"],
)
def test_an_unknown_argument_ends_the_program(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        load(argv)
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith("example: ")
    assert says in error


def test_an_empty_variable_is_an_empty_value(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({"name": "file", "names": ["a"]}))
    loaded = load(["--config", str(file)], REPRIEVE_NAME="", REPRIEVE_NAMES="")
    assert loaded == Example(name="", names=())


def test_null_in_the_file_counts_as_unset(tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    names = ("name", "port", "share", "is_on", "names", "file")
    file.write_text(json.dumps(dict.fromkeys(names)))
    assert load(["--config", str(file)]) == Example()
    assert load(["--config", str(file)], REPRIEVE_FILE="/x") == Example(file=Path("/x"))


@pytest.mark.parametrize("text", ["[]", "{", None], ids=["a list", "half a file", "no file"])
def test_an_unreadable_file_ends_the_program(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "settings.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit):
        load(["--config", str(file)])


def test_help_names_flags_defaults_and_environment(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        load(["--help"])
    shown = capsys.readouterr().out
    assert "--is-on VALUE" in shown
    assert "[default: 8443]" in shown
    assert "REPRIEVE_LOG_LEVEL" in shown


@pytest.mark.parametrize("flag", ["--version", "--help", "-h"])
def test_version_and_help_end_the_program_with_status_0(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        load([flag])
    assert stopped.value.code == 0
    assert "example" in capsys.readouterr().out
