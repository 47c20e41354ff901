"""Hints over real HTTP on loopback: the meaning of replies, and the bounds on hostile peers."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from yarl import URL

from reprieve_operator.checkpointing.client import CheckpointClient
from reprieve_operator.checkpointing.endpoints import HttpEndpoint
from reprieve_operator.checkpointing.http_transport import HttpTransport
from reprieve_operator.checkpointing.transport import ReplyKind, WorkloadReply
from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import AnswerState
from reprieve_testing.chaos.hostile_workloads import HostileWorkloads
from reprieve_testing.operator_parts import REQUEST

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[HttpEndpoint]]


@pytest.fixture
async def transport() -> AsyncIterator[HttpTransport]:
    transport = HttpTransport()
    yield transport
    await transport.close()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    runners: list[web.AppRunner] = []

    async def start(handler: Handler) -> HttpEndpoint:
        application = web.Application()
        application.router.add_route("*", "/checkpoint", handler)
        runner = web.AppRunner(application, shutdown_timeout=0.1)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        return HttpEndpoint(URL(f"http://{host}:{port}/checkpoint"))

    yield start
    for runner in runners:
        await runner.cleanup()


def saying(text: str, status: int = 200) -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text, status=status)

    return answer


POSTS = {
    "a valid answer counts": ('{"state":"accepted","id":"u-1"}', 200, ReplyKind.ANSWER),
    "a plain handler's ok is an acceptance": ("ok", 200, ReplyKind.ANSWER),
    "an empty response is an acceptance": ("", 204, ReplyKind.ANSWER),
    "an answer about another request does not count": (
        '{"state":"saved","id":"u-0"}',
        200,
        ReplyKind.OUTCOME_UNKNOWN,
    ),
    "idle is not an acceptance": ('{"state":"idle"}', 200, ReplyKind.OUTCOME_UNKNOWN),
    "a redirect is not followed and nothing was accepted": ("", 307, ReplyKind.NOT_RECEIVED),
    "a missing path has accepted nothing": ("", 404, ReplyKind.NOT_RECEIVED),
    "after a 500, a save may have begun": ("", 500, ReplyKind.OUTCOME_UNKNOWN),
}


@pytest.mark.parametrize(("text", "status", "want"), POSTS.values(), ids=POSTS)
async def test_what_a_reply_to_a_hint_means(
    transport: HttpTransport, serve: Serve, text: str, status: int, want: ReplyKind
) -> None:
    reply = await transport.request_checkpoint(await serve(saying(text, status)), REQUEST, 5)
    assert reply.kind is want


GETS = {
    "saving, with progress": (
        '{"state":"saving","id":"u-1","progress":0.5}',
        200,
        ReplyKind.ANSWER,
    ),
    "saving, without a request id": (
        '{"state":"saving"}',
        200,
        ReplyKind.UNATTRIBUTED,
    ),
    "idle, without a request": ('{"state":"idle"}', 200, ReplyKind.UNKNOWN_REQUEST),
    "the answer has another request id": (
        '{"state":"saved","id":"u-0"}',
        200,
        ReplyKind.UNKNOWN_REQUEST,
    ),
    'the same "ok" to every call': ("ok", 200, ReplyKind.UNSUPPORTED),
    "405, no GET": ("", 405, ReplyKind.UNSUPPORTED),
    "501, no GET, as http.server reports it": ("", 501, ReplyKind.UNSUPPORTED),
    "the server fails": ("", 503, ReplyKind.OUTCOME_UNKNOWN),
}


@pytest.mark.parametrize(("text", "status", "want"), GETS.values(), ids=GETS)
async def test_what_a_reply_to_a_poll_means(
    transport: HttpTransport, serve: Serve, text: str, status: int, want: ReplyKind
) -> None:
    reply = await transport.poll(await serve(saying(text, status)), "u-1", 5)
    assert reply.kind is want


async def test_a_refused_connection_has_certainly_not_received_the_request(
    transport: HttpTransport,
) -> None:
    reply = await transport.request_checkpoint(
        HttpEndpoint(URL("http://127.0.0.1:1/checkpoint")), REQUEST, 5
    )
    assert reply.kind is ReplyKind.NOT_RECEIVED


async def test_a_workload_that_hangs_may_have_received_the_request(
    transport: HttpTransport, serve: Serve
) -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    reply = await transport.request_checkpoint(await serve(hang), REQUEST, 0.2)
    assert reply.kind is ReplyKind.OUTCOME_UNKNOWN


async def test_workloads_that_hang_do_not_block_calls_to_others(serve: Serve) -> None:
    is_hanging = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        is_hanging.set()
        await asyncio.Event().wait()
        raise AssertionError

    client, target = CheckpointClient({HttpEndpoint: HttpTransport}, max_calls=1), await serve(hang)
    hanging = asyncio.create_task(client.request_checkpoint(target, REQUEST, 30))
    try:
        async with asyncio.timeout(60):
            await is_hanging.wait()
            requested = await client.request_checkpoint(target, REQUEST, 0.2)
            polled = await client.poll(target, "u-1", 0.2)
        detail = "too many calls are in progress"
        assert requested == WorkloadReply(ReplyKind.NOT_RECEIVED, detail=detail)
        assert polled == WorkloadReply(ReplyKind.OUTCOME_UNKNOWN, detail=detail)
    finally:
        hanging.cancel()
        await client.close()


async def test_the_request_is_the_contracts_document_without_credentials(
    transport: HttpTransport, serve: Serve
) -> None:
    seen: list[tuple[str, dict[str, str]]] = []

    async def answer(request: web.Request) -> web.Response:
        seen.append((await request.text(), dict(request.headers)))
        return web.json_response({"state": "saved", "step": 7, "path": "/data/7"})

    reply = await transport.request_checkpoint(await serve(answer), REQUEST, 5)
    assert reply.answer is not None
    assert (reply.answer.state, reply.answer.step, reply.answer.path) == (
        AnswerState.SAVED,
        7,
        "/data/7",
    )
    assert seen[0][0] == contract.render_request(REQUEST)
    assert not {"Authorization", "Cookie", "Proxy-Authorization"} & set(seen[0][1])


async def test_a_redirect_elsewhere_is_never_called(transport: HttpTransport, serve: Serve) -> None:
    called: list[str] = []

    async def elsewhere(request: web.Request) -> web.Response:
        called.append(request.method)
        return web.Response()

    target = await serve(elsewhere)

    async def redirect(_: web.Request) -> web.Response:
        raise web.HTTPTemporaryRedirect(str(target.url))

    await transport.request_checkpoint(await serve(redirect), REQUEST, 5)
    await transport.poll(await serve(redirect), "u-1", 5)
    assert called == []


async def test_an_endless_answer_is_cut_off_and_does_not_count(
    transport: HttpTransport, serve: Serve
) -> None:
    sent = 0

    async def pour(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" " * 4096)
            sent += 4096

    reply = await transport.request_checkpoint(await serve(pour), REQUEST, 5)
    assert reply.answer == contract.ACCEPTED_WITHOUT_DOCUMENT
    assert sent < 16 * 1024 * 1024, "the rest is not read"


async def test_endless_interim_responses_do_not_block_the_event_loop(
    transport: HttpTransport,
) -> None:
    async with HostileWorkloads() as workloads:
        target = HttpEndpoint(
            URL(workloads.hint("announces-for-ever").replace("http://:", "http://127.0.0.1:"))
        )
        begun = time.process_time()
        replies = await asyncio.gather(*(transport.poll(target, "u-1", 1) for _ in range(20)))
        spent = time.process_time() - begun
    assert {reply.kind for reply in replies} == {ReplyKind.OUTCOME_UNKNOWN}
    assert spent < 1.0, (
        "twenty pieces of what they send, parsed whole, take several seconds of the event loop"
    )


async def test_the_author_of_an_invalid_answer_gets_the_error(
    transport: HttpTransport, serve: Serve
) -> None:
    reply = await transport.request_checkpoint(await serve(saying('{"state":"done"}')), REQUEST, 5)
    assert reply.answer_error.startswith("answer.state: supported values")
