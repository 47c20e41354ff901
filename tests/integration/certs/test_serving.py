"""The served certificate changes without a restart, and never to an invalid one."""

import asyncio
import errno
import os
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding

from reprieve_certs import issue
from reprieve_certs.issue import Credential
from reprieve_certs.serving import CertificateFiles, ServingContext
from reprieve_testing.servers.reviews import (
    LOOPBACK,
    RunningServer,
    a_pod,
    a_review,
    running_server,
    trusting,
)

NOW = datetime.now(UTC)


def a_pair(ca: Credential | None = None) -> Credential:
    return issue.issue_serving(ca or issue.issue_ca(NOW), LOOPBACK, NOW)


def load(serving: ServingContext, pair: Credential) -> None:
    serving.load(pair.certificate_pem, pair.key_pem)


async def served_by(server: RunningServer, context: ssl.SSLContext) -> bytes:
    """Return the certificate that a new connection is shown, as DER."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return shown


async def test_new_connections_get_the_new_certificate_and_open_ones_stay_open():
    async with running_server() as server:
        await server.ask("/validate", a_review(a_pod()))
        pair = a_pair(server.ca)
        load(server.serving, pair)

        # The session's connection is kept alive: it was opened before the change.
        await server.ask("/validate", a_review(a_pod()))
        assert await served_by(server, trusting(server.ca)) == pair.certificate.public_bytes(
            Encoding.DER
        )


async def test_no_session_tickets_are_sent():
    async with running_server() as server:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", server.port, ssl=trusting(server.ca)
        )
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        async with asyncio.timeout(60):
            await reader.readuntil(b"ok\n")  # tickets come before the first answer

        assert not writer.get_extra_info("ssl_object").session.has_ticket
        writer.transport.abort()


async def test_a_new_ca_is_accepted_only_by_clients_that_trust_it():
    async with running_server() as server:
        ca = issue.issue_ca(NOW)
        load(server.serving, a_pair(ca))

        assert await served_by(server, trusting(ca))
        with pytest.raises(ssl.SSLCertVerificationError):
            await served_by(server, trusting(server.ca))


async def test_a_changed_key_type_replaces_the_old_certificate():
    async with running_server() as server:
        load(server.serving, an_rsa_pair(server.ca))
        pair = a_pair(server.ca)
        load(server.serving, pair)
        context = trusting(server.ca)
        # A client that prefers RSA would get an old RSA certificate, which has its own slot.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES128-GCM-SHA256")

        assert await served_by(server, context) == pair.certificate.public_bytes(Encoding.DER)


def an_rsa_pair(ca: Credential) -> Credential:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(ca.certificate.subject)
        .issuer_name(ca.certificate.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
        .sign(ca.key, hashes.SHA256())
    )
    return Credential(certificate, key)  # type: ignore[arg-type]  # of another type on purpose


BROKEN: dict[str, Callable[[Credential, Credential], tuple[bytes, bytes]]] = {
    "the key of another certificate": lambda one, other: (one.certificate_pem, other.key_pem),
    "half a certificate": lambda one, _: (one.certificate_pem[:200], one.key_pem),
    "half a key": lambda one, _: (one.certificate_pem, one.key_pem[:100]),
    "no certificate": lambda one, _: (b"", one.key_pem),
    "no key": lambda one, _: (one.certificate_pem, b""),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
async def test_after_an_invalid_pair_the_last_good_one_is_served(
    broken: Callable[[Credential, Credential], tuple[bytes, bytes]],
):
    async with running_server() as server:
        before = await served_by(server, trusting(server.ca))
        with pytest.raises(ValueError):  # noqa: PT011 - whatever OpenSSL says of it
            server.serving.load(*broken(a_pair(server.ca), a_pair(server.ca)))

        assert await served_by(server, trusting(server.ca)) == before


async def test_before_the_first_load_only_handshakes_fail():
    serving = ServingContext()
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=serving.listener)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection("127.0.0.1", port, ssl=trusting(issue.issue_ca(NOW)))
    server.close()
    await server.wait_closed()


class TestFiles:
    """A directory that cert-manager writes."""

    def setup_method(self) -> None:
        self.failures = 0

    def count(self) -> None:
        self.failures += 1

    def write(self, directory: Path, pair: Credential) -> None:
        (directory / "tls.crt").write_bytes(pair.certificate_pem)
        (directory / "tls.key").write_bytes(pair.key_pem)

    def test_certificate_files_are_loaded_once_and_again_after_a_change(self, tmp_path: Path):
        serving = ServingContext()
        files = CertificateFiles(tmp_path, serving, count_failure=self.count)
        self.write(tmp_path, a_pair())
        files.load()
        first = serving._current
        files.load()
        assert serving._current is first
        self.write(tmp_path, a_pair())
        files.load()

        assert serving._current is not first
        assert (files.is_ready, self.failures) == (True, 0)

    def test_half_written_files_keep_the_last_valid_pair_and_are_counted_once(self, tmp_path: Path):
        serving = ServingContext()
        files = CertificateFiles(tmp_path, serving, count_failure=self.count)
        self.write(tmp_path, a_pair())
        files.load()
        good = serving._current
        pair = a_pair()
        (tmp_path / "tls.crt").write_bytes(pair.certificate_pem)
        files.load()
        files.load()

        assert serving._current is good
        assert self.failures == 1
        (tmp_path / "tls.key").write_bytes(pair.key_pem)
        files.load()
        assert serving._current is not good

    def test_a_pair_that_could_not_be_loaded_for_want_of_files_is_tried_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        files = CertificateFiles(tmp_path, ServingContext(), count_failure=self.count)
        self.write(tmp_path, a_pair())

        def fail(_: str) -> int:
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as patched:
            patched.setattr(os, "memfd_create", fail)
            files.load()
        assert not files.is_ready
        files.load()
        assert (files.is_ready, self.failures) == (True, 1)

    def test_absent_files_establish_no_certificate(self, tmp_path: Path):
        files = CertificateFiles(tmp_path / "none", ServingContext(), count_failure=self.count)
        files.load()

        assert (files.is_ready, self.failures) == (False, 1)
