"""The client library over HTTP: it keeps the contract, as the operator reads its answers."""

import email.message
import http.client
import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime

import pytest
from yarl import URL

from reprieve_client.contract import Request, parse_request
from reprieve_client.exchange import Exchange
from reprieve_client.hints import choose
from reprieve_client.hints import http as hint_module
from reprieve_client.hints.http import HttpHint
from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.checkpoint_plan import HINT
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer, CheckpointRequest
from reprieve_policy.verdict import Violation
from reprieve_testing.cluster.handle import free_port

ADDRESS = "127.0.0.1"
REQUEST = CheckpointRequest(
    eviction_id="uid-1",
    attempt=1,
    deadline=datetime(2026, 11, 21, 12, 10, tzinfo=UTC),
    reason="node drain",
    preemption_class=4,
    may_extend=True,
)


@pytest.fixture
def exchange() -> Exchange:
    return Exchange()


@pytest.fixture
def hint(exchange: Exchange) -> Iterator[HttpHint]:
    opened = HttpHint(exchange, ADDRESS, 0, "/checkpoint")
    opened.open()
    yield opened
    opened.close()


def call(
    hint: HttpHint, method: str, body: str | None = None, path: str = "/checkpoint"
) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection(ADDRESS, hint.port, timeout=10)) as connection:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read()


def answer(hint: HttpHint, method: str = "GET", body: str | None = None) -> CheckpointAnswer:
    status, text = call(hint, method, body)
    assert status == 200
    read = contract.parse_answer(text, "answer")
    assert isinstance(read, CheckpointAnswer)
    return read


def test_without_a_request_the_answer_is_idle(hint: HttpHint) -> None:
    assert answer(hint) == CheckpointAnswer(state=AnswerState.IDLE)


def test_a_request_is_accepted_at_once_and_handed_over_whole(
    hint: HttpHint, exchange: Exchange
) -> None:
    posted = answer(hint, "POST", contract.render_request(REQUEST))
    assert posted == CheckpointAnswer(state=AnswerState.ACCEPTED, eviction_id="uid-1")
    assert exchange.pending is not None
    assert exchange.pending._asdict() == {
        "id": "uid-1",
        "attempt": 1,
        "deadline": "2026-11-21T12:10:00Z",
        "reason": "node drain",
        "preemption_class": 4,
        "may_extend": True,
        "cancelled": False,
    }


def test_the_next_attempt_of_a_request_is_the_same_request(
    hint: HttpHint, exchange: Exchange
) -> None:
    answer(hint, "POST", contract.render_request(REQUEST))
    exchange.report("saved", step=12, path="/checkpoints/step-12")
    saved = CheckpointAnswer(
        state=AnswerState.SAVED, eviction_id="uid-1", step=12, path="/checkpoints/step-12"
    )
    again = contract.render_request(REQUEST).replace('"attempt":1', '"attempt":2')
    assert answer(hint, "POST", again) == answer(hint) == saved
    assert exchange.pending is None


def test_a_cancelled_request_needs_no_save(hint: HttpHint, exchange: Exchange) -> None:
    answer(hint, "POST", contract.render_request(REQUEST))
    cancelled = answer(hint, "DELETE", contract.render_cancelled("uid-1"))
    assert cancelled.state is AnswerState.IDLE
    assert exchange.pending is None


def test_a_cancellation_of_another_request_changes_nothing(
    hint: HttpHint, exchange: Exchange
) -> None:
    answer(hint, "POST", contract.render_request(REQUEST))
    answer(hint, "DELETE", contract.render_cancelled("uid-0"))
    assert exchange.pending is not None


@pytest.mark.parametrize(
    ("method", "body", "path", "status"),
    [
        ("GET", None, "/other", 404),
        ("POST", "{}", "/checkpoint", 400),
        ("POST", "not JSON", "/checkpoint", 400),
        ("POST", json.dumps({"id": "x" * 20_000}), "/checkpoint", 413),
        ("POST", json.dumps({"id": "uid-1"}), "/other", 404),
        ("PUT", "{}", "/checkpoint", 501),
    ],
)
def test_what_is_no_request_is_refused(
    hint: HttpHint, exchange: Exchange, method: str, body: str | None, path: str, status: int
) -> None:
    assert call(hint, method, body, path)[0] == status
    assert exchange.pending is None


