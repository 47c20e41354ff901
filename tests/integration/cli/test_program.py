"""`reprieve` as a program: its exit status, its pipes, and its output on a terminal."""

import asyncio
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reprieve_cli.main import main
from reprieve_policy import keys
from reprieve_testing.check_command import pod, write
from reprieve_testing.servers.stub_api import stub_api

PROGRAM = Path(sys.executable).with_name("reprieve")
PLUGIN = Path(sys.executable).with_name("kubectl-reprieve")
BAD = pod(labels='{reprieve.dev/preemption-class: "11"}')
SECONDS = 60
RED = "\x1b[31m"


def run(
    *words: object, program: Path = PROGRAM, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *words], input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False
    )  # fmt: skip


def on_a_terminal(*words: object, **environment: str) -> str:
    """Run the program with a terminal as its standard output; return the output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [PROGRAM, *words], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
        env={**os.environ, "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while chunk := _read(ours):
        shown += chunk
    os.close(ours)
    assert process.wait(SECONDS) == 1
    return shown.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # The other end was closed.
        return b""


@pytest.mark.parametrize("program", [PROGRAM, PLUGIN])
def test_both_programs_check_standard_input(program: Path) -> None:
    done = run("check", "-", program=program, stdin=BAD)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("stdin:6: error: Pod team/p: ")
    assert "\x1b" not in done.stdout


def test_the_usage_of_the_plugin_names_kubectl(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [str(PLUGIN), "check"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert capsys.readouterr().err.startswith("Usage: kubectl reprieve check ")


@pytest.mark.parametrize(
    "words", [("check",), ("check", "-o", "xml", "-"), ("chek",), ("check", "--nonsense")]
)
def test_bad_usage_prints_the_usage_and_exits_with_2(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["reprieve", *words])
    with pytest.raises(SystemExit) as end:
        main()
    errors = capsys.readouterr().err
    assert end.value.code == 2
    assert "Usage: reprieve" in errors
    assert "Traceback" not in errors


def test_colours_appear_on_a_terminal_unless_no_color_is_set(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", BAD)
    assert RED in on_a_terminal("check", path)
    assert RED not in on_a_terminal("check", path, NO_COLOR="1")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Restore the default handling of SIGINT.

    Without this, programs of tests that run in the background of a shell would ignore the signal.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_check_does_not_look_like_one_that_found_a_violation() -> None:
    process = subprocess.Popen(
        [PROGRAM, "check", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin is not None
        # More than a pipe holds: when all is written, the program is reading its input, so its
        # signal handling is installed.
        process.stdin.write("# comment\n" * 100_000)
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in errors


CLOSED_STREAMS = {
    "standard input is closed": (
        '"$0" check - <&-',
        (2, "stdin: unreadable: standard input is closed\n"),
    ),
    "standard error is closed": (
        '"$0" check "$1" 2>&-',
        (1, "a.yaml:6: error: Pod team/p: metadata.labels[reprieve.dev/preemption-class]"),
    ),
    "standard output is full": (
        '"$0" check "$1" 2>&1 >/dev/full',
        (74, "Error: cannot write the output: no space left on device\n"),
    ),
    "both outputs are full": ('"$0" check "$1" 2>/dev/full >/dev/full', (74, "")),
}


@pytest.mark.parametrize("sentence", CLOSED_STREAMS)
def test_a_stream_that_cannot_be_used_causes_one_message(tmp_path: Path, sentence: str) -> None:
    command, (status, text) = CLOSED_STREAMS[sentence]
    write(tmp_path, "a.yaml", BAD)
    done = subprocess.run(
        ["/bin/sh", "-c", command, PROGRAM, "a.yaml"],
        capture_output=True, text=True, timeout=SECONDS, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout[: len(text)]) == (status, text)
    assert "Traceback" not in done.stdout + done.stderr


def test_a_closed_output_pipe_causes_no_error_message(tmp_path: Path) -> None:
    path = write(tmp_path, "a.yaml", f"{BAD}---\n" * 2000)
    with subprocess.Popen(
        [PROGRAM, "check", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        errors = process.stderr.read()
    assert errors == b""


OF_A_CLUSTER = (("audit",), ("status",), ("watch", "--once"))
DEFAULT = "/api/v1/namespaces/default/pods"
VICTIM = {"name": "p", "namespace": "default", "labels": {keys.SOFT_EVICTION: "hinted"}}


async def with_output(folder: Path, output: int, *words: str) -> tuple[int | None, str]:
    """Run a command on a stub of a cluster; return its exit status and the rest of its errors."""
    async with stub_api(folder, collections={DEFAULT: {"p": {"metadata": VICTIM}}}) as (stub, _):
        stub.lists_released.set()
        async with asyncio.timeout(SECONDS):
            process = await asyncio.create_subprocess_exec(
                PROGRAM, *words, "--kubeconfig", folder / "kubeconfig",
                stdout=output, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            _, errors = await process.communicate()
    lines = errors.decode().splitlines()
    # The stub serves almost no kinds, which `audit` says.
    return process.returncode, "\n".join(each for each in lines if "unreadable: /" not in each)


@pytest.mark.parametrize("words", OF_A_CLUSTER, ids=" ".join)
async def test_a_full_disk_has_one_message_and_status_for_commands_of_a_cluster(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        status, errors = await with_output(tmp_path, full, *words)
    finally:
        os.close(full)
    assert (status, errors) == (74, "Error: cannot write the output: no space left on device")


@pytest.mark.parametrize("words", OF_A_CLUSTER, ids=" ".join)
async def test_a_closed_output_pipe_causes_no_error_message_of_commands_of_a_cluster(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert await with_output(tmp_path, writer, *words) == (1, "")
    finally:
        os.close(writer)
