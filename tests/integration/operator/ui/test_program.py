"""The program `reprieve-operator` with `--ui`: its page is there, for tokens with the right."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from reprieve_testing.cluster.handle import free_port
from reprieve_testing.servers.stub_api import (
    API_SERVER,
    DEADLINE_SECONDS,
    StubToken,
    stub_api,
)
from reprieve_testing.servers.webhook_program import ENVIRONMENT, any_certificate

USER = "system:serviceaccount:team:viewer"
Status = tuple[int, str]


@asynccontextmanager
async def operator(directory: Path, *flags: str) -> AsyncIterator[str]:
    """Run the program; yield the address of its metrics port once that answers."""
    port = free_port()
    words = (
        *("--kubeconfig", str(directory / "kubeconfig"), "--identity", "operator-a"),
        *("--listen-address", "127.0.0.1", "--listen-port", str(free_port())),
        *("--metrics-port", str(port), *flags),
    )
    program = Path(sys.executable).with_name("reprieve-operator")
    process = await asyncio.create_subprocess_exec(program, *words, env=ENVIRONMENT)
    try:
        yield f"https://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


async def get(session: aiohttp.ClientSession, url: str) -> Status:
    """Return the answer; wait for a program that has not opened its port."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                headers = {"Authorization": "Bearer good"}
                async with session.get(url, headers=headers) as reply:
                    return reply.status, await reply.text()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("is_on", [True, False])
async def test_the_page_is_there_where_it_is_turned_on(tmp_path: Path, *, is_on: bool) -> None:
    async with (
        stub_api(tmp_path, granted={USER}) as (stub, _),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=any_certificate())) as session,
        operator(tmp_path, *(["--ui=true"] if is_on else [])) as url,
    ):
        stub.tokens = {"good": StubToken([API_SERVER], USER)}
        status, text = await get(session, f"{url}/ui")
        data_status, data = await get(session, f"{url}/ui/data")
    assert (status, data_status) == ((200, 200) if is_on else (404, 404))
    assert ("<title>Reprieve</title>" in text) is is_on
    # The stub has no Lease, so that no replica leads.
    assert ('"is_leading":false,"identity":"operator-a"' in data) is is_on