@pytest.mark.parametrize(
    "path", ["/save", "/save?run=1&x=/a//b?c", "/save?", "//save", "/", "///?"]
)
def test_all_that_a_hint_says_after_the_port_is_served_as_the_operator_sends_it(
    exchange: Exchange, path: str
) -> None:
    port = free_port()
    named = f"http://:{port}{path}"
    assert not isinstance(HINT.parse(named, "hint"), Violation)
    chosen = choose(named, exchange, address=ADDRESS, annotation_file="", pod_name="")
    assert isinstance(chosen, HttpHint)
    with closing(chosen):
        chosen.open()
        sent = URL(f"http://{ADDRESS}:{port}{path}", encoded=True).raw_path_qs
        assert call(chosen, "POST", '{"id":"uid-1"}', sent)[0] == 200
        assert call(chosen, "GET", path=sent + "x")[0] == 404


DEPTHS = (*range(800, 1000), 2000, 4000, 7900)
"""Levels at which one version of Python or another reads a list, and cannot make it a text."""


@pytest.mark.parametrize("field", ["deadline", "reason", "other"])
def test_a_field_that_is_no_text_counts_as_absent_however_deep_it_is(field: str) -> None:
    for depth in DEPTHS:
        nested = "[" * depth + "]" * depth
        found = parse_request(f'{{"id":"uid-1","{field}":{nested}}}')
        assert found in (None, Request("uid-1"))


def test_clients_that_hold_all_connections_do_not_keep_a_request_out(
    hint: HttpHint, exchange: Exchange
) -> None:
    with ExitStack() as stack:
        held = [
            stack.enter_context(socket.create_connection((ADDRESS, hint.port)))
            for _ in range(hint_module.MAX_CONNECTIONS)
        ]
        for each in held:
            each.sendall(b"POST /checkpoint HTTP/1.1\r\nX: ")
        assert answer(hint, "POST", contract.render_request(REQUEST)).eviction_id == "uid-1"
        assert held[0].recv(1) == b"", "the oldest one was cut"
    assert exchange.pending is not None


def test_a_client_that_sends_a_byte_at_a_time_has_so_much_time_in_all(
    hint: HttpHint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hint_module, "CONNECTION_SECONDS", 0.3)
    with socket.create_connection((ADDRESS, hint.port)) as slow:
        deadline = time.monotonic() + 30
        with suppress(ConnectionError):
            while not select.select([slow], [], [], 0.05)[0]:
                assert time.monotonic() < deadline
                slow.sendall(b"G")
            assert slow.recv(1) == b""


@pytest.mark.parametrize("length", ["9" * 5000, "²", "-1", ""])
def test_a_length_that_is_no_number_is_refused(hint: HttpHint, length: str) -> None:
    with closing(http.client.HTTPConnection(ADDRESS, hint.port, timeout=10)) as connection:
        connection.putrequest("POST", "/checkpoint")
        connection.putheader("Content-Length", length.encode("latin-1"))
        connection.endheaders()
        assert connection.getresponse().status == 413


def test_a_process_that_has_inherited_the_socket_does_not_keep_the_port(
    exchange: Exchange,
) -> None:
    first = HttpHint(exchange, ADDRESS, 0, "/checkpoint")
    first.open()
    assert first._server is not None
    # As a data loader has it, which the program has forked.
    with first._server.socket.dup():
        port = first.port
        first.close()
        second = HttpHint(exchange, ADDRESS, port, "/checkpoint")
        second.open()
        assert answer(second).state is AnswerState.IDLE
        second.close()


def test_a_taken_port_is_an_error_when_the_session_opens(
    hint: HttpHint, exchange: Exchange
) -> None:
    with pytest.raises(OSError, match="in use"):
        HttpHint(exchange, ADDRESS, hint.port, "/").open()


def test_the_parameters_of_a_content_type_are_not_parsed(
    hint: HttpHint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To parse 64 KB of them takes the training process seconds."""
    parsed: list[object] = []
    boundary = email.message.Message.get_boundary
    monkeypatch.setattr(
        email.message.Message,
        "get_boundary",
        lambda self: (parsed.append(self), boundary(self))[1],
    )
    with closing(http.client.HTTPConnection(ADDRESS, hint.port, timeout=10)) as connection:
        connection.request(
            "GET", "/checkpoint", headers={"Content-Type": "multipart/x" + ";" * 60_000}
        )
        assert connection.getresponse().status == 200
    assert parsed == []
