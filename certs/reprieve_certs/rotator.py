"""The loop that keeps certificates issued, trusted and served. It logs and counts its failures, and never ends by one.

One pass: read the Secret, make what is due (the first writer wins, others take what it wrote), serve it, inject it.
Every replica runs it; all agree because all they know is in the Secret.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reprieve_runtime.client.api import ApiError

from . import bundle as bundles
from . import renewal
from .bundle import Bundle
from .issue import ServingNames
from .serving import ServingContext

_LOG = logging.getLogger(__name__)
_MAX_STEPS = 8
"""Steps and lost races in one pass; more is a fight between replicas of different settings, left to the next pass."""
_FIRST_RETRY_SECONDS = 1.0


class WriteConflict(Exception):  # noqa: N818 - an outcome of a race, not an error
    """Another replica has written the Secret first."""


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """The Secret's data, and the version that a write must still find."""

    data: Mapping[str, bytes]
    version: str


class SecretStore(Protocol):
    """Where the bundle is kept."""

    async def read(self) -> StoredSecret:
        """Return what is stored; it may be empty."""

    async def write(self, data: Mapping[str, bytes], version: str) -> StoredSecret:
        """Replace the data; `Conflict` where it is no longer at `version`."""


class TrustAnchors(Protocol):
    """Where clients are told whom to trust."""

    async def read(self) -> Sequence[bytes]:
        """Return every client's trusted certificates, as PEM."""

    async def inject(self, trusted_pem: bytes) -> None:
        """Make every client trust exactly these."""


class Rotator:
    """Runs passes; `is_established` once the first has served and injected what it found or made."""

    def __init__(
        self,
        store: SecretStore,
        anchors: TrustAnchors,
        serving: ServingContext,
        names: ServingNames,
        *,
        clock: Callable[[], datetime],
        count_failure: Callable[[], None],
    ) -> None:
        self._store, self._anchors, self._serving, self._names = store, anchors, serving, names
        self._clock, self._count_failure = clock, count_failure
        self.is_ready = False
        self.ca_expires_at: datetime | None = None

    async def run(self, interval_seconds: float) -> None:
        """Pass after pass until cancelled; after a failure sooner, doubling up to the interval."""
        delay = min(_FIRST_RETRY_SECONDS, interval_seconds)
        while True:
            try:
                await self.ensure()
            except (ApiError, LookupError) as error:
                # Expected where the API server is away or the manifests are not applied: a sentence says all.
                _LOG.warning(
                    "certificates not ensured", extra={"error": str(error), "retry_seconds": delay}
                )
            except Exception:  # noqa: BLE001 - see below; logged with its traceback
                # Whatever it was: the last good certificate serves on, and the next pass may succeed.
                _LOG.exception("certificates not ensured", extra={"retry_seconds": delay})
            else:
                delay = min(_FIRST_RETRY_SECONDS, interval_seconds)
                await asyncio.sleep(interval_seconds)
                continue
            self._count_failure()
            await asyncio.sleep(delay)
            delay = min(delay * 2, interval_seconds)

    async def ensure(self) -> None:
        """One pass."""
        bundle = await self._renew()
        if self._serving.load(bundle.serving.certificate_pem, bundle.serving.key_pem):
            until = bundle.serving.certificate.not_valid_after_utc.isoformat()
            _LOG.info("serving certificate loaded", extra={"expires_at": until})
        self.ca_expires_at = bundle.ca.certificate.not_valid_after_utc
        await self._anchors.inject(bundle.trusted_pem)
        self.is_ready = True

    async def _renew(self) -> Bundle:
        stored = await self._store.read()
        for _ in range(_MAX_STEPS):
            now, bundle = self._clock(), bundles.parse(stored.data)
            is_trusted = await self._is_next_trusted(bundle)
            step = renewal.decide_renewal(now, bundle, self._names, is_next_trusted=is_trusted)
            if bundle is not None and step is None:
                return bundle
            assert step is not None
            stored = await self._write(step, stored, bundle, now)
        raise RuntimeError("the certificates' Secret did not settle")

    async def _write(
        self, step: renewal.RenewalStep, stored: StoredSecret, bundle: Bundle | None, now: datetime
    ) -> StoredSecret:
        salvaged = bundles.recover_ca_certificates(stored.data)
        after = renewal.apply_step(step, bundle, self._names, now, salvaged=salvaged)
        try:
            written = await self._store.write(bundles.render(after), stored.version)
        except WriteConflict:
            return await self._store.read()
        _LOG.info("certificates renewed", extra={"step": step.value})
        return written

    async def _is_next_trusted(self, bundle: Bundle | None) -> bool:
        if bundle is None or bundle.next_ca is None:
            return False
        pem = bundle.next_ca.certificate_pem
        return all(pem in trusted for trusted in await self._anchors.read())
