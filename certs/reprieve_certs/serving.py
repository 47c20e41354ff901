"""The TLS context of the server, and certificate files that change while the server runs.

Every load makes a new context, which the next handshakes use; open connections keep theirs. A pair
that does not load changes nothing: the last good pair stays in use. Files are for a certificate
that others renew, as two files in a directory (cert-manager, a mounted Secret).
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from cryptography import x509

from .bundle import SERVING_CERTIFICATE, SERVING_KEY
from .issue import SERVING_LIFETIME, ServingNames, issue_ca, issue_serving

_LOG = logging.getLogger(__name__)


class ServingContext:
    """One `ssl.SSLContext` for the listener; it selects the context of the current certificate.

    With a file of CAs, clients may show a certificate, which one of these CAs must have signed.
    """

    def __init__(self, client_ca: Path | None = None) -> None:
        self._client_ca = None if client_ca is None else client_ca.read_text(encoding="ascii")
        self._current: ssl.SSLContext | None = None
        self._loaded: tuple[bytes, bytes] | None = None
        self.expires_at: datetime | None = None
        try:
            self.listener = self._new_context()
        except ssl.SSLError as error:
            raise OSError(f"{client_ca}: no certificates in PEM form") from error
        # OpenSSL calls this at each handshake, with or without a server name. Loading into one
        # context instead would keep an old RSA certificate beside a new ECDSA one: each key type
        # has its own slot.
        self.listener.sni_callback = self._select_context

    def load(self, certificate_pem: bytes, key_pem: bytes) -> bool:
        """Serve this pair from the next handshake on; return whether it differs from the last one.

        Raises `ValueError` if it is unreadable or does not match, and keeps the last good pair.
        """
        if self._loaded == (certificate_pem, key_pem):
            return False
        expires_at = x509.load_pem_x509_certificate(certificate_pem).not_valid_after_utc
        context = self._new_context()
        try:
            _load_from_memory(context, certificate_pem, key_pem)
        except ssl.SSLError as error:
            raise ValueError(f"the certificate and the key do not match: {error.reason}") from error
        self._current, self._loaded, self.expires_at = (
            context,
            (certificate_pem, key_pem),
            expires_at,
        )
        return True

    def _select_context(
        self,
        connection: ssl.SSLObject,
        name: str | None,  # noqa: ARG002 - OpenSSL's callback
        context: ssl.SSLContext,  # noqa: ARG002
    ) -> int | None:
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None

    def _new_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # API servers keep connections and resume no sessions: their client has no cache for them.
        # Two tickets would take 8 % of the processor time of a new connection, and a resumed
        # session as much as a new one: signing with ECDSA is cheap.
        context.num_tickets = 0
        if self._client_ca is not None:
            context.load_verify_locations(cadata=self._client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context


def _load_from_memory(context: ssl.SSLContext, certificate_pem: bytes, key_pem: bytes) -> None:
    """Load a pair through an anonymous file in memory, as `load_cert_chain` reads files only."""
    descriptor = os.memfd_create("serving-certificate")
    with os.fdopen(descriptor, "wb") as file:
        file.write(key_pem + b"\n" + certificate_pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")


def load_self_signed(serving: ServingContext, names: ServingNames, now: datetime) -> None:
    """Serve a new certificate that no client can verify, for clients that do not verify it."""
    credential = issue_serving(issue_ca(now), names, now)
    serving.load(credential.certificate_pem, credential.key_pem)


async def keep_self_signed(
    serving: ServingContext, names: ServingNames, *, clock: Callable[[], datetime]
) -> None:
    """Serve such a certificate, and a new one in time, until cancelled."""
    while True:
        load_self_signed(serving, names, clock())
        await asyncio.sleep(SERVING_LIFETIME.total_seconds() / 2)


class CertificateFiles:
    """Loads `tls.crt` and `tls.key` of a directory; `is_ready` once a pair was loaded.

    While the files are being written they may not match; that is only logged.
    """

    def __init__(
        self, directory: Path, serving: ServingContext, *, count_failure: Callable[[], None]
    ) -> None:
        self._directory, self._serving, self._count_failure = directory, serving, count_failure
        self._rejected: tuple[bytes, bytes] | None = None
        self.is_ready = False
        self.trusted_pem: bytes | None = None
        """Unknown: the program that renews the files knows which CA signs them."""

    async def run(self, interval_seconds: float) -> None:
        """Load the files every `interval_seconds`, until cancelled."""
        while True:
            self.load()
            await asyncio.sleep(interval_seconds)

    def load(self) -> None:
        """Serve the current pair, if it is new and matches."""
        pair: tuple[bytes, bytes] | None = None
        try:
            pair = self._read(SERVING_CERTIFICATE), self._read(SERVING_KEY)
            if pair != self._rejected and self._serving.load(*pair):
                extra = {"expires_at": str(self._serving.expires_at)}
                _LOG.info("serving certificate loaded", extra=extra)
                self.is_ready = True
        except (OSError, ValueError) as error:
            # An operating system that is short of files or memory says nothing about the pair.
            self._rejected = pair if isinstance(error, ValueError) else None
            self._count_failure()
            _LOG.warning("could not load the serving certificate", extra={"error": str(error)})

    def _read(self, name: str) -> bytes:
        return (self._directory / name).read_bytes()
