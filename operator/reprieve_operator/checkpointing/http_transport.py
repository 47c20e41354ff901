"""The line over HTTP: one POST to ask, GETs to ask how far it is; no redirects, no proxies, no cookies."""

import aiohttp
from yarl import URL

from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import Request
from reprieve_policy.verdict import Violation

from .bounded_http import BoundedConnector
from .endpoints import HttpTarget
from .transport import Heard, Reply, heard_of_asking, heard_of_looking

_CONNECT_SECONDS = 2.0
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "reprieve-operator"}


class HttpLine:
    """The connections to workloads that serve HTTP."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=BoundedConnector(),
            headers=_HEADERS,
            trust_env=False,
            auto_decompress=False,
            cookie_jar=_no_cookies(),
        )

    async def ask(self, target: HttpTarget, request: Request, timeout_seconds: float) -> Reply:
        """Ask for a checkpoint."""
        body = contract.render_request(request)
        reply = await self._call("POST", target.url, body, timeout_seconds)
        if isinstance(reply, Reply):
            return reply
        status, text = reply
        if status >= 500:
            return Reply(Heard.UNSURE, detail=f"answered {status}")
        if status >= 300:
            return Reply(Heard.NOT_RECEIVED, detail=f"answered {status}")
        answer = contract.parse_answer(text, "answer")
        if isinstance(answer, Violation):
            return Reply(Heard.ANSWER, contract.BARE_ACCEPTANCE, complaint=_complaint(text, answer))
        return heard_of_asking(answer, request)

    async def look(self, target: HttpTarget, eviction_id: str, timeout_seconds: float) -> Reply:
        """Ask how far it is; without effect on the workload."""
        reply = await self._call("GET", target.url, None, timeout_seconds)
        if isinstance(reply, Reply):
            return reply
        status, text = reply
        if status >= 500 and status != 501:
            return Reply(Heard.UNSURE, detail=f"answered {status}")
        if status >= 300:
            return Reply(Heard.UNSUPPORTED, detail=f"answered {status}")
        answer = contract.parse_answer(text, "answer")
        if isinstance(answer, Violation):
            return Reply(Heard.UNSUPPORTED, complaint=_complaint(text, answer))
        return heard_of_looking(answer, eviction_id)

    async def take_back(self, target: HttpTarget, eviction_id: str, timeout_seconds: float) -> None:
        """Say that the request is taken back. A plain handler has no such method, and says so: that is no matter."""
        await self._call("DELETE", target.url, contract.render_cancelled(eviction_id), timeout_seconds)

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _call(self, method: str, url: URL, body: str | None, timeout_seconds: float) -> Reply | tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=timeout_seconds, sock_connect=min(_CONNECT_SECONDS, timeout_seconds))
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                return response.status, await _read(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return Reply(Heard.NOT_RECEIVED, detail=_sentence(error))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return Reply(Heard.UNSURE, detail=_sentence(error))


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Read at most one byte more than an answer may have, so that too long is seen as too long."""
    text = bytearray()
    while len(text) <= contract.MAX_ANSWER:
        chunk = await response.content.read(contract.MAX_ANSWER + 1 - len(text))
        if not chunk:
            break
        text += chunk
    return bytes(text)


def _complaint(text: bytes, violation: Violation) -> str:
    """Say what is wrong with an answer that was meant to be one; a plain handler's `ok` is no mistake."""
    return f"{violation.path}: {violation.detail}" if text.lstrip().startswith(b"{") else ""


def _no_cookies() -> aiohttp.DummyCookieJar:
    return aiohttp.DummyCookieJar()


def _sentence(error: Exception) -> str:
    return str(error) or type(error).__name__
