"""An answer that is no object, such as the page of a proxy, counts as none."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata
from reprieve_testing.servers.stub_api import connect

PATH = "/api/v1/namespaces/team/pods/train"


async def read_pages(api: Api) -> None:
    async for _ in api.list_pages(PATH, PartialObjectMetadata):
        raise AssertionError("a page was read")


CALLS: dict[str, Callable[[Api], Awaitable[object]]] = {
    "get": lambda api: api.get(PATH, PartialObjectMetadata),
    "post": lambda api: api.post(PATH, {}, PartialObjectMetadata),
    "put": lambda api: api.put(PATH, {}, PartialObjectMetadata),
    "patch": lambda api: api.patch(PATH, {}, PartialObjectMetadata),
    "post to a subresource": lambda api: api.post_subresource(PATH, {}),
    "list": read_pages,
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("text", ["<html>Please log in</html>", "[1]", ""])
async def test_such_an_answer_is_an_error_after_which_the_call_is_made_again(
    tmp_path: Path, text: str, call: Callable[[Api], Awaitable[object]]
) -> None:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=text)

    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = await connect(tmp_path, runner.addresses[0][1])
    try:
        with pytest.raises(ApiError, match="Unreadable") as raised:
            await call(api)
    finally:
        await api.close()
        await runner.cleanup()
    assert raised.value.is_unanswered, "what was asked for may have been done"
