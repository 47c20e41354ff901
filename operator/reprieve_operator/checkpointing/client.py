"""One client for all transports: picks an endpoint's transport and limits concurrent calls."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from reprieve_operator.cluster.call_limiter import CallLimiter, CallPriority, CallTicket
from reprieve_policy.checkpointing.contract import CheckpointRequest
from reprieve_runtime.client.api import Api

from .endpoints import Endpoint, GrpcEndpoint, HttpEndpoint, SignalEndpoint
from .http_transport import HttpTransport
from .signal_transport import SignalTransport
from .transport import ReplyKind, Transport, WorkloadReply

_MAX_CALLS: Final = 200
"""Concurrent calls, shared between Namespaces.

Without a limit, a thousand victims that time out together use up the file descriptors. A Namespace
that calls alone has at most half of them: a share is free for the next one.
"""


def _make_grpc_transport() -> Transport[GrpcEndpoint]:
    # Imported for the first victim with a gRPC hint: without this, every operator needs 3 MB more.
    from .grpc_transport import GrpcTransport  # noqa: PLC0415

    return GrpcTransport()


TransportFactories = Mapping[type[Endpoint], Callable[[], Transport[Any]]]


def transport_factories(api: Api) -> TransportFactories:
    """Return the transport of each kind of endpoint; signals go through the API server (`api`)."""
    return {
        HttpEndpoint: HttpTransport,
        GrpcEndpoint: _make_grpc_transport,
        SignalEndpoint: lambda: SignalTransport(api),
    }


class CheckpointClient:
    """The transports of one leader's term, each created for the first endpoint of its kind.

    A transport that connects to a pod's address has no credentials.
    """

    def __init__(self, factories: TransportFactories, max_calls: int = _MAX_CALLS) -> None:
        self._factories = factories
        self._transports: dict[type[Endpoint], Transport[Any]] = {}
        self._call_limiter = CallLimiter(max_calls, keeps_share_free=True)
        self._most_alone = max_calls // 2

    def reserve_call(self, namespace: str, on_granted: Callable[[], None]) -> CallTicket:
        """Return a slot for the call of a hint, or a place in the queue for it."""
        return CallTicket(self._call_limiter, CallPriority.NOTIFY, namespace, on_granted)

    def waits_for_itself(self, namespace: str) -> bool:
        """True if the namespace has more calls than it could make at a time if it called alone."""
        return self._call_limiter.count(namespace) > self._most_alone

    async def request_checkpoint(
        self,
        endpoint: Endpoint,
        request: CheckpointRequest,
        timeout_seconds: float,
        *,
        namespace: str = "",
        ticket: CallTicket | None = None,
        on_begin: Callable[[], None] = lambda: None,
    ) -> WorkloadReply:
        """Send a checkpoint request; the ticket is the caller's to release.

        `on_begin` is called once the call does not wait any more for others.
        """
        transport = self._transport(endpoint)
        slot = (
            self._call_limiter.acquire(CallPriority.NOTIFY, namespace)
            if ticket is None or not ticket.is_granted
            else contextlib.nullcontext()
        )
        return await _call(
            slot,
            lambda: transport.request_checkpoint(endpoint, request, timeout_seconds),
            timeout_seconds,
            ReplyKind.NOT_RECEIVED,
            on_begin,
        )

    async def poll(
        self,
        endpoint: Endpoint,
        eviction_id: str,
        timeout_seconds: float,
        *,
        namespace: str = "",
        on_begin: Callable[[], None] = lambda: None,
    ) -> WorkloadReply:
        """Ask for the progress of the checkpoint; has no effect on the workload.

        `on_begin` is called once the call does not wait any more for others.
        """
        transport = self._transport(endpoint)
        slot = self._call_limiter.acquire(CallPriority.RECORD, namespace)
        return await _call(
            slot,
            lambda: transport.poll(endpoint, eviction_id, timeout_seconds),
            timeout_seconds,
            ReplyKind.OUTCOME_UNKNOWN,
            on_begin,
        )

    async def cancel(
        self, endpoint: Endpoint, eviction_id: str, timeout_seconds: float, *, namespace: str = ""
    ) -> None:
        """Cancel the request, where the transport supports it."""
        transport = self._transport(endpoint)
        with contextlib.suppress(TimeoutError):
            async with (
                asyncio.timeout(timeout_seconds),
                self._call_limiter.acquire(CallPriority.TERMINATE, namespace),
            ):
                await transport.cancel(endpoint, eviction_id, timeout_seconds)

    async def close(self) -> None:
        """Close all transports."""
        for transport in self._transports.values():
            await transport.close()

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
    on_begin: Callable[[], None],
) -> WorkloadReply:
    async with contextlib.AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(timeout_seconds):
                await stack.enter_async_context(slot)
        except TimeoutError:
            # Without the timeout, workloads that hang delay the deadlines of other victims, and
            # not only their hints.
            return WorkloadReply(if_busy, detail="too many calls are in progress")
        on_begin()
        return await call()
