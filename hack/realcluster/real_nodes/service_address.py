"""The address of the Service `kubernetes`: where programs in pods look for the API server.

There is no kube-proxy. The address is on a bridge without ports, so that every pod reaches it by
its node, and this program passes connections on to the API server. Other Services have no address;
the API server itself calls webhooks at the addresses of their pods.

`python -m realcluster.real_nodes.service_address ADDRESS PORT` runs it until TERM.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import sys
from pathlib import Path

from realcluster.state import Cluster

from . import kernel
from .config import bridge_name

PROCESS = "kubernetes-service"
PORT = 443
BLOCK_BYTES = 1 << 16


def start(cluster: Cluster) -> None:
    """Create the address, and start the program unless it runs."""
    network = ipaddress.IPv4Network(cluster.service_cidr)
    address = str(next(network.hosts()))
    kernel.add_bridge(bridge(cluster), f"{address}/32", address)
    arguments = [address, cluster.port("kube-apiserver")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", f"{__package__}.{Path(__file__).stem}", *arguments]
    cluster.processes.start(PROCESS, command, environment)


def stop(cluster: Cluster) -> None:
    """End the program and remove the address."""
    cluster.processes.stop([PROCESS])
    kernel.remove_bridge(bridge(cluster))


def bridge(cluster: Cluster) -> str:
    """Return the name of the bridge that has the address."""
    return bridge_name(f"{cluster.name}/{PROCESS}")


async def serve(address: str, target: int) -> None:
    """Pass each connection to `address` on to port `target` of loopback."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            beyond_reader, beyond_writer = await asyncio.open_connection("127.0.0.1", target)
            with contextlib.closing(beyond_writer):
                await asyncio.gather(_copy(reader, beyond_writer), _copy(beyond_reader, writer))

    server = await asyncio.start_server(connected, address, PORT)
    async with server:
        await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction of a connection until its end, and pass the end on."""
    while block := await reader.read(BLOCK_BYTES):
        writer.write(block)
        await writer.drain()
    with contextlib.suppress(OSError):
        writer.write_eof()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
