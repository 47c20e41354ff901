"""The line over HTTP: one POST to ask, GETs to ask how far it is; no redirects, no proxies, no cookies."""

import aiohttp
from yarl import URL

from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import CheckpointRequest
from reprieve_policy.verdict import Violation

from .bounded_http import BoundedConnector
from .endpoints import HttpEndpoint
from .transport import ReplyKind, WorkloadReply, reply_to_poll, reply_to_request

_CONNECT_SECONDS = 2.0
_HEADERS = {
    "Accept": "application/json",
    "Accept-Encoding": "identity",
    "User-Agent": "reprieve-operator",
}


class HttpTransport:
    """The connections to workloads that serve HTTP."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            connector=BoundedConnector(),
            headers=_HEADERS,
            trust_env=False,
            auto_decompress=False,
            cookie_jar=_no_cookies(),
        )

    async def request_checkpoint(
        self, endpoint: HttpEndpoint, request: CheckpointRequest, timeout_seconds: float
    ) -> WorkloadReply:
        """Ask for a checkpoint."""
        body = contract.render_request(request)
        reply = await self._call("POST", endpoint.url, body, timeout_seconds)
        if isinstance(reply, WorkloadReply):
            return reply
        status, text = reply
        if status >= 500:
            return WorkloadReply(ReplyKind.OUTCOME_UNKNOWN, detail=f"answered {status}")
        if status >= 300:
            return WorkloadReply(ReplyKind.NOT_RECEIVED, detail=f"answered {status}")
        answer = contract.parse_answer(text, "answer")
        if isinstance(answer, Violation):
            return WorkloadReply(
                ReplyKind.ANSWER,
                contract.ACCEPTED_WITHOUT_DOCUMENT,
                answer_error=_answer_error(text, answer),
            )
        return reply_to_request(answer, request)

    async def poll(
        self, endpoint: HttpEndpoint, eviction_id: str, timeout_seconds: float
    ) -> WorkloadReply:
        """Ask how far it is; without effect on the workload."""
        reply = await self._call("GET", endpoint.url, None, timeout_seconds)
        if isinstance(reply, WorkloadReply):
            return reply
        status, text = reply
        if status >= 500 and status != 501:
            return WorkloadReply(ReplyKind.OUTCOME_UNKNOWN, detail=f"answered {status}")
        if status >= 300:
            return WorkloadReply(ReplyKind.UNSUPPORTED, detail=f"answered {status}")
        answer = contract.parse_answer(text, "answer")
        if isinstance(answer, Violation):
            return WorkloadReply(ReplyKind.UNSUPPORTED, answer_error=_answer_error(text, answer))
        return reply_to_poll(answer, eviction_id)

    async def cancel(
        self, endpoint: HttpEndpoint, eviction_id: str, timeout_seconds: float
    ) -> None:
        """Say that the request is taken back. A plain handler has no such method, and says so: that is no matter."""
        await self._call(
            "DELETE", endpoint.url, contract.render_cancelled(eviction_id), timeout_seconds
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _call(
        self, method: str, url: URL, body: str | None, timeout_seconds: float
    ) -> WorkloadReply | tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(
            total=timeout_seconds, sock_connect=min(_CONNECT_SECONDS, timeout_seconds)
        )
        headers = {} if body is None else {"Content-Type": "application/json"}
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as response:
                return response.status, await _read_body(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return WorkloadReply(ReplyKind.NOT_RECEIVED, detail=_describe_error(error))
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return WorkloadReply(ReplyKind.OUTCOME_UNKNOWN, detail=_describe_error(error))


async def _read_body(response: aiohttp.ClientResponse) -> bytes:
    """Read at most one byte more than an answer may have, so that too long is seen as too long."""
    text = bytearray()
    while len(text) <= contract.MAX_ANSWER:
        chunk = await response.content.read(contract.MAX_ANSWER + 1 - len(text))
        if not chunk:
            break
        text += chunk
    return bytes(text)


def _answer_error(text: bytes, violation: Violation) -> str:
    """Say what is wrong with an answer that was meant to be one; a plain handler's `ok` is no mistake."""
    return f"{violation.path}: {violation.detail}" if text.lstrip().startswith(b"{") else ""


def _no_cookies() -> aiohttp.DummyCookieJar:
    return aiohttp.DummyCookieJar()


def _describe_error(error: Exception) -> str:
    return str(error) or type(error).__name__
