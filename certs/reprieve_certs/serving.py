"""The TLS context of the server, whose certificate changes while connections are open and new ones arrive.

Every load makes a whole context of its own, which the next handshakes use; connections that are open keep theirs. A pair
that does not load changes nothing: the last good one goes on.
"""

import os
import ssl
from datetime import datetime

from cryptography import x509


class ServingContext:
    """One `ssl.SSLContext` for the listener, and behind it the context of the certificate that is current."""

    def __init__(self) -> None:
        self._current: ssl.SSLContext | None = None
        self._loaded: tuple[bytes, bytes] | None = None
        self.expires_at: datetime | None = None
        self.listener = _context()
        # OpenSSL asks at each handshake, with or without a server name. Loading into one context instead would leave
        # an old RSA certificate in place beside a new ECDSA one: each key type has its own slot.
        self.listener.sni_callback = self._select_context

    def load(self, certificate_pem: bytes, key_pem: bytes) -> bool:
        """Serve this pair from the next handshake on; True where it is another than before.

        Raises `ValueError` where it is unreadable or no pair, and leaves the last good one in force.
        """
        if self._loaded == (certificate_pem, key_pem):
            return False
        expires_at = x509.load_pem_x509_certificate(certificate_pem).not_valid_after_utc
        context = _context()
        try:
            _load_from_memory(context, certificate_pem, key_pem)
        except ssl.SSLError as error:
            raise ValueError(f"certificate and key are no pair: {error.reason}") from error
        self._current, self._loaded, self.expires_at = (
            context,
            (certificate_pem, key_pem),
            expires_at,
        )
        return True

    def _select_context(
        self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> int | None:  # noqa: ARG002
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # API servers keep connections and resume no session: making two tickets for each would be a fifth of a handshake.
    context.num_tickets = 0
    return context


def _load_from_memory(context: ssl.SSLContext, certificate_pem: bytes, key_pem: bytes) -> None:
    """Load a pair that never touches a disk: `load_cert_chain` reads files only, and an anonymous one will do."""
    descriptor = os.memfd_create("serving-certificate")
    with os.fdopen(descriptor, "wb") as file:
        file.write(key_pem + b"\n" + certificate_pem)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
