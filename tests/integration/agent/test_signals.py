"""Which process of a pod gets the signal: /proc is a folder, the process is a real one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reprieve_agent.handler import CheckpointHandler
from reprieve_agent.http_message import HttpRequest
from reprieve_agent.request_files import RequestFiles
from reprieve_agent.signal_sender import SignalSender, UndeliverableError

PROGRAM = """
import signal
signal.signal(signal.SIGUSR1, lambda *_: print("signalled", flush=True))
print("ready", flush=True)
while True:
    signal.pause()
"""
FOLDER = "/run/reprieve"
VOLUME = "/var/lib/kubelet/pods/uid/volumes/kubernetes.io~empty-dir/reprieve-agent"
CATCHES_USR1 = "0000000000000200"
NOTHING = "0000000000000000"


@dataclass
class Proc:
    """A /proc file system in a folder."""

    folder: Path

    def add(
        self,
        pid: int | str,
        mount: str | None,
        *,
        parent: int = 0,
        started: int = 100,
        catches: str = CATCHES_USR1,
        blocks: str = NOTHING,
        device: str = "0:50",
        place: str = FOLDER,
        comm: str = "python3",
    ) -> None:
        """Add a process that mounts the volume; `mount` is the id in its mount namespace."""
        home = self.folder / str(pid)
        home.mkdir()
        fields = ["S", str(parent), *(["0"] * 17), str(started), "0"]
        (home / "stat").write_text(f"{pid} ({comm}) {' '.join(fields)}\n")
        rows = ["1 0 0:20 / / ro,relatime - overlay overlay ro"]
        if mount is not None:
            rows.append(f"{mount} 1 {device} {VOLUME} {place} rw - tmpfs tmpfs rw,size=1024k")
        (home / "mountinfo").write_text("\n".join(rows) + "\n")
        (home / "status").write_text(
            f"Name:\t{comm}\nSigBlk:\t{blocks}\nSigIgn:\t{NOTHING}\nSigCgt:\t{catches}\n"
        )

    def remove(self, pid: int) -> None:
        for file in (self.folder / str(pid)).iterdir():
            file.unlink()
        (self.folder / str(pid)).rmdir()

    @property
    def signaller(self) -> SignalSender:
        return SignalSender("USR1", FOLDER, self.folder)


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """The /proc of a pod with the sandbox, the agent, and a process of another container."""
    found = Proc(tmp_path / "proc")
    found.folder.mkdir()
    (found.folder / "sys").mkdir()
    found.add("self", "500")
    found.add(1, None, started=1, comm="pause")
    found.add(20, "500", started=20, comm="reprieve-agent")
    found.add(30, None, started=30, comm="sh")
    return found


@pytest.fixture
def target() -> "Iterator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def output_of(target: "subprocess.Popen[str]") -> str:
    assert target.stdout is not None
    return target.stdout.readline()


def test_the_first_process_of_the_container_gets_the_signal(
    proc: Proc, target: "subprocess.Popen[str]"
) -> None:
    proc.add(target.pid, "600", started=200, comm="a) S (b")
    proc.add(target.pid + 1, "600", started=300, comm="kubectl-exec")
    proc.add(target.pid + 2, "600", started=100, parent=target.pid, comm="worker")
    assert proc.signaller.send() == target.pid
    assert output_of(target) == "signalled\n"


def test_a_program_that_waits_for_a_blocked_signal_gets_it(
    proc: Proc, target: "subprocess.Popen[str]"
) -> None:
    proc.add(target.pid, "600", catches=NOTHING, blocks=CATCHES_USR1)
    assert proc.signaller.send() == target.pid


def test_a_program_that_does_not_handle_the_signal_is_not_signalled(
    proc: Proc, target: "subprocess.Popen[str]"
) -> None:
    proc.add(target.pid, "600", catches="0000000000004002")
    with pytest.raises(UndeliverableError, match="does not handle SIGUSR1"):
        proc.signaller.send()
    assert target.poll() is None


@pytest.mark.parametrize(
    ("others", "says"),
    [
        ([], "no running container"),
        ([(40, {"device": "0:51"})], "no running container"),
        ([(40, {"place": "/elsewhere"})], "no running container"),
        ([(40, {"parent": 1})], "no running container"),
        ([(40, {}), (41, {"mount": "601"})], "more than one running container"),
        ([(1 << 29, {})], "cannot be opened"),
    ],
    ids=[
        "no process mounts the volume",
        "another volume is mounted there",
        "the volume is mounted at another path",
        "only an orphan process mounts the volume",
        "two containers mount the volume",
        "the process has ended",
    ],
)
def test_no_process_is_signalled_if(proc: Proc, others: list[tuple[int, Any]], says: str) -> None:
    for pid, process in others:
        proc.add(pid, **{"mount": "600", **process})
    with pytest.raises(UndeliverableError, match=says):
        proc.signaller.send()


def test_without_the_volume_no_process_is_searched(proc: Proc) -> None:
    (proc.folder / "self" / "mountinfo").write_text("1 0 0:20 / / ro\nshort\n")
    with pytest.raises(UndeliverableError, match="nothing is mounted at /run/reprieve"):
        proc.signaller.send()


def test_a_process_that_ends_during_the_search_is_skipped(proc: Proc) -> None:
    (proc.folder / "40").mkdir()
    with pytest.raises(UndeliverableError, match="no running container"):
        proc.signaller.send()


def a_handler(proc: Proc, folder: Path) -> CheckpointHandler:
    return CheckpointHandler(
        RequestFiles(str(folder / "request")), proc.signaller, lambda *_, **__: None
    )


def ask(handler: CheckpointHandler, attempt: int = 1) -> tuple[int, Any]:
    body = json.dumps({"id": "uid-1", "attempt": attempt}).encode()
    response = handler.handle(HttpRequest("POST", body))
    return response.status.value, json.loads(response.body)


def state(handler: CheckpointHandler) -> str:
    return str(json.loads(handler.handle(HttpRequest("GET", b"")).body)["state"])


def test_the_request_is_there_before_the_signal_and_each_attempt_is_one_signal(
    proc: Proc, target: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    proc.add(target.pid, "600")
    handler = a_handler(proc, tmp_path)
    assert (
        ask(handler)
        == ask(handler)
        == ask(a_handler(proc, tmp_path))
        == (200, {"state": "delivered", "id": "uid-1"})
    )
    assert json.loads((tmp_path / "request").read_text())["id"] == "uid-1"
    assert output_of(target) == "signalled\n"
    assert ask(handler, 2)[0] == 200
    assert output_of(target) == "signalled\n"
    target.kill()
    assert target.communicate()[0] == ""


def test_an_undelivered_signal_is_reported_and_retried(
    proc: Proc, target: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    handler = a_handler(proc, tmp_path)
    assert ask(handler) == (
        503,
        {"message": "no running container has the volume at /run/reprieve"},
    )
    assert state(handler) == state(a_handler(proc, tmp_path)) == "idle"
    proc.add(target.pid, "600")
    assert ask(handler)[0] == 200
    assert output_of(target) == "signalled\n"
    assert state(a_handler(proc, tmp_path)) == "delivered"


def test_an_agent_that_was_killed_before_the_signal_has_no_delivery(
    proc: Proc, target: "subprocess.Popen[str]", tmp_path: Path
) -> None:
    proc.add(target.pid, "600")
    (tmp_path / "request").write_text('{"id":"uid-1","attempt":2}')
    (tmp_path / ".request.delivered").write_text('["uid-1", 1]\n')
    handler = a_handler(proc, tmp_path)
    assert state(handler) == "idle"
    assert ask(handler, 2)[0] == 200
    assert output_of(target) == "signalled\n"


TAKEN_BACK = b'{"version":1,"id":"uid-1","cancelled":true}'


def kill_before_the_signal(proc: Proc, folder: Path) -> CheckpointHandler:
    """Return the agent after one that was killed between the file and the signal."""
    (folder / "request").write_text('{"id":"uid-1","attempt":1}')
    return a_handler(proc, folder)


def fail_to_signal(proc: Proc, folder: Path) -> CheckpointHandler:
    """Return an agent whose signal was not delivered."""
    handler = a_handler(proc, folder)
    assert ask(handler)[0] == 503
    return handler


UNSIGNALLED = pytest.mark.parametrize("tell", [kill_before_the_signal, fail_to_signal])


@UNSIGNALLED
@pytest.mark.parametrize(
    "says", [{"state": "saved", "id": "uid-1", "step": 7}, {"state": "saved", "step": 7}]
)
def test_an_answer_counts_even_if_no_signal_was_sent(
    proc: Proc,
    target: "subprocess.Popen[str]",
    tmp_path: Path,
    tell: Callable[[Proc, Path], CheckpointHandler],
    says: Any,
) -> None:
    handler = tell(proc, tmp_path)
    (tmp_path / "request.answer").write_text(json.dumps(says))
    want = {"state": "saved", "id": "uid-1", "step": 7}
    assert json.loads(handler.handle(HttpRequest("GET", b"")).body) == want
    assert ask(handler)[0] == 503
    assert json.loads(handler.handle(HttpRequest("GET", b"")).body) == want
    proc.add(target.pid, "600")
    assert ask(handler) == ask(handler, 2) == (200, want)


@UNSIGNALLED
@pytest.mark.parametrize("says", ['{"state":"saved","id":"uid-0"}', "[]"])
def test_without_a_valid_answer_the_request_is_still_signalled(
    proc: Proc, tmp_path: Path, tell: Callable[[Proc, Path], CheckpointHandler], says: str
) -> None:
    handler = tell(proc, tmp_path)
    answer = tmp_path / "request.answer"
    answer.write_text(says)
    os.utime(answer, (0, 0))
    assert state(handler) == "idle"


@UNSIGNALLED
def test_a_request_without_a_signal_is_cancelled_in_its_file(
    proc: Proc,
    target: "subprocess.Popen[str]",
    tmp_path: Path,
    tell: Callable[[Proc, Path], CheckpointHandler],
) -> None:
    handler = tell(proc, tmp_path)
    assert handler.handle(HttpRequest("DELETE", TAKEN_BACK)).status == 200
    assert json.loads((tmp_path / "request").read_text()) == json.loads(TAKEN_BACK)
    (tmp_path / "request.answer").write_text('{"state":"saved","id":"uid-1"}')
    assert state(handler) == state(a_handler(proc, tmp_path)) == "idle"
    proc.add(target.pid, "600")
    next_one = handler.handle(HttpRequest("POST", b'{"id":"uid-2","attempt":1}'))
    assert json.loads(next_one.body) == {"state": "delivered", "id": "uid-2"}
    assert not (tmp_path / "request.answer").exists()
