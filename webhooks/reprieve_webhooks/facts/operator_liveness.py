"""Whether an operator is live, concluded from watching its Lease.

As in the operator's own leader election, the clocks of two machines are never compared: a renewal
counts from the time it was observed. A Lease that existed before this process shows nothing until
it is renewed, which a leader does every few seconds.
"""

import time
from collections.abc import Callable

from reprieve_runtime.client.reflector import Key
from reprieve_runtime.lease import Lease, LeaseSpec

_MAX_LEASE_SECONDS = 60
"""A longer lease would let pods wait for an operator that stopped long ago."""


class OperatorLiveness:
    """Remembers the last renewal and when it was observed."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._spec: LeaseSpec | None = None
        self._expires_at = monotonic()

    def observe(self, lease: Lease) -> None:
        """Process the Lease from the watch; a new list may bring the same Lease again."""
        before, self._spec = self._spec, lease.spec
        if not lease.spec.holderIdentity:
            self._expire()
        elif before is not None and lease.spec.renewTime != before.renewTime:
            self._expires_at = self._monotonic() + min(
                lease.spec.leaseDurationSeconds or 0, _MAX_LEASE_SECONDS
            )

    def observe_deletion(self, _: Key) -> None:
        """Process the deletion of the Lease."""
        self._expire()

    @property
    def has_leader(self) -> bool:
        """True while an operator holds the Lease and renews it in time."""
        return self._monotonic() < self._expires_at

    @property
    def seconds_without_leader(self) -> float:
        """Return for how long no operator has led, at most since this process started."""
        return max(0.0, self._monotonic() - self._expires_at)

    def _expire(self) -> None:
        self._expires_at = min(self._expires_at, self._monotonic())
