"""The open port for reviews, probes, reports and calls of schedulers, and which clients it trusts.

There are a few fixed paths: a lookup in a dictionary instead of an `Application` saves 15 to 25 %
of the time of a 4 KB review.
"""

import asyncio
import ssl
from collections.abc import Collection

from reprieve_runtime.serving import bounded_server
from reprieve_runtime.serving.bounded_server import Bounds, IsTrusted, OpenPort, trusts_no_client

from .server import Webhooks

BOUNDS = Bounds(connections=450, per_peer=450, idle_seconds=120.0)
"""A connection takes some 45 KB, and 240 KB with a body that is not read, or with one of 64 KB and
128 KB that it decodes to: 103 MiB in all. Beside these, larger bodies take 34 MiB, what large
reviews decode to takes 32 MiB, and the program some 80 MiB. An API server needs as many connections
as it has reviews under way, and closes an idle one after 90 s. All API servers of a managed cluster
may call from one address, that of a tunnel or a gateway, so that one address may have all. Unused
connections make room for others."""


def trusts(names: Collection[str]) -> IsTrusted:
    """Return whether a client has shown a certificate, with one of the names where there are any.

    TLS has verified it: without a CA for clients, no client is asked for a certificate.
    """

    def is_trusted(transport: asyncio.BaseTransport) -> bool:
        certificate = transport.get_extra_info("peercert")
        if not certificate:
            return False
        subject = {name: value for part in certificate["subject"] for name, value in part}
        return not names or subject.get("commonName") in names

    return is_trusted


async def listen(
    webhooks: Webhooks,
    context: ssl.SSLContext,
    *,
    address: str,
    port: int,
    bounds: Bounds = BOUNDS,
    is_trusted: IsTrusted = trusts_no_client,
    is_shared: bool = False,
) -> OpenPort:
    """Open the port; `is_shared`: further workers open it too."""
    return await bounded_server.listen(
        webhooks.respond,
        bounds,
        answer_now=webhooks.answer_now,
        on_lost=webhooks.forget,
        address=address,
        port=port,
        context=context,
        is_trusted=is_trusted,
        is_shared=is_shared,
    )
