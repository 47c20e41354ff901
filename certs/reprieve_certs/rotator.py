"""The loop that keeps certificates issued, trusted and served; it logs and survives all failures.

One pass: read the Secret, issue what is due (the first writer wins, the other replicas use its
result), serve the certificate, inject the CAs. Every replica runs the loop; all replicas agree,
because their whole state is in the Secret.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from reprieve_runtime.backoff import Backoff
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.waiting import wait_at_most

from . import bundle as bundles
from . import renewal
from .bundle import Bundle
from .issue import ServingNames
from .serving import ServingContext

_LOG = logging.getLogger(__name__)
_MAX_STEPS = 8
"""Steps and lost races in one pass. More happen only if replicas have different settings; the next
pass goes on."""
_FIRST_RETRY_SECONDS = 1.0
_SHORTEST_PAUSE_SECONDS = 1.0
"""Between two passes, however often a client's trusted certificates are changed."""


class WriteConflict(Exception):  # noqa: N818 - an outcome of a race, not an error
    """Another replica wrote the Secret first."""


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
        """Replace the data; `WriteConflict` if the version is no longer `version`."""


class TrustAnchors(Protocol):
    """The trusted certificates of the clients."""

    async def read(self) -> Sequence[bytes]:
        """Return every client's trusted certificates, as PEM."""

    async def inject(self, trusted_pem: bytes) -> None:
        """Make every client trust exactly these certificates."""


class Rotator:
    """Runs passes; `is_ready` after the first pass that served and injected certificates."""

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
        self._changed = asyncio.Event()
        self.is_ready = False
        self.ca_expires_at: datetime | None = None
        self.trusted_pem: bytes | None = None
        """The CAs that clients must trust; `None` before the first pass."""

    async def run(self, interval_seconds: float) -> None:
        """Run a pass at each interval until cancelled; sooner after a failure, with back-off.

        A change that `wake` reports is looked at within a second, after a failure too.
        """
        first = min(_FIRST_RETRY_SECONDS, interval_seconds)
        backoff = Backoff(first, interval_seconds, jitter=0.0)
        while True:
            self._changed.clear()
            try:
                await self.ensure()
            except (ApiError, LookupError) as error:
                # Expected if the API server is down or the manifests are not applied: log no
                # traceback.
                delay = backoff.next_delay()
                extra = {"error": str(error), "retry_seconds": delay}
                _LOG.warning("could not renew or inject certificates", extra=extra)
            except Exception:  # noqa: BLE001 - see below; logged with its traceback
                # The last good certificate is still served, and the next pass may succeed.
                delay = backoff.next_delay()
                extra = {"retry_seconds": delay}
                _LOG.exception("could not renew or inject certificates", extra=extra)
            else:
                backoff.reset()
                await self._pause(interval_seconds)
                continue
            self._count_failure()
            await self._pause(delay)

    def wake(self) -> None:
        """Run a pass soon: a client's address or its trusted certificates have changed."""
        self._changed.set()

    async def _pause(self, seconds: float) -> None:
        shortest = min(seconds, _SHORTEST_PAUSE_SECONDS)
        await asyncio.sleep(shortest)
        await wait_at_most(self._changed, seconds - shortest)

    async def ensure(self) -> None:
        """Run one pass."""
        bundle = await self._renew()
        if self._serving.load(bundle.serving.certificate_pem, bundle.serving.key_pem):
            until = bundle.serving.certificate.not_valid_after_utc.isoformat()
            _LOG.info("serving certificate loaded", extra={"expires_at": until})
        self.ca_expires_at = bundle.ca.certificate.not_valid_after_utc
        await self._anchors.inject(bundle.trusted_pem)
        self.trusted_pem = bundle.trusted_pem
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
        raise RuntimeError(
            "the Secret of the certificates keeps changing: check that all replicas have the same "
            "settings"
        )

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
