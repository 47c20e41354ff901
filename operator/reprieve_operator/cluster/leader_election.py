"""Which replica leads: a Lease that is acquired, renewed, lost and released.

The official Python client's election is not used: it writes local time as UTC, does not survive a
refused connection, and never releases the lease. As in client-go, a lease counts as expired only
after the *observer* has seen it unchanged for its duration: clocks of two machines are never
compared.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

from reprieve_operator.clock import Clock, Instant
from reprieve_operator.settings import OperatorSettings
from reprieve_policy.kube.values import timestamp
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.lease import Lease

from .retries import GONE_OR_CHANGED

_log = logging.getLogger(__name__)
_RELEASE_SECONDS = 2.0
_LAST_WRITES_SECONDS = 20.0
"""For the writes with which a term ends."""


class NotLeading(Exception):  # noqa: N818 - a state, not an error
    """This replica's lease has ended, or may have: it must write nothing."""


class LeaderElection:
    """One replica's part in the election."""

    def __init__(self, api: Api, settings: OperatorSettings, clock: Clock) -> None:
        self._api = api
        self._settings = settings
        self._clock = clock
        self._holder_identity = settings.holder_identity
        self._path = object_path("leases", settings.namespace, settings.lease_name)
        self._observed_lease: Lease | None = None
        self._observed_at = Instant.now(clock)
        self._renewed_at: Instant | None = None
        self._is_failing = False
        self._is_holding = False
        self._is_written_last = False
        """True once the last call was a write of the lease, and its answer is known."""

    @property
    def is_leading(self) -> bool:
        """True while this replica certainly holds the lease, even after its process was paused."""
        renewed = self._renewed_at
        return (
            renewed is not None
            and renewed.elapsed_seconds(self._clock) < self._settings.renew_deadline_seconds
        )

    @property
    def holder(self) -> str:
        """The identity that the Lease last named; empty where it named none."""
        lease = self._observed_lease
        return "" if lease is None else lease.spec.holderIdentity or ""

    def require_leadership(self) -> float:
        """Return the seconds for which this replica certainly leads; raises `NotLeading`.

        It is called before every write. What gets `NotLeading` ends, and only a new term starts it
        again: so this term ends, also where the clock is put back at once.
        """
        renewed = self._renewed_at
        left = (
            0.0
            if renewed is None
            else self._settings.renew_deadline_seconds - renewed.elapsed_seconds(self._clock)
        )
        if left <= 0:
            self._renewed_at = None
            raise NotLeading
        return left

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Compete for the lease until cancelled.

        `lead` runs while the lease is held, and is cancelled when it is lost.
        """
        try:
            while True:
                await self._acquire()
                _log.info("leading", extra={"identity": self._holder_identity})
                await self._lead_and_renew(lead)
                _log.warning("no longer leading", extra={"identity": self._holder_identity})
        finally:
            await self._release()

    async def _acquire(self) -> None:
        while not await self._try_acquire_or_renew():  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(self._seconds_to_next_try())

    def _seconds_to_next_try(self) -> float:
        """Return how long to wait: never much beyond the end of the lease that another one holds.

        Without this, a leader that was killed is followed up to a whole retry period later.
        """
        period, left = self._settings.retry_period_seconds, self._seconds_held_by_another()
        pause = period * random.uniform(1.0, 1.2)  # noqa: S311 - jitter
        return min(pause, left + period * random.uniform(0.0, 0.1)) if left > 0 else pause  # noqa: S311

    async def _lead_and_renew(self, lead: Callable[[], Awaitable[None]]) -> None:
        term = asyncio.ensure_future(lead())
        self._is_holding = True
        try:
            while self.is_leading and not term.done():
                await asyncio.wait([term], timeout=self._settings.retry_period_seconds)
                # An expired lease is lost even if no replica holds it: one may be about to.
                if (
                    self.is_leading
                    and not await self._try_acquire_or_renew()
                    and self._is_held_by_another()
                ):
                    break
        finally:
            self._is_holding = False
            if self._is_held_by_another() or not self.is_leading:
                self._renewed_at = None
            term.cancel()
            await self._wait_for_end(term)
        if not term.cancelled() and not isinstance(term.exception(), NotLeading):
            term.result()

    async def _wait_for_end(self, term: "asyncio.Future[None]") -> None:
        """Wait for a term that was cancelled; renew the lease meanwhile, while it is held.

        The last leader releases its victims, which may take longer than the lease. Not for ever:
        a term that does not end must not keep another replica from leading. It is cancelled again,
        as libraries may take a cancellation for a time-out of theirs.
        """
        until = self._clock.monotonic() + _LAST_WRITES_SECONDS
        # The lease may hold for a while longer.
        cancel_again_at = until + self._settings.lease_duration_seconds
        while not term.done():
            # Not `await term`: its cancellation and our own would look the same, and a SIGTERM at
            # this moment would be lost.
            await asyncio.wait([term], timeout=self._settings.retry_period_seconds)
            if not term.done() and self.is_leading and self._clock.monotonic() < until:
                await self._try_acquire_or_renew()
            if self._clock.monotonic() >= cancel_again_at:
                term.cancel()
                cancel_again_at += _LAST_WRITES_SECONDS

    async def _try_acquire_or_renew(self) -> bool:
        """Try once to acquire or renew the lease; true if that worked."""
        started_at = Instant.now(self._clock)
        is_known, self._is_written_last = self._is_written_last, False
        try:
            # Shorter than the deadline: one call that hangs must not cost the lease.
            async with asyncio.timeout(self._settings.renew_deadline_seconds / 2):
                # Most renewals are one call. Without this, an API server whose calls take some
                # seconds would cost the lease.
                if not (is_known and await self._try_write()):
                    self._set_observed_lease(await self._read())
                    if self._is_held_by_another():
                        return False
                    self._set_observed_lease(await self._write())
            self._is_written_last = True
        except (ApiError, TimeoutError) as error:
            is_race = isinstance(error, ApiError) and error.status in GONE_OR_CHANGED
            level = logging.DEBUG if is_race or self._is_failing else logging.WARNING
            _log.log(level, "could not renew the lease", extra={"error": str(error) or "timeout"})
            self._is_failing = not is_race
            return False
        if self._is_holding and not self.is_leading:
            # Renewed too late: reconcilers have got `NotLeading` and ended. Only a new term starts
            # them again.
            return False
        self._renewed_at, self._is_failing = started_at, False
        return True

    async def _try_write(self) -> bool:
        """Write the lease at the version that is known; false if that is not its version now."""
        try:
            self._set_observed_lease(await self._write())
        except ApiError as error:
            if error.status not in GONE_OR_CHANGED:
                raise
            return False
        return True

    async def _read(self) -> Lease | None:
        try:
            return await self._api.get(self._path, Lease)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    def _set_observed_lease(self, lease: Lease | None) -> None:
        if lease != self._observed_lease:
            self._observed_lease, self._observed_at = lease, Instant.now(self._clock)

    def _is_held_by_another(self) -> bool:
        """True while another replica holds the lease, as far as this one can observe."""
        return self._seconds_held_by_another() > 0

    def _seconds_held_by_another(self) -> float:
        """Return for how long another replica holds the lease if it does not renew it."""
        if self._observed_lease is None or self._observed_lease.spec.holderIdentity in (
            None,
            "",
            self._holder_identity,
        ):
            return 0.0
        duration = (
            self._observed_lease.spec.leaseDurationSeconds or self._settings.lease_duration_seconds
        )
        # Only the monotonic clock counts: the wall clock may jump, and taking a lease early is
        # worse than taking it late.
        return duration - (self._clock.monotonic() - self._observed_at.monotonic)

    async def _write(self) -> Lease:
        now = self._clock.now()
        before = self._observed_lease
        is_ours = before is not None and before.spec.holderIdentity == self._holder_identity
        transitions = before.spec.leaseTransitions or 0 if before else 0
        spec = {
            "holderIdentity": self._holder_identity,
            "leaseDurationSeconds": self._settings.lease_duration_seconds,
            "acquireTime": before.spec.acquireTime
            if is_ours and before
            else timestamp.render_micro(now),
            "renewTime": timestamp.render_micro(now),
            "leaseTransitions": transitions if is_ours or before is None else transitions + 1,
        }
        if before is None:
            collection = object_path("leases", self._settings.namespace)
            return await self._api.post(collection, _build_lease(self._settings, spec), Lease)
        document = _build_lease(self._settings, spec, before.metadata.resourceVersion)
        return await self._api.put(self._path, document, Lease)

    async def _release(self) -> None:
        """Release the lease, so that the next replica need not wait until it expires."""
        was_leading, self._renewed_at = self.is_leading, None
        if not was_leading:
            return
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                # A renewal that was cancelled may still reach the API server before the release.
                while not await self._release_once():
                    pass
        except (ApiError, TimeoutError) as error:
            _log.warning("could not release the lease", extra={"error": str(error) or "timeout"})

    async def _release_once(self) -> bool:
        """Release the lease as it is now; false if it has just changed."""
        lease = await self._read()
        if lease is None or lease.spec.holderIdentity != self._holder_identity:
            return True
        spec = {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": lease.spec.acquireTime,
            "renewTime": timestamp.render_micro(self._clock.now()),
            "leaseTransitions": lease.spec.leaseTransitions or 0,
        }
        try:
            await self._api.put(
                self._path,
                _build_lease(self._settings, spec, lease.metadata.resourceVersion),
                Lease,
            )
        except ApiError as error:
            if error.status in GONE_OR_CHANGED:
                return False
            raise
        return True


def _build_lease(
    settings: OperatorSettings, spec: dict[str, Any], version: str = ""
) -> dict[str, Any]:
    metadata = {"name": settings.lease_name, "namespace": settings.namespace}
    if version:
        metadata["resourceVersion"] = version
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": spec,
    }
