"""Texts of clusters and files are printed without control characters."""

import json

import click
import pytest

from reprieve_cli.output import terminal

TITLE, CLEAR, C1_CSI, RIGHT_TO_LEFT = "\x1b]0;pwned\x07", "\x1b[2J", "\x9b31m", "\u202e"
HOSTILE = f"{TITLE}{CLEAR}{C1_CSI}{RIGHT_TO_LEFT}\r\n\x7f\u2028\udc80"
ESCAPED = r"\x1b]0;pwned\x07\x1b[2J\x9b31m\u202e\r\n\x7f\u2028\udc80"


@pytest.fixture(autouse=True)
def with_styles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print as on a terminal; elsewhere, click leaves out styles."""
    monkeypatch.setattr(click.utils, "should_strip_ansi", lambda *_: False)


def test_a_line_has_no_control_characters_and_no_styles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    terminal.echo(HOSTILE + click.style("red", fg="red"))
    terminal.echo(HOSTILE, err=True)
    assert capsys.readouterr() == (f"{ESCAPED}\\x1b[31mred\\x1b[0m\n", f"{ESCAPED}\n")


def test_styled_lines_keep_the_commands_styles_only(capsys: pytest.CaptureFixture[str]) -> None:
    styled = click.style("dim", dim=True) + click.style("bold red", fg="red", bold=True)
    terminal.echo_styled([styled + HOSTILE, "\x1b[7m\x1b[8m\x1b[41m\x1b[1;31m"])
    assert capsys.readouterr().out.split("\n") == [
        styled + ESCAPED,
        r"\x1b[7m\x1b[8m\x1b[41m\x1b[1;31m",
        "",
    ]


def test_a_part_keeps_its_line_breaks(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.echo_part(f"a\n{TITLE}\n")
    terminal.echo_part("b")
    assert capsys.readouterr().out == "a\n\\x1b]0;pwned\\x07\nb"


def test_json_has_no_control_characters_and_is_the_same_document() -> None:
    text = terminal.to_json({"a": HOSTILE, "é": 1})
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == {"a": HOSTILE, "é": 1}
    assert terminal.to_json({"a": 1, "b": [2, 3]}, is_compact=True) == '{"a":1,"b":[2,3]}'
