"""HTTP as bytes: valid requests, errors for invalid ones, and incomplete requests."""

from http import HTTPStatus

import pytest

from reprieve_agent import http_message, main, request_files
from reprieve_agent.http_message import HttpRequest, HttpResponse
from reprieve_policy.checkpointing import agent, checkpoint_plan, contract

POST = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n"

REQUESTS = {
    "a GET": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", HttpRequest("GET", b"")),
    "a GET of an old client": (b"GET / HTTP/1.0\r\n\r\n", HttpRequest("GET", b"")),
    "a GET with a body, which is ignored": (
        b"GET / HTTP/1.1\r\nContent-Length: 9\r\n\r\nx",
        HttpRequest("GET", b""),
    ),
    "a POST": (POST + b"{}", HttpRequest("POST", b"{}")),
    "a POST with more after it": (POST + b"{}POST", HttpRequest("POST", b"{}")),
    "a POST with the same Content-Length twice": (
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\ncontent-length:2\r\n\r\n{}",
        HttpRequest("POST", b"{}"),
    ),
    "a header line without a colon": (
        b"POST / HTTP/1.1\r\nrubbish\r\nContent-Length: 0\r\n\r\n",
        HttpRequest("POST", b""),
    ),
}
UNFINISHED = (b"", b"GET", b"GET / HTTP/1.1\r\n", POST[:-1], POST, POST + b"{")
REFUSED = {
    "not HTTP": (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", HTTPStatus.BAD_REQUEST),
    "an empty request line": (b"\r\n\r\n", HTTPStatus.BAD_REQUEST),
    "another protocol": (b"GET / SPDY/3\r\n\r\n", HTTPStatus.BAD_REQUEST),
    "another path": (b"GET /metrics HTTP/1.1\r\n\r\n", HTTPStatus.NOT_FOUND),
    "a whole URL": (b"GET http://10.0.0.1/ HTTP/1.1\r\n\r\n", HTTPStatus.NOT_FOUND),
    "a path out of here": (b"GET /../etc/passwd HTTP/1.1\r\n\r\n", HTTPStatus.NOT_FOUND),
    "another method": (b"PATCH / HTTP/1.1\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
    "a method that is no text": (b"\xff\xfe / HTTP/1.1\r\n\r\n", HTTPStatus.METHOD_NOT_ALLOWED),
    "no length": (b"POST / HTTP/1.1\r\n\r\n", HTTPStatus.LENGTH_REQUIRED),
    "chunks": (
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n",
        HTTPStatus.LENGTH_REQUIRED,
    ),
    "a negative length": (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", HTTPStatus.BAD_REQUEST),
    "a length in words": (
        b"POST / HTTP/1.1\r\nContent-Length: two\r\n\r\n",
        HTTPStatus.BAD_REQUEST,
    ),
    "two lengths": (
        b"POST / HTTP/1.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        HTTPStatus.BAD_REQUEST,
    ),
    "too long": (
        b"POST / HTTP/1.1\r\nContent-Length: 16385\r\n\r\n",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ),
    "a length that is too long to read": (
        b"POST / HTTP/1.1\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    ),
    "a head without end": (
        b"GET / HTTP/1.1\r\nX: " + b"x" * 9000,
        HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    ),
}


@pytest.mark.parametrize(("received", "want"), REQUESTS.values(), ids=REQUESTS)
def test_a_valid_request_is_parsed(received: bytes, want: HttpRequest) -> None:
    assert http_message.parse(received) == want


@pytest.mark.parametrize("received", UNFINISHED)
def test_an_incomplete_request_is_waited_for(received: bytes) -> None:
    assert http_message.parse(received) is None


@pytest.mark.parametrize(("received", "status"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_request_gets_an_error(received: bytes, status: HTTPStatus) -> None:
    refusal = http_message.parse(received)
    assert isinstance(refusal, HttpResponse)
    assert refusal.status is status


def test_a_response_has_a_length_and_closes_the_connection() -> None:
    head, body = HttpResponse.json({"state": "idle"}).render().split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Connection: close" in head
    assert f"Content-Length: {len(body)}".encode() in head
    assert body == b'{"state":"idle"}'


def test_the_error_for_a_wrong_method_lists_the_allowed_ones() -> None:
    assert (
        b"\r\nAllow: GET, POST, DELETE\r\n"
        in HttpResponse.error(HTTPStatus.METHOD_NOT_ALLOWED).render()
    )


def test_the_agent_has_the_port_the_names_and_the_sizes_of_the_contract() -> None:
    assert main.PORT == agent.PORT
    assert request_files.MAX_ANSWER == contract.MAX_ANSWER
    assert "|".join(main.SIGNALS) == checkpoint_plan._SIGNAL
