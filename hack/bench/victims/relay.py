"""Counts the bytes between a program and the API server.

A port forwards everything unchanged, TLS included. It has a turn of its own, because forwarding
takes time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

_CHUNK = 1 << 16


@dataclass
class Relay:
    """The relay's address, and the bytes so far."""

    port: int = 0
    sent: int = 0
    received: int = 0


@contextmanager
def to(port: int) -> Iterator[Relay]:
    """Forward to a port of this machine during the block."""
    relay, loop, stop = Relay(), asyncio.new_event_loop(), asyncio.Event()
    ready = threading.Event()
    thread = threading.Thread(
        target=loop.run_until_complete, args=(_serve(relay, port, ready, stop),)
    )
    thread.start()
    ready.wait()
    try:
        yield relay
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


async def _serve(relay: Relay, port: int, ready: threading.Event, stop: asyncio.Event) -> None:
    connections: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        there, back = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.gather(
                _pass(reader, back, relay, "sent"), _pass(there, writer, relay, "received")
            )
        except (OSError, asyncio.CancelledError):
            back.close()
            writer.close()
        finally:
            connections.discard(task)

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        relay.port = server.sockets[0].getsockname()[1]
        ready.set()
        await stop.wait()
        server.close()
        for task in list(connections):
            task.cancel()
        await asyncio.gather(*connections)


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, relay: Relay, way: str
) -> None:
    while data := await reader.read(_CHUNK):
        setattr(relay, way, getattr(relay, way) + len(data))
        writer.write(data)
        await writer.drain()
    writer.close()
