"""Calls end: when they are cancelled as they time out, and when an answer has no end."""

import asyncio
import time
from pathlib import Path

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from reprieve_runtime.client import api as api_module
from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata
from reprieve_testing.servers.stub_api import stub_api, until

TIMEOUT_SECONDS = 1.0


async def test_a_cancellation_at_the_moment_of_the_time_out_is_not_lost(tmp_path: Path) -> None:
    """As it was once, at the end of a term: the task went on, and the term never ended."""
    async with stub_api(tmp_path) as (stub, api):
        call = asyncio.create_task(
            api.request("GET", "/api/v1/pods", timeout_seconds=TIMEOUT_SECONDS)
        )
        await until(lambda: stub.calls["/api/v1/pods"] > 0)
        loop = asyncio.get_running_loop()
        # All timers are due in the same pass of the loop: it was busy for longer.
        loop.call_later(2 * TIMEOUT_SECONDS, call.cancel)
        time.sleep(3 * TIMEOUT_SECONDS)  # noqa: ASYNC251 - it is busy
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_the_answer_that_refuses_a_watch_is_not_awaited_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As of an API server that goes away after the first bytes of it."""
    monkeypatch.setattr(api_module, "_WATCH_IDLE_SECONDS", 0.1)
    is_done = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 100\r\n\r\n{")
        await is_done.wait()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    configuration = Configuration()
    configuration.host = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    api = Api(ApiClient(configuration), "test")
    watch = api.watch("/api/v1/pods", PartialObjectMetadata, resource_version="1")
    async with asyncio.timeout(60):
        with pytest.raises(ApiError, match="TimeoutError"):
            await anext(watch)
    is_done.set()
    await api.close()
    server.close()
