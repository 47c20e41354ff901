"""The agent's files: requests are written atomically, and any file of the workload is handled."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reprieve_agent import request_files
from reprieve_agent.handler import CheckpointHandler
from reprieve_agent.http_message import HttpRequest
from reprieve_agent.request_files import RequestFiles
from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import CheckpointRequest

ASKED = {
    "version": 1,
    "id": "uid-1",
    "attempt": 1,
    "deadline": "2026-11-21T12:10:00Z",
    "mayExtend": True,
}
DELIVERED = {"state": "delivered", "id": "uid-1"}
IDLE = {"state": "idle"}
LONG_AGO = 1_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


def a_handler(folder: Path) -> CheckpointHandler:
    return CheckpointHandler(RequestFiles(str(folder / "request")), None, lambda *_, **__: None)


def post(handler: CheckpointHandler, document: Any) -> tuple[int, Any]:
    return send(handler, "POST", document)


def send(handler: CheckpointHandler, method: str, document: Any) -> tuple[int, Any]:
    response = handler.handle(HttpRequest(method, json.dumps(document).encode()))
    return response.status.value, json.loads(response.body)


def get(handler: CheckpointHandler) -> Any:
    return json.loads(raw(handler))


def raw(handler: CheckpointHandler) -> bytes:
    response = handler.handle(HttpRequest("GET", b""))
    assert response.status == 200
    return response.body


def asked(folder: Path) -> Any:
    return json.loads((folder / "request").read_text())


def test_all_that_the_operator_writes_is_in_the_file(folder: Path) -> None:
    request = CheckpointRequest(
        eviction_id="uid-1",
        attempt=2,
        deadline=datetime(2026, 11, 21, 12, 10, tzinfo=UTC),
        reason="descheduler",
        preemption_class=4,
        may_extend=True,
    )
    handler = a_handler(folder)
    for method, text in (
        ("POST", contract.render_request(request)),
        ("DELETE", contract.render_cancelled("uid-1")),
    ):
        written = json.loads(text)
        send(handler, method, written)
        assert asked(folder) == written


def test_before_a_request_the_agent_is_idle_and_writes_nothing(folder: Path) -> None:
    assert get(a_handler(folder)) == IDLE
    assert not list(folder.iterdir())


def test_the_request_file_is_written_before_the_response(folder: Path) -> None:
    assert post(a_handler(folder), ASKED) == (200, DELIVERED)
    assert asked(folder) == ASKED
    assert (folder / "request").read_bytes().endswith(b"}\n")
    assert (folder / "request").stat().st_mode & 0o777 == 0o644
    assert [path.name for path in folder.iterdir()] == ["request"]


def test_the_workloads_answer_is_returned_unchanged(folder: Path) -> None:
    handler = a_handler(folder)
    post(handler, ASKED)
    text = '{"id": "uid-1", "state":"saved","step":4, "path":"/ckpt/4"}\n'
    (folder / "request.answer").write_text(text)
    assert raw(handler) == text.encode()
    assert post(handler, ASKED) == (200, json.loads(text))


UNNAMED: dict[str, tuple[str, Any]] = {
    "no part of an answer": ('{"state":"saving"}', {"state": "saving", "id": "uid-1"}),
    "null": ('{"state":"saving", "id":null}', {"state": "saving", "id": "uid-1"}),
    "half a surrogate pair, beside a letter that is not ASCII": (
        '{"state":"saving","message":"ä\\ud800"}',
        {"state": "saving", "message": "ä\ud800", "id": "uid-1"},
    ),
}


@pytest.mark.parametrize(("text", "want"), UNNAMED.values(), ids=UNNAMED)
def test_an_answer_without_an_id_belongs_to_the_current_request(
    folder: Path, text: str, want: Any
) -> None:
    handler = a_handler(folder)
    post(handler, ASKED)
    (folder / "request.answer").write_text(text)
    assert get(handler) == get(a_handler(folder)) == want


def test_an_answer_without_an_id_may_have_the_full_length(folder: Path) -> None:
    handler = a_handler(folder)
    post(handler, ASKED)
    text = (
        json.dumps({"state": "saving", "message": "x" * 20000})[: request_files.MAX_ANSWER - 2]
        + '"}'
    )
    (folder / "request.answer").write_text(text)
    assert raw(handler) == text.encode()


def test_a_poll_for_an_unknown_request_does_not_get_the_answer_to_another(
    folder: Path,
) -> None:
    handler = a_handler(folder)
    post(handler, ASKED)
    (folder / "request.answer").write_text('{"state":"saved","step":100}')
    found = contract.parse_answer(raw(handler), "answer")
    assert isinstance(found, contract.CheckpointAnswer)
    assert found.may_belong_to("uid-1")
    assert not found.may_belong_to("uid-2")


def test_the_same_attempt_again_is_written_once(folder: Path) -> None:
    handler = a_handler(folder)
    post(handler, ASKED)
    written_at = (folder / "request").stat().st_ino
    post(handler, ASKED)
    assert (folder / "request").stat().st_ino == written_at


def test_another_attempt_is_written_and_keeps_the_answer(folder: Path) -> None:
    handler = a_handler(folder)
    post(handler, ASKED)
    (folder / "request.answer").write_text('{"state":"saving"}')
    assert post(handler, ASKED | {"attempt": 2}) == (200, {"state": "saving", "id": "uid-1"})
    assert asked(folder)["attempt"] == 2


def test_an_answer_to_an_earlier_request_does_not_count(folder: Path) -> None:
    handler = a_handler(folder)
    post(handler, ASKED)
    (folder / "request.answer").write_text('{"state":"saved"}')
    assert post(handler, ASKED | {"id": "uid-2"}) == (200, {"state": "delivered", "id": "uid-2"})
    (folder / "request.answer").write_text('{"state":"saved","id":"uid-1"}')
    assert get(handler) == {"state": "delivered", "id": "uid-2"}


def test_a_restarted_agent_keeps_its_state(folder: Path) -> None:
    post(a_handler(folder), ASKED)
    again = a_handler(folder)
    assert get(again) == DELIVERED
    (folder / "request.answer").write_text('{"state":"saving"}')
    assert post(again, ASKED) == (200, {"state": "saving", "id": "uid-1"})


def test_a_cancelled_request_is_marked_in_its_file(folder: Path) -> None:
    handler = a_handler(folder)
    post(handler, ASKED)
    cancelled = {"version": 1, "id": "uid-1", "cancelled": True}
    assert send(handler, "DELETE", {**cancelled, "id": "uid-0"}) == (200, IDLE)
    assert asked(folder) == ASKED
    assert send(handler, "DELETE", cancelled) == (200, IDLE)
    assert asked(folder) == cancelled
    assert get(handler) == get(a_handler(folder)) == IDLE


def test_a_cancelled_request_in_the_file_is_not_current_after_a_restart(folder: Path) -> None:
    (folder / "request").write_text(json.dumps(ASKED | {"cancelled": True}))
    assert get(a_handler(folder)) == IDLE


NO_REQUESTS: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"checkpoint now",
    "no text": b"\xff\xfe",
    "a list": b"[]",
    "no id": b'{"attempt":1}',
    "a number as id": b'{"id":1,"attempt":1}',
    "an empty id": b'{"id":"","attempt":1}',
    "an id without end": b'{"attempt":1,"id":"%s"}' % (b"x" * 300),
    "no attempt": b'{"id":"uid-1"}',
    "a truth as attempt": b'{"id":"uid-1","attempt":true}',
    "attempt 0": b'{"id":"uid-1","attempt":0}',
    "nested too deeply": b"[" * 16000,
    "an unreadable number": b'{"id":"uid-1","attempt":%s}' % (b"9" * 5000),
}


@pytest.mark.parametrize("body", NO_REQUESTS.values(), ids=NO_REQUESTS)
def test_an_invalid_request_is_refused_and_not_written(folder: Path, body: bytes) -> None:
    assert a_handler(folder).handle(HttpRequest("POST", body)).status == 400
    assert not list(folder.iterdir())


DEPTHS = (*range(800, 1000), 2000, 4000, 7900)
"""Levels at which one version of Python or another reads a list, and cannot write it."""


@pytest.mark.parametrize("name", ["x", "reason"])
def test_of_a_request_only_the_texts_and_numbers_of_the_contract_are_written(
    folder: Path, name: str
) -> None:
    handler = a_handler(folder)
    for depth in DEPTHS:
        request_id = f"uid-{depth}"
        nested = "[" * depth + "]" * depth
        body = f'{{"id":"{request_id}","attempt":1,"{name}":{nested}}}'.encode()
        status = handler.handle(HttpRequest("POST", body)).status
        assert status in (200, 400)
        if status == 200:
            assert asked(folder) == {"id": request_id, "attempt": 1}


def test_an_invalid_request_file_of_the_workload_is_ignored(folder: Path) -> None:
    for text in ("{}", "[]", '{"id":1}', '{"id":"x"}', "x" * 20000):
        (folder / "request").write_text(text)
        assert get(a_handler(folder)) == IDLE


def a_link_out(folder: Path, answer: Path) -> None:
    secret = folder.parent / "secret"
    secret.write_text('{"state":"saved","path":"secret"}')
    answer.symlink_to(secret)


def a_loop(_: Path, answer: Path) -> None:
    answer.symlink_to(answer.name)


def a_folder(_: Path, answer: Path) -> None:
    answer.mkdir()


def a_pipe(_: Path, answer: Path) -> None:
    os.mkfifo(answer)


def a_device(_: Path, answer: Path) -> None:
    answer.symlink_to("/dev/zero")


def another_requests(_: Path, answer: Path) -> None:
    answer.write_text('{"state":"saved","id":"uid-0"}')


def half_a_document(_: Path, answer: Path) -> None:
    answer.write_text('{"state":"sav')


UNHEARD: list[Callable[[Path, Path], None]] = [
    a_link_out,
    a_loop,
    a_folder,
    a_pipe,
    a_device,
    another_requests,
    half_a_document,
]


@pytest.mark.parametrize("place", UNHEARD)
def test_a_file_that_is_not_an_answer_is_not_read_and_does_not_block(
    folder: Path, place: Callable[[Path, Path], None]
) -> None:
    handler = a_handler(folder)
    post(handler, ASKED)
    place(folder, folder / "request.answer")
    assert get(handler) == DELIVERED
    assert post(handler, ASKED | {"id": "uid-3"}) == (200, {"state": "delivered", "id": "uid-3"})


BROKEN = {
    "half a document that stays incomplete": '{"state":"sav',
    "a gigabyte": "x" * (request_files.MAX_ANSWER + 5),
    "a list": "[]",
    "a word": "saved",
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_an_invalid_answer_is_returned_so_that_its_author_gets_the_error(
    folder: Path, text: str
) -> None:
    handler = a_handler(folder)
    post(handler, ASKED)
    answer = folder / "request.answer"
    answer.write_text(text)
    assert get(handler) == DELIVERED
    os.utime(answer, (LONG_AGO, LONG_AGO))
    assert raw(handler) == text.encode()[: contract.MAX_ANSWER + 1]


def test_a_request_that_cannot_be_written_is_an_error_and_is_not_delivered(folder: Path) -> None:
    handler = a_handler(folder)
    (folder / "request").mkdir()
    with pytest.raises(OSError, match="directory"):
        post(handler, ASKED)
    assert get(handler) == IDLE


def test_a_link_at_the_requests_path_is_replaced_and_not_followed(folder: Path) -> None:
    elsewhere = folder.parent / "elsewhere"
    elsewhere.write_text("mine")
    for name in ("request", ".request.new"):
        (folder / name).symlink_to(elsewhere)
    post(a_handler(folder), ASKED)
    assert asked(folder) == ASKED
    assert elsewhere.read_text() == "mine"
