"""Faults of the operator's calls to the API server, and a record of its Lease.

For hooks of `ApiProxy`: while a fault lasts, it hits a part of the calls.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from reprieve_testing.chaos.proxy import Dropped, ProxiedCall, ProxiedResponse, Refused
from reprieve_testing.chaos.scripted_victims import utc_now

from .outages import LeaseRenewal
from .plan import Fault

_SHARE = 0.6
"""Of the calls. If all failed, this would be an API server that is away."""
_SLOW_SECONDS = (0.2, 2.0)
_STATUSES = (500, 502, 503, 504)


@dataclass
class CallFaults:
    """The hooks. `hits` counts the calls that each fault has met."""

    random: Random
    hits: Counter[str] = field(default_factory=Counter)
    renewals: list[LeaseRenewal] = field(default_factory=list)
    calls: int = 0

    def __post_init__(self) -> None:
        self._until: dict[Fault, float] = {}

    def begin(self, fault: Fault, seconds: float) -> None:
        """Have a fault hit calls from now on."""
        self._until[fault] = time.monotonic() + seconds

    @property
    def leader(self) -> str:
        """The identity in the Lease's last write."""
        return self.renewals[-1].holder if self.renewals else ""

    async def before(self, call: ProxiedCall) -> None:
        """Refuse or delay a call."""
        del call
        self.calls += 1
        if self._hits(Fault.TOO_MANY_REQUESTS):
            raise Refused(429, retry_after_seconds=1)
        if self._hits(Fault.SERVER_ERRORS):
            raise Refused(self.random.choice(_STATUSES))
        if self._hits(Fault.SLOW_CALLS):
            await asyncio.sleep(self.random.uniform(*_SLOW_SECONDS))

    async def after(self, call: ProxiedCall, answer: ProxiedResponse) -> None:
        """Lose an answer; the call has taken effect."""
        if "/leases" in call.path and call.is_write and answer.is_success:
            self.renewals.append(LeaseRenewal(utc_now(), call.body["spec"]["holderIdentity"]))
        if self._hits(Fault.LOST_ANSWERS):
            raise Dropped

    def _hits(self, fault: Fault) -> bool:
        if time.monotonic() > self._until.get(fault, 0.0) or self.random.random() > _SHARE:
            return False
        self.hits[fault] += 1
        return True
