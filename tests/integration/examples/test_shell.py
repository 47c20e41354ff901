"""The example in shell, run as in its pod: it saves once for each request, and goes on."""

from pathlib import Path

import pytest

from reprieve_testing import manifests
from reprieve_testing.servers.hinted_program import running

PROGRAM = manifests.EXAMPLES / "shell" / "train.sh"
UNFINISHED = 143


def test_a_repeated_request_is_saved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"CHECKPOINTS": str(tmp_path), "POD_NAME": "p", "STEPS": "9999"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RESUME_FROM_CHECKPOINT", raising=False)
    script = tmp_path / "train.sh"
    text = PROGRAM.read_text().replace("/run/reprieve/request", f"{tmp_path}/request")
    # The test must know when the program has looked at the request.
    looks = text.replace("    said=\n", "    echo looked\n    said=\n")
    script.write_text(looks.replace("sleep 0.2", "sleep 0.01").replace("sleep 1 ", "sleep 0.01 "))
    with running(tmp_path, "sh", script) as program:
        saved = program.ask("uid-1")
        assert Path(saved["path"]).read_text() == f"{saved['step']}\n"
        program.write_request("uid-1", attempt=2)
        count = program.log.count("looked")
        program.wait_for(lambda: program.log.count("looked") > count + 2)
        assert program.answer() == saved
        assert program.ask("uid-2")["step"] > saved["step"]
        assert len(program.lines("saved step")) == 2
        assert program.end() == UNFINISHED
