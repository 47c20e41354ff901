"""Large bodies that do not fit beside each other wait, and are told why if they wait too long.

Clients with the certificate of an API server do not wait for others.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource
from reprieve_testing.servers.attackers import Attackers
from reprieve_testing.servers.reviews import (
    FixedFacts,
    RunningServer,
    a_pod,
    a_review,
    running_server,
)
from reprieve_testing.servers.reviews import trusting as trusting_server
from reprieve_testing.servers.stub_api import until
from reprieve_testing.servers.webhook_program import any_certificate
from reprieve_webhooks import listener
from reprieve_webhooks.admission.handlers import AdmissionResponse
from reprieve_webhooks.admission.review import AdmissionRequest
from reprieve_webhooks.guard.review import GuardRequest
from reprieve_webhooks.http import decoded_size
from reprieve_webhooks.http.body_budget import SMALL_BYTES, Client

LARGEST = 256 * 1024
LARGE = json.dumps(a_review(a_pod(annotations={"x": "y" * 200_000}))).encode()
HERE, ELSEWHERE = "127.0.0.1", "192.0.2.1"


async def fill(server: RunningServer, *peers: str) -> None:
    """Let bodies of these peers be under way, each of the largest size."""
    for number, peer in enumerate(peers):
        await server.webhooks._budget.reserve(Client(number, peer), LARGEST)


@pytest.mark.parametrize(
    ("peers", "status", "reason"),
    [
        ((ELSEWHERE, "192.0.2.2"), 503, "too many large ones of other clients"),
        ((HERE,), 429, "other large ones of your address"),
    ],
)
async def test_a_large_review_that_finds_no_room_is_told_why_and_a_small_one_is_answered(
    peers: tuple[str, ...], status: int, reason: str
) -> None:
    async with running_server(max_review_bytes=LARGEST, read_timeout_seconds=0.2) as server:
        await fill(server, *peers)
        assert await server.send("/validate", LARGE) == (
            status,
            f"the review was not read within 0.2 s: {reason} are under way; try again\n",
        )
        assert (await server.ask("/validate", a_review(a_pod())))["allowed"] is True
        server.webhooks._budget.release(0)
        assert (await server.send("/validate", LARGE))[0] == 200


async def test_bodies_that_do_not_come_make_room_for_a_review() -> None:
    async with (
        running_server(max_review_bytes=LARGEST, read_timeout_seconds=120.0) as server,
        Attackers(server.port, addresses=2, context=any_certificate()) as attackers,
    ):
        attackers.stall(2, LARGEST)
        for peer in ("127.66.0.1", "127.66.0.2"):
            await until(lambda peer=peer: server.webhooks._budget.is_used_by(peer))
        assert (await server.send("/validate", LARGE))[0] == 200


async def test_a_body_that_others_wait_for_is_told_why_it_was_not_read_to_its_end() -> None:
    async with running_server(max_review_bytes=LARGEST, read_timeout_seconds=120.0) as server:
        await fill(server, "192.0.2.2")
        async with asyncio.TaskGroup() as tasks:
            slow = tasks.create_task(send_without_end(server, LARGE[:-1]))
            await until(lambda: server.webhooks._budget.is_used_by(HERE))
            tasks.create_task(server.webhooks._budget.reserve(Client(1, ELSEWHERE), LARGEST))
        assert slow.result() == (
            408,
            "the review did not come within 1 s, and other large ones wait\n",
        )


def write_client_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a CA, and a certificate of this common name with its key; return both files."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = folder / "client-ca.crt"
    public.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    both = folder / "client.pem"
    both.write_bytes(
        public.read_bytes()
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return public, both


@pytest.mark.parametrize(
    ("names", "status"), [((), 200), (("kube-apiserver",), 200), (("another",), 429)]
)
async def test_a_client_with_the_certificate_of_an_api_server_goes_first(
    tmp_path: Path, names: tuple[str, ...], status: int
) -> None:
    authority, pair = write_client_certificate(tmp_path, "kube-apiserver")
    async with running_server(
        max_review_bytes=LARGEST,
        read_timeout_seconds=0.2,
        client_ca=authority,
        is_trusted=listener.trusts(names),
    ) as server:
        await fill(server, HERE)
        context = trusting_server(server.ca)
        context.load_cert_chain(pair)
        assert (await send_large(server, context)) == status
        # Who shows none is answered as before.
        assert (await send_large(server, trusting_server(server.ca))) == 429
        assert (await server.ask("/validate", a_review(a_pod())))["allowed"] is True


MANY_VALUES = json.dumps(
    a_review(
        {"kind": "Pod", "apiVersion": "v1", "metadata": {}, "spec": {"containers": [{}] * 9000}}
    )
).encode()
DECODED = decoded_size.most_bytes(MANY_VALUES)


async def fill_decoded(server: RunningServer, *peers: str) -> None:
    """Let these peers have reviews under way that decode to as much as one may have."""
    for number, peer in enumerate(peers):
        await server.webhooks._decoded.reserve(Client(number, peer), 24 * 1024 * 1024 - 1)
    await server.webhooks._decoded.reserve(Client("rest", "192.0.2.3"), 8 * 1024 * 1024)


@pytest.mark.parametrize("path", ["/validate", "/mutate", "/guard"])
@pytest.mark.parametrize(
    ("peer", "status", "reason"),
    [
        (ELSEWHERE, 503, "too many large ones of other clients"),
        (HERE, 429, "other large ones of your address"),
    ],
)
async def test_a_review_of_many_values_that_finds_no_room_is_told_why(
    path: str, peer: str, status: int, reason: str
) -> None:
    """It has less than 64 KiB, and decodes to 1 MB."""
    assert len(MANY_VALUES) < SMALL_BYTES
    async with running_server(read_timeout_seconds=0.2, guard=NeverAsked()) as server:
        await fill_decoded(server, peer)
        assert await server.send(path, MANY_VALUES) == (
            status,
            f"the review was not decoded within 0.2 s: {reason} are under way; try again\n",
        )
        assert (await server.ask("/validate", a_review(a_pod())))["allowed"] is True
        server.webhooks._decoded.release(0)
        assert (await server.send("/validate", MANY_VALUES))[0] == 200


@dataclass
class HeldFacts(FixedFacts):
    """Facts that are known only once they are released."""

    released: asyncio.Event = field(default_factory=asyncio.Event)
    asked: int = 0

    async def facts_for(self, request: AdmissionRequest, resource: Resource) -> Facts:
        self.asked += 1
        await self.released.wait()
        return await super().facts_for(request, resource)


async def test_reviews_keep_what_they_decode_to_until_they_are_answered() -> None:
    facts = HeldFacts()
    async with running_server(read_timeout_seconds=60.0, source=facts) as server:
        async with asyncio.TaskGroup() as tasks:
            sent = [tasks.create_task(server.send("/validate", MANY_VALUES)) for _ in range(40)]
            most = 24 * 1024 * 1024 // DECODED
            await until(lambda: facts.asked == most)
            await until(lambda: len(server.webhooks._decoded._waiting) == 40 - most)
            assert facts.asked == most
            assert (await server.get("/healthz"))[0] == 200
            facts.released.set()
        assert {status for status, _ in (each.result() for each in sent)} == {200}
        assert not server.webhooks._decoded.is_used_by(HERE)


async def test_a_review_whose_connection_is_closed_waits_no_longer() -> None:
    async with running_server(read_timeout_seconds=600.0) as server:
        await fill_decoded(server, HERE)
        waiting = server.webhooks._decoded._waiting
        asked = asyncio.create_task(server.send("/validate", MANY_VALUES))
        await until(lambda: len(waiting) == 1)
        (review,) = waiting
        asked.cancel()
        await until(review.granted.cancelled)


class NeverAsked:
    """A guard of which no review asks."""

    async def answer(self, request: GuardRequest) -> AdmissionResponse:
        raise AssertionError(request.uid)


async def send_without_end(server: RunningServer, body: bytes) -> tuple[int, str]:
    """Send a body in chunks, of which the last one never comes."""

    async def chunks() -> AsyncIterator[bytes]:
        yield body
        await asyncio.Event().wait()

    headers = {"Content-Type": "application/json"}
    async with server.session.post(
        f"{server.url}/validate", data=chunks(), headers=headers
    ) as reply:
        return reply.status, await reply.text()


async def send_large(server: RunningServer, context: ssl.SSLContext) -> int:
    headers = {"Content-Type": "application/json"}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
        session.post(f"{server.url}/validate", data=LARGE, headers=headers) as reply,
    ):
        return reply.status
