"""A certificate that somebody else renews, as two files in a directory (cert-manager, a mounted Secret).

The files are read when they change. While they are being written they are no pair, which is only logged: the last good
pair serves on.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from .bundle import SERVING_CERTIFICATE, SERVING_KEY
from .serving import ServingContext

_LOG = logging.getLogger(__name__)


class CertificateFiles:
    """Loads `tls.crt` and `tls.key` of a directory; `is_established` once a pair was loaded."""

    def __init__(
        self, directory: Path, serving: ServingContext, *, count_failure: Callable[[], None]
    ) -> None:
        self._directory, self._serving, self._count_failure = directory, serving, count_failure
        self._rejected: tuple[bytes, bytes] | None = None
        self.is_ready = False

    async def run(self, interval_seconds: float) -> None:
        """Look again every `interval_seconds`, until cancelled."""
        while True:
            self.load()
            await asyncio.sleep(interval_seconds)

    def load(self) -> None:
        """Serve the pair that is there now, if it is a new one and a pair."""
        pair: tuple[bytes, bytes] | None = None
        try:
            pair = self._read(SERVING_CERTIFICATE), self._read(SERVING_KEY)
            if pair != self._rejected and self._serving.load(*pair):
                _LOG.info(
                    "serving certificate loaded",
                    extra={"expires_at": str(self._serving.expires_at)},
                )
                self.is_ready = True
        except (OSError, ValueError) as error:
            self._rejected = pair
            self._count_failure()
            _LOG.warning("serving certificate not loaded", extra={"error": str(error)})

    def _read(self, name: str) -> bytes:
        return (self._directory / name).read_bytes()
