"""Whether an operator is there: what its Lease says, as far as anybody can tell who only watches it.

As in the operator's own election, no clock is compared with another machine's: a renewal counts from when it was seen. A
Lease that was there before us tells nothing until it is renewed, which a leader does every few seconds.
"""

import time
from collections.abc import Callable

from reprieve_runtime.client.reflector import Key
from reprieve_runtime.lease import Lease, LeaseSpec

_MAX_LEASE_SECONDS = 60
"""A longer lease than this would let pods wait for an operator that is long gone."""


class OperatorLiveness:
    """Remembers the last renewal, and when it was seen."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._spec: LeaseSpec | None = None
        self._expires_at = monotonic()

    def observe(self, lease: Lease) -> None:
        """Take in the Lease as the watch has it; a list made anew may bring the same once more."""
        before, self._spec = self._spec, lease.spec
        if not lease.spec.holderIdentity:
            self._expire()
        elif before is not None and lease.spec.renewTime != before.renewTime:
            self._expires_at = self._monotonic() + min(
                lease.spec.leaseDurationSeconds or 0, _MAX_LEASE_SECONDS
            )

    def observe_deletion(self, _: Key) -> None:
        """There is no Lease any more."""
        self._expire()

    @property
    def has_leader(self) -> bool:
        """True while somebody holds the Lease and has renewed it in time."""
        return self._monotonic() < self._expires_at

    @property
    def seconds_without_leader(self) -> float:
        """Return for how long nobody has, as far as anybody was there to see."""
        return max(0.0, self._monotonic() - self._expires_at)

    def _expire(self) -> None:
        self._expires_at = min(self._expires_at, self._monotonic())
