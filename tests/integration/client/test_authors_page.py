"""What docs/authors.md shows works: each snippet runs as it is written, but for its folders.

Those for frameworks run in `test_frameworks.py`; here, they are read by the compiler.
"""

import json
import sys
from pathlib import Path

import pytest
import yaml

import reprieve_client as reprieve
from reprieve_testing import check_command, manifests, page_blocks
from reprieve_testing.servers.hinted_program import running

UNFINISHED = 143
PAGE = "docs/authors.md"


def snippet(kind: str, part: str, folder: Path) -> str:
    """Return the one snippet that has this part, with folders of the test."""
    (found,) = [text for text in page_blocks.blocks(PAGE, kind) if part in text]
    here = found.replace("/checkpoints/run-1", f"{folder}/run-1")
    return here.replace("/run/reprieve/request", f"{folder}/request")


def test_the_pod_template_breaks_no_rule(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    (text,) = page_blocks.blocks(PAGE, "yaml")
    file.write_text(text)
    checked = check_command.run(file, "--strict")
    assert (checked.status, checked.lines) == (0, [])


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(page_blocks.blocks(PAGE, "yaml")[0], id="page"),
        *(
            pytest.param((manifests.EXAMPLES / name / "job.yaml").read_text(), id=name)
            for name in ("client", "launcher")
        ),
    ],
)
def test_a_pod_of_the_template_without_its_agent_is_warned_of(
    text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    template = yaml.safe_load(text)["spec"]["template"]
    for name, hint in template["metadata"]["annotations"].items():
        for variable in template["spec"]["containers"][0]["env"]:
            source = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            if source == f"metadata.annotations['{name}']":
                monkeypatch.setenv(variable["name"], hint.replace("/run/reprieve", "/missing"))
    reprieve.checkpointing(lambda _: None).open().close()
    assert "needs the agent, but its folder /missing is missing" in caplog.text


@pytest.mark.parametrize("text", page_blocks.blocks(PAGE, "python"))
def test_every_program_is_python(text: str) -> None:
    compile(text, PAGE, "exec")


def test_the_plain_program_saves_goes_on_and_is_resumed(tmp_path: Path) -> None:
    text = snippet("python", '"sum": 0', tmp_path)
    assert "# your step" in text
    slow = text.replace("# your step", "; __import__('time').sleep(0.01)")
    with running(tmp_path, sys.executable, "-c", slow) as first:
        saved = first.ask("uid-1")
        path = Path(saved["path"])
        step = saved["step"]
        assert json.loads((path / "state.json").read_text()) == {"sum": step * (step - 1) // 2}
        assert first.end() == UNFINISHED
    with running(tmp_path, sys.executable, "-c", text) as second:
        assert second.wait() == 0


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "script.sh"
    file.write_text(snippet("sh", 'while [ "$step"', tmp_path).replace("sleep 0.1", "sleep 0.01"))
    return file


def test_the_shell_script_saves_once_goes_on_and_is_resumed(tmp_path: Path, script: Path) -> None:
    with running(tmp_path, "sh", script) as first:
        saved = first.ask("uid-1")
        assert Path(saved["path"]).read_text() == f"{saved['step']}\n"
        first.write_request("uid-1", attempt=2)
        first.write_request("uid-2", cancelled=True)
        later = first.ask("uid-3")
        assert later["step"] > saved["step"]
        assert first.end() == UNFINISHED
    script.write_text(script.read_text().replace("-lt 1000", f"-lt {later['step'] + 1}"))
    with running(tmp_path, "sh", script) as second:
        assert second.wait() == 0


SAVES_AND_GOES_ON = """
n=0
trap 'n=$((n + 1)); echo $n > checkpoint.new; mv checkpoint.new checkpoint' USR1
trap 'exit 1' TERM
while :; do sleep 0.05; done
"""
SAVES_AND_ENDS = """
echo started
trap 'echo 1 > checkpoint.new; mv checkpoint.new checkpoint; sleep 0.3; echo ended; exit 0' USR1
while :; do sleep 0.05; done
"""


def wrapped(tmp_path: Path, program: str) -> list[str | Path]:
    wrapper = tmp_path / "on-usr1.sh"
    text = snippet("sh", "on-usr1.sh", tmp_path).replace("sleep 1", "sleep 0.05")
    text = text.replace("-lt 600", "-lt 3")
    # The test must know when the wrapper has looked at the request.
    wrapper.write_text(text.replace("    said=\n", "    echo looked\n    said=\n"))
    (tmp_path / "program.sh").write_text(program)
    return ["sh", wrapper, tmp_path / "checkpoint", "sh", tmp_path / "program.sh"]


def test_a_program_of_slurm_that_goes_on_after_its_save(tmp_path: Path) -> None:
    with running(tmp_path, *wrapped(tmp_path, SAVES_AND_GOES_ON)) as program:
        for number in (1, 2):
            saved = program.ask(f"uid-{number}")
            assert Path(saved["path"]).read_text() == f"{number}\n"
        assert program.end() == UNFINISHED


def test_a_program_of_slurm_that_ends_after_its_save_is_no_finished_job(tmp_path: Path) -> None:
    with running(tmp_path, *wrapped(tmp_path, SAVES_AND_ENDS)) as program:
        program.ask("uid-1")
        program.wait_for(lambda: program.lines("ended"))
        program.write_request("uid-1", cancelled=True)
        program.wait_for(lambda: len(program.lines("started")) == 2)
        program.ask("uid-2")
        program.wait_for(lambda: len(program.lines("ended")) == 2)
        assert program.end() == UNFINISHED


def test_a_program_of_slurm_is_asked_once_it_handles_the_signal(tmp_path: Path) -> None:
    text = f"while [ ! -f ready ]; do sleep 0.05; done; {SAVES_AND_GOES_ON}"
    with running(tmp_path, *wrapped(tmp_path, text)) as program:
        program.write_request("uid-1")
        program.wait_for(lambda: program.log.count("looked") > 3)
        assert program.answer() == {}
        (tmp_path / "ready").touch()
        program.wait_for(lambda: program.answer().get("state") == "saved")
        assert program.end() == UNFINISHED


def test_a_program_of_slurm_that_ended_for_a_request_goes_on_long_after_its_deadline(
    tmp_path: Path,
) -> None:
    text = "[ ! -f finish ] || exit 0" + SAVES_AND_ENDS
    with running(tmp_path, *wrapped(tmp_path, text)) as program:
        program.write_request("uid-1", deadline="2999-11-21T12:10:00Z")
        program.wait_for(lambda: program.lines("ended"))
        looks = program.log.count("looked")
        program.wait_for(lambda: program.log.count("looked") > looks + 10)
        assert len(program.lines("started")) == 1
        program.write_request("uid-1", deadline="2026-01-01T12:10:00Z")
        program.wait_for(lambda: len(program.lines("started")) == 2)
        looks = program.log.count("looked")
        program.wait_for(lambda: program.log.count("looked") > looks + 5)
        assert len(program.lines("ended")) == 1, "the same id is the same request"
        (tmp_path / "finish").touch()
        program.ask("uid-2")
        program.write_request("uid-2", cancelled=True)
        assert program.wait() == 0


def test_a_program_of_slurm_that_finishes_after_a_cancelled_request_is_finished(
    tmp_path: Path,
) -> None:
    text = SAVES_AND_GOES_ON.replace("while :", "while [ ! -f finish ]")
    with running(tmp_path, *wrapped(tmp_path, text)) as program:
        program.ask("uid-1")
        program.write_request("uid-1", cancelled=True)
        looks = program.log.count("looked")
        program.wait_for(lambda: program.log.count("looked") > looks + 1)
        (tmp_path / "finish").touch()
        assert program.wait() == 0


@pytest.mark.parametrize("status", [0, 3])
def test_a_program_of_slurm_that_ends_by_itself_ends_the_pod(tmp_path: Path, status: int) -> None:
    with running(tmp_path, *wrapped(tmp_path, f"sleep 0.2; exit {status}")) as program:
        assert program.wait() == status


def test_a_program_of_slurm_that_ends_without_a_save_has_not_saved(tmp_path: Path) -> None:
    crashes = "trap 'exit 4' USR1; while :; do sleep 0.05; done"
    with running(tmp_path, *wrapped(tmp_path, crashes)) as program:
        program.write_request("uid-1")
        assert program.wait() == 4
        assert program.answer()["state"] == "saving"
