"""Which replica acts: a Lease, held, renewed, lost, released.

The official client's election is not used: it writes local time as UTC, does not survive a refused connection, and
never gives the lease back. As in client-go, a lease counts as expired only after the *observer* has seen it unchanged
for its duration: no clock is compared with another machine's.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from reprieve_operator.clock import Clock, Instant
from reprieve_operator.settings import OperatorSettings
from reprieve_policy.kube import timestamp
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.lease import Lease

_log = logging.getLogger(__name__)
_CONFLICTS = (404, 409)
_RELEASE_SECONDS = 2.0


class NotLeading(Exception):  # noqa: N818 - a state, not an error
    """This replica's lease is over, or may be: nothing may be written."""


class LeaderElection:
    """One replica's part in it."""

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

    @property
    def is_leading(self) -> bool:
        """True while the lease is certainly ours: also right after this process was stopped for a while."""
        renewed = self._renewed_at
        return (
            renewed is not None
            and renewed.elapsed_seconds(self._clock) < self._settings.renew_deadline_seconds
        )

    def require_leadership(self) -> float:
        """Return the seconds for which this replica certainly leads, as asked before every effect; raises `NotLeading`."""
        renewed = self._renewed_at
        left = (
            0.0
            if renewed is None
            else self._settings.renew_deadline_seconds - renewed.elapsed_seconds(self._clock)
        )
        if left <= 0:
            raise NotLeading
        return left

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Compete until cancelled; `lead` runs while the lease is held, and is cancelled when it is lost."""
        try:
            while True:
                await self._acquire()
                _log.info("leading", extra={"identity": self._holder_identity})
                await self._lead_and_renew(lead)
                _log.warning("no longer leading", extra={"identity": self._holder_identity})
        finally:
            await self._release()

    async def _acquire(self) -> None:
        while not await self._try_acquire_or_renew():  # noqa: ASYNC110 - the lease is on another machine: there is no event to wait for
            await asyncio.sleep(self._settings.retry_period_seconds * random.uniform(1.0, 1.2))  # noqa: S311 - jitter

    async def _lead_and_renew(self, lead: Callable[[], Awaitable[None]]) -> None:
        term = asyncio.ensure_future(lead())
        self._is_holding = True
        try:
            while self.is_leading and not term.done():
                await asyncio.wait([term], timeout=self._settings.retry_period_seconds)
                # A lease that ran out is lost even where nobody took it: somebody may just be about to.
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
            # Not `await term`: its cancellation and our own would look the same, and a SIGTERM now would be lost.
            await asyncio.wait([term])
        if not term.cancelled() and not isinstance(term.exception(), NotLeading):
            term.result()

    async def _try_acquire_or_renew(self) -> bool:
        """Get or renew the lease once; true where that worked."""
        asked_at = Instant.now(self._clock)
        try:
            # Shorter than the deadline: one call that hangs must not cost the lease.
            async with asyncio.timeout(self._settings.renew_deadline_seconds / 2):
                self._set_observed_lease(await self._read())
                if self._is_held_by_another():
                    return False
                self._set_observed_lease(await self._write())
        except (ApiError, TimeoutError, msgspec.MsgspecError) as error:
            is_race = isinstance(error, ApiError) and error.status in _CONFLICTS
            level = logging.DEBUG if is_race or self._is_failing else logging.WARNING
            _log.log(level, "lease not renewed", extra={"error": str(error) or "timeout"})
            self._is_failing = not is_race
            return False
        if self._is_holding and not self.is_leading:
            # Renewed too late: keepers have met a closed fence and ended, so that only a new term keeps their victims.
            return False
        self._renewed_at, self._is_failing = asked_at, False
        return True

    async def _read(self) -> Lease | None:
        try:
            return await self._api.get(self._path, Lease)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def _set_observed_lease(self, lease: Lease | None) -> None:
        if lease != self._observed_lease:
            self._observed_lease, self._observed_at = lease, Instant.now(self._clock)

    def _is_held_by_another(self) -> bool:
        """True while another replica holds the lease, as far as anybody can tell who only watches it."""
        if self._observed_lease is None or self._observed_lease.spec.holderIdentity in (
            None,
            "",
            self._holder_identity,
        ):
            return False
        duration = (
            self._observed_lease.spec.leaseDurationSeconds or self._settings.lease_duration_seconds
        )
        # The wall clock may jump; taking a lease early is worse than taking it late, so only the monotonic one counts.
        return self._clock.monotonic() - self._observed_at.monotonic < duration

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
        """Give the lease back, so that the next replica need not wait for it to expire."""
        was_leading, self._renewed_at = self.is_leading, None
        if not was_leading:
            return
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                # The renewal that our end cut short may reach the API server at any moment, and win.
                while not await self._release_once():
                    pass
        except (ApiError, TimeoutError, msgspec.MsgspecError) as error:
            _log.warning("lease not released", extra={"error": str(error) or "timeout"})

    async def _release_once(self) -> bool:
        """Release the lease as it is now; false where it has just changed."""
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
            if error.status in _CONFLICTS:
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
