"""Whatever arrives is answered with one sentence, and the server lives on."""

import asyncio
import email.parser
import gzip
import json
import logging
import ssl
import warnings
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from reprieve_testing.servers.reviews import (
    RunningServer,
    a_pod,
    a_review,
    running_server,
    trusting,
)

LIMIT = 100_000


@pytest_asyncio.fixture
async def server() -> AsyncIterator[RunningServer]:
    async with running_server(max_review_bytes=LIMIT, read_timeout_seconds=60.0) as running:
        yield running
        # Whatever the test sent: the next caller is served.
        assert (await running.ask("/validate", a_review(a_pod())))["allowed"] is True


def _without(field: str) -> bytes:
    review = a_review(a_pod())
    del review["request"][field]
    return json.dumps(review).encode()


def _with_labels(labels: object) -> bytes:
    pod = a_pod()
    pod["metadata"]["labels"] = labels
    return json.dumps(a_review(pod)).encode()


@dataclass(frozen=True)
class Case:
    """A body, and a part of the sentence that answers it."""

    body: bytes
    says: str
    status: int = 400


GOOD = json.dumps(a_review(a_pod())).encode()
UNREAD = b'"fieldManager": "kubectl-create"'
"""A part of `GOOD` that nothing reads."""
"""Deeper than Python reads: 3.11 gives up at 1,000, later ones at 10,000."""
CASES = {
    "nothing": Case(b"", "not JSON"),
    "half a document": Case(GOOD[: len(GOOD) // 2], "not JSON"),
    "two documents": Case(GOOD + GOOD, "not JSON"),
    "not UTF-8": Case(_with_labels({"a": "b"}).replace(b'"b"', b'"\xff\xfe"'), "not JSON"),
    "not an object, and then not UTF-8": Case(
        b'{"request":{"object":"x","uid":"\xc0","operation":"CREATE","kind":{"kind":"Pod"}}}',
        "not an AdmissionReview",
    ),
    "NaN": Case(_with_labels({"a": "b"}).replace(b'"b"', b"NaN"), "not JSON"),
    "NaN where nothing is read": Case(GOOD.replace(UNREAD, b'"fieldManager": NaN'), "not JSON"),
    "an array": Case(b"[]", "not an AdmissionReview"),
    "null": Case(b"null", "not an AdmissionReview"),
    "no request": Case(b'{"apiVersion":"admission.k8s.io/v1"}', "no request"),
    "a null request": Case(b'{"apiVersion":"admission.k8s.io/v1","request":null}', "no request"),
    "no uid": Case(_without("uid"), "uid"),
    "no kind": Case(_without("kind"), "kind"),
    "no operation": Case(_without("operation"), "operation"),
    "a creation without an object": Case(_without("object"), "object must not be null"),
    "labels with numbers as values": Case(_with_labels({"a": 1}), "labels"),
    "labels in an array": Case(_with_labels(["a"]), "labels"),
    "another API version": Case(
        GOOD.replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"), "apiVersion"
    ),
    "no API version": Case(
        b'{"request":{"uid":"1","operation":"CREATE","kind":{"kind":"Pod"}}}', "apiVersion"
    ),
    "arrays within arrays": Case(b"[" * 40_000, "not"),
    "templates within templates": Case(
        _with_labels({}).replace(b'"spec": {', b'"spec": {' + b'"template": {"spec": {' * 3_000),
        "not JSON",
    ),
    "a long uid, which the response would repeat": Case(
        json.dumps(a_review(a_pod(), uid="u" * 129)).encode(), "length <= 128 - at `$.request.uid`"
    ),
    "compressed": Case(gzip.compress(GOOD), "not JSON"),
    "more than the limit": Case(b" " * (LIMIT + 1), "must not be larger than 100000 bytes", 413),
}


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_invalid_input_is_refused_with_a_sentence(
    server: RunningServer, path: str, case: Case
):
    status, text = await server.send(path, case.body)

    assert (status, text.count("\n")) == (case.status, 1)
    assert case.says in text
    assert len(text) < 300


async def test_a_review_with_deep_but_legal_nesting_is_answered(server: RunningServer):
    pod = a_pod()
    pod["status"] = json.loads('{"a":' * 200 + "1" + "}" * 200)

    assert (await server.ask("/validate", a_review(pod)))["allowed"] is True


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_only_json_is_read(server: RunningServer, content_type: str):
    status, text = await server.send("/validate", GOOD, headers={"Content-Type": content_type})

    assert (status, text) == (415, "Content-Type must be application/json\n")


async def test_a_compressed_body_is_not_decompressed(server: RunningServer):
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}

    status, text = await server.send("/validate", gzip.compress(b" " * 5_000_000), headers=headers)

    assert (status, text.startswith("not JSON")) == (400, True)


async def test_a_stream_without_length_ends_at_the_limit(server: RunningServer):
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(10):
            yield b" " * 20_000

    async with server.session.post(
        server.url + "/validate", data=endless(), headers={"Content-Type": "application/json"}
    ) as reply:
        assert reply.status == 413


async def test_a_length_above_the_limit_is_refused_before_it_is_read(server: RunningServer):
    answer = await _speak(server, "POST /validate", "Content-Length: 999999999", body=b"{")

    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_a_slow_client_is_disconnected():
    async with running_server(read_timeout_seconds=0.3) as server:
        answer = await _speak(
            server, "POST /validate", "Content-Length: 100", body=b'{"apiVersion"'
        )

    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"the review did not come within 0.3 s" in answer


async def test_a_client_that_disconnects_during_a_request_causes_no_error(server: RunningServer):
    _, writer = await _connect(server)
    writer.write(
        b"POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100\r\n\r\n{"
    )
    await writer.drain()
    writer.transport.abort()


@pytest.mark.parametrize("start", ["\x00\x01", "POST /validate", "GET /readyz"])
async def test_garbage_instead_of_http_is_refused_and_does_not_fill_the_log(
    server: RunningServer, caplog: pytest.LogCaptureFixture, start: str
):
    answer = await _speak(server, start, "nonsense")

    assert answer.split(b" ")[1] == b"400"
    assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


async def test_plain_http_gets_no_answer(server: RunningServer):
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
    async with asyncio.timeout(60):
        assert b"HTTP/1.1 200" not in await reader.read()
    writer.close()


async def test_tls_below_1_2_is_refused(server: RunningServer):
    context = trusting(server.ca)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises(
        (ssl.SSLError, ConnectionResetError)
    ):  # OpenSSL 3.0 and later ones tell it differently
        await asyncio.open_connection("127.0.0.1", server.port, ssl=context)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/mutate", 405),
        ("POST", "/healthz", 405),
        ("GET", "/", 404),
        ("POST", "/validate/", 404),
    ],
)
async def test_other_paths_and_methods_are_refused(
    server: RunningServer, method: str, path: str, status: int
):
    async with server.session.request(method, server.url + path) as reply:
        assert reply.status == status


async def _connect(server: RunningServer) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting(server.ca))


async def _speak(server: RunningServer, start: str, header: str, *, body: bytes = b"") -> bytes:
    reader, writer = await _connect(server)
    head = f"{start} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{header}\r\n\r\n"
    writer.write(head.encode() + body)
    async with asyncio.timeout(60):
        answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize(
    "content_type",
    ["a/b" + ";" * 8000, 'a/b;"' + ";" * 8000, "a/b; x*=" + "%" * 4000, "a/b;" + "(" * 4000],
)
async def test_the_parameters_of_a_content_type_are_not_parsed(
    server: RunningServer, content_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To parse some takes a second, in which no review is answered."""
    parsed: list[str] = []
    monkeypatch.setattr(email.parser.HeaderParser, "parsestr", lambda *text: parsed.append(text))
    status, says = await server.send("/validate", GOOD, headers={"Content-Type": content_type})
    assert (status, says) == (415, "Content-Type must be application/json\n")
    json_too = f"Application/JSON {content_type[3:]}"
    status, _ = await server.send("/validate", GOOD, headers={"Content-Type": json_too})
    assert (status, parsed) == (200, [])
