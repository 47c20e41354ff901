"""Whether an operator leads, for the guard and the gang gate; how many pods an owner creates.

Whether an operator leads is concluded from watching its Lease. As in the operator's own leader
election, the clocks of two machines are never compared: a renewal counts from the time it was
observed. A Lease that existed before this process shows no leader until it is renewed, which a
leader does every few seconds.

A leader is lost only after a minute, and only where the watch would have shown another one. Without
this, the guard would let evictions and deletions interrupt the saves of workloads whenever the
operator is replaced, a watch is cut, or the API server was away.
"""

import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from reprieve_policy.gangs import gate
from reprieve_policy.kube import owners
from reprieve_policy.kube.objects import OwnerReference, Resource, controller_of
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Key, Reflector
from reprieve_runtime.lease import Lease, LeaseSpec
from reprieve_runtime.single_flight import RateLimitedError
from reprieve_webhooks.lookups.getter import CachedGetter
from reprieve_webhooks.lookups.limits import FAIR_LIMITS, MAX_OBJECT_BYTES

_LOG = logging.getLogger(__name__)

SINGLE_POD = 1
"""How many pods an unknown owner makes at once: its pods do not wait."""

_FAILOVER_SECONDS = 60.0
"""For another operator to become the leader, also when a node is lost. While no operator leads, the
watch shows once a minute that it is open: so a leader is lost one to two minutes after its end."""
_MAX_LEASE_SECONDS = 60
"""A longer lease would let pods wait for an operator that stopped long ago."""


class OperatorLiveness:
    """Remembers until when an operator led."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._spec: LeaseSpec | None = None
        self._may_fail_over = False
        self._led_until = -math.inf

    def observe(self, lease: Lease) -> None:
        """Process the Lease from the watch, or from a list, which may bring the same Lease again.

        An operator that has held the Lease while it could not be watched may have led until now. So
        may one that has given it up before this process saw it.
        """
        before, self._spec = self._spec, lease.spec
        if not lease.spec.holderIdentity:
            self._led_until = (
                self._monotonic() if before is None else min(self._led_until, self._monotonic())
            )
            self._may_fail_over = False
        elif before is not None and lease.spec.renewTime != before.renewTime:
            self._may_fail_over = True
            self._led_until = self._monotonic() + min(
                lease.spec.leaseDurationSeconds or 0, _MAX_LEASE_SECONDS
            )
        else:
            self._led_until = max(self._led_until, self._monotonic())

    def observe_deletion(self, _: Key) -> None:
        """Process the deletion of the Lease: the operator was uninstalled."""
        self._led_until = -math.inf
        self._may_fail_over = False

    @property
    def has_leader(self) -> bool:
        """True while an operator holds the Lease and renews it in time."""
        return self._monotonic() < self._led_until

    @property
    def may_fail_over(self) -> bool:
        """True once an operator was observed that led, unless it has given up the Lease itself."""
        return self._may_fail_over

    @property
    def led_until(self) -> float:
        """When the last leader's Lease ends or has ended; minus infinity if there was none."""
        return self._led_until


class GateFacts:
    """Watches the operator's Lease and reads the owners of pods."""

    def __init__(
        self, api: Api, own_namespace: str, lease: str, *, lookup_timeout_seconds: float
    ) -> None:
        self._liveness = OperatorLiveness()
        self.reflector = Reflector(
            api,
            object_path("leases", own_namespace),
            Lease,
            self._liveness.observe,
            on_delete=self._liveness.observe_deletion,
            params={"fieldSelector": f"metadata.name={lease}"},
        )
        self._owner_getter = CachedGetter(
            api,
            gate.PodController,
            _count_of,
            timeout_seconds=lookup_timeout_seconds,
            limits=FAIR_LIMITS,
            max_bytes=MAX_OBJECT_BYTES,
        )
        # A StatefulSet's status announces a rollout before the first pod of it is made. With a
        # cached status, that pod would wait for others that are made only once it runs.
        self._stateful_set_getter = CachedGetter(
            api,
            gate.PodController,
            _count_of,
            timeout_seconds=lookup_timeout_seconds,
            ttl_seconds=0.0,
            limits=FAIR_LIMITS,
            max_bytes=MAX_OBJECT_BYTES,
        )

    @property
    def has_leader(self) -> bool:
        """True while an operator leads and renews its Lease in time."""
        return self._liveness.has_leader

    @property
    def has_lost_leader(self) -> bool:
        """True once the watch of the Lease has shown for a minute that no operator leads."""
        heard_at = time.monotonic() - self.reflector.age_seconds
        return heard_at - self._liveness.led_until >= _FAILOVER_SECONDS

    @property
    def opens_gates(self) -> bool:
        """True while an operator leads, or was killed and is not lost: new pods may wait for it.

        Without the latter, the pods of a gang that is created while a leader is replaced would be
        scheduled one by one, beside a gang that was released. One that was stopped says so, and no
        pod waits: another may never be started.
        """
        return self._liveness.may_fail_over and not self.has_lost_leader

    async def count_created_together(self, pod: Resource, namespace: str) -> int:
        """Return how many pods the owner of `pod` creates without waiting for one to run."""
        owner = controller_of(pod.metadata)
        kind = owners.ledger_kind_of(owner)
        if owner is None or kind is None or kind.is_composite:
            return SINGLE_POD
        try:
            found = await self._find(kind.resource, owner, namespace)
        except ApiError as error:
            # The gate is optional: without it a pod is scheduled as usual. A failed review would
            # leave the pod without any default.
            _LOG.warning(
                "could not read the owner; its pods do not wait for their gang",
                extra={"error": str(error)},
            )
            return SINGLE_POD
        # An object created again under the same name is another owner.
        if found is None or found.uid != owner.uid:
            return SINGLE_POD
        return found.created_together

    async def _find(
        self, resource: str, owner: OwnerReference, namespace: str
    ) -> "_Controller | None":
        if owner.kind == "StatefulSet":
            # Where the Namespace has used up its share, a cached status serves.
            with suppress(RateLimitedError):
                return await self._stateful_set_getter.find(resource, owner.name, namespace)
        return await self._owner_getter.find(resource, owner.name, namespace)


class _Controller(NamedTuple):
    uid: str | None
    created_together: int


def _count_of(controller: gate.PodController) -> _Controller:
    return _Controller(controller.metadata.uid, gate.count_created_together(controller))
