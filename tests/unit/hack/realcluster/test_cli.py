"""An error of a command, or of the machine, is one sentence and an exit status."""

from pathlib import Path

import pytest

from realcluster import cli


def test_a_home_that_is_not_writable_is_reported_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    for variable in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "file"))

    assert cli.main(["up", "--name", "nowhere"]) == 1
    assert "Not a directory" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"), [("x", "x is not a whole number"), ("-1", "-1 is below zero")]
)
def test_an_invalid_number_of_nodes_is_refused_in_plain_words(
    text: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["up", f"--kwok-nodes={text}"])
    assert says in capsys.readouterr().err
