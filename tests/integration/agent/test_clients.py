"""Clients of the agent that are slow, numerous, hostile or gone: the next one still is answered."""

import socket
import struct
from collections.abc import Iterator

import pytest

from reprieve_agent import server
from reprieve_agent.http_message import HttpRequest, HttpResponse
from reprieve_testing.servers.agent import Client, serving, until_closed

IDLE = {"state": "idle"}


def answer(request: HttpRequest) -> HttpResponse:
    if request.body == b'"fail"':
        raise OSError(28, "No space left on device")
    if request.body == b'"fault"':
        raise RecursionError("too deep")
    return HttpResponse.json(IDLE)


def sends(channel: socket.socket) -> bool:
    try:
        channel.sendall(b"x" * 4096)
    except OSError:
        return False
    return True


@pytest.fixture
def client() -> Iterator[Client]:
    with serving(answer) as started:
        yield started


def test_a_slow_client_does_not_delay_others(client: Client) -> None:
    with client.connect(b"GET / HT") as slow:
        assert client.call("GET") == (200, IDLE)
        slow.sendall(b"TP/1.1\r\n\r\n")
        assert until_closed(slow).endswith(b'{"state":"idle"}')


def test_a_silent_client_is_disconnected(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "DEADLINE_SECONDS", 0.2)
    with client.connect() as silent:
        assert until_closed(silent) == b""
    assert client.call("GET") == (200, IDLE)


def test_a_client_that_never_stops_sending_is_disconnected(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "DEADLINE_SECONDS", 0.2)
    with client.connect(b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n") as endless:
        while sends(endless):
            pass
    assert client.call("GET") == (200, IDLE)


def test_with_too_many_clients_the_oldest_is_disconnected(client: Client) -> None:
    crowd = [client.connect(b"GET") for _ in range(2 * server.MAX_CONNECTIONS)]
    assert client.call("GET") == (200, IDLE)
    assert until_closed(crowd[0]) == b""
    for each in crowd:
        each.close()


def test_a_client_that_resets_does_not_affect_others(client: Client) -> None:
    for received in (b"", b"GET / HTTP/1.1\r\n\r\n"):
        rude = client.connect(received)
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        rude.close()
    assert client.call("GET") == (200, IDLE)


def test_a_client_that_keeps_sending_still_reads_its_response(client: Client) -> None:
    with client.connect(b"PUT / HTTP/1.1\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20000) as eager:
        assert until_closed(eager).startswith(b"HTTP/1.1 405 ")


def test_a_full_volume_is_reported_and_survived(client: Client) -> None:
    assert client.call("POST", "fail") == (503, {"message": "No space left on device"})
    assert client.call("GET") == (200, IDLE)


def test_a_request_that_fails_is_answered_and_logged_and_does_not_end_the_agent() -> None:
    logged = []

    def log(message: str, **fields: object) -> None:
        logged.append((message, fields))

    with serving(answer, log) as client:
        assert client.call("POST", "fault") == (500, {"message": "internal server error"})
        assert client.call("GET") == (200, IDLE)
    assert logged == [("request failed", {"error": "RecursionError: too deep"})]


def test_the_agent_listens_on_ipv6() -> None:
    try:
        started = server.AgentServer("::1", 0, answer, lambda *_, **__: None)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    started.close()
