"""The ways to workloads as one: which carrier a target needs, and how many calls may be under way."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from reprieve_operator.cluster.call_limiter import CallLimiter, CallPriority
from reprieve_policy.checkpointing.contract import CheckpointRequest
from reprieve_runtime.client.api import Api

from .endpoints import Endpoint, GrpcEndpoint, HttpEndpoint, SignalEndpoint
from .http_transport import HttpTransport
from .signal_transport import SignalTransport
from .transport import ReplyKind, Transport, WorkloadReply

_MAX_CALLS: Final = 200
"""Calls at once, half of them to the pods of one Namespace. Without a limit, a thousand victims that time out together use up the file descriptors."""


def _make_grpc_transport() -> Transport[GrpcEndpoint]:
    # Imported when the first such victim comes: without this, every operator would be 3 MB larger.
    from .grpc_transport import GrpcTransport  # noqa: PLC0415

    return GrpcTransport()


TransportFactories = Mapping[type[Endpoint], Callable[[], Transport[Any]]]


def transport_factories(api: Api) -> TransportFactories:
    """Return how each kind of target is called; `api` is for what only the API server reaches."""
    return {
        HttpEndpoint: HttpTransport,
        GrpcEndpoint: _make_grpc_transport,
        SignalEndpoint: lambda: SignalTransport(api),
    }


class CheckpointClient:
    """All lines of a term. A line is made when its first target comes; none that leads to an address knows a credential."""

    def __init__(self, factories: TransportFactories, max_calls: int = _MAX_CALLS) -> None:
        self._factories = factories
        self._transports: dict[type[Endpoint], Transport[Any]] = {}
        self._call_limiter = CallLimiter(max_calls, limit_per_namespace=max(1, max_calls // 2))

    async def request_checkpoint(
        self,
        endpoint: Endpoint,
        request: CheckpointRequest,
        timeout_seconds: float,
        *,
        namespace: str = "",
    ) -> WorkloadReply:
        """Ask for a checkpoint."""
        line, slot = (
            self._transport(endpoint),
            self._call_limiter.acquire(CallPriority.NOTIFY, namespace),
        )
        return await _call(
            slot,
            lambda: line.request_checkpoint(endpoint, request, timeout_seconds),
            timeout_seconds,
            ReplyKind.NOT_RECEIVED,
        )

    async def poll(
        self, endpoint: Endpoint, eviction_id: str, timeout_seconds: float, *, namespace: str = ""
    ) -> WorkloadReply:
        """Ask how far it is; without effect on the workload."""
        line, slot = (
            self._transport(endpoint),
            self._call_limiter.acquire(CallPriority.RECORD, namespace),
        )
        return await _call(
            slot,
            lambda: line.poll(endpoint, eviction_id, timeout_seconds),
            timeout_seconds,
            ReplyKind.OUTCOME_UNKNOWN,
        )

    async def cancel(
        self, endpoint: Endpoint, eviction_id: str, timeout_seconds: float, *, namespace: str = ""
    ) -> None:
        """Say that the request is taken back, where the carrier has a word for it."""
        line = self._transport(endpoint)
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(timeout_seconds),
                self._call_limiter.acquire(CallPriority.TERMINATE, namespace),
            ):
                await line.cancel(endpoint, eviction_id, timeout_seconds)

    async def close(self) -> None:
        """Close all lines."""
        for line in self._transports.values():
            await line.close()

    def _transport(self, endpoint: Endpoint) -> Transport[Any]:
        kind = type(endpoint)
        if kind not in self._transports:
            self._transports[kind] = self._factories[kind]()
        return self._transports[kind]


async def _call(
    slot: AbstractAsyncContextManager[None],
    call: Callable[[], Awaitable[WorkloadReply]],
    timeout_seconds: float,
    if_busy: ReplyKind,
) -> WorkloadReply:
    async with contextlib.AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(timeout_seconds):
                await stack.enter_async_context(slot)
        except TimeoutError:
            # Without this, workloads that hang would keep the others from their deadlines, not only from their hints.
            return WorkloadReply(if_busy, detail="too many calls are under way")
        return await call()
