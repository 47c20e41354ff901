"""What the gang gate needs to know: whether an operator is live, and what a pod's owner makes."""

import logging

from reprieve_policy.gangs import gate
from reprieve_policy.kube import owners
from reprieve_policy.kube.objects import Resource, controller_of
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector
from reprieve_runtime.lease import Lease
from reprieve_webhooks.lookups.getter import CachedGetter

from .operator_liveness import OperatorLiveness

_LOG = logging.getLogger(__name__)

SINGLE_POD = 1
"""How many pods an unknown owner makes at once: its pods do not wait."""

_FAILOVER_SECONDS = 60.0
"""For another operator to become the leader, also when a node is lost."""


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
            api, gate.PodController, timeout_seconds=lookup_timeout_seconds
        )
        # A StatefulSet's status announces a rollout before the first pod of it is made. With a
        # cached status, that pod would wait for others that are made only once it runs.
        self._stateful_set_getter = CachedGetter(
            api, gate.PodController, timeout_seconds=lookup_timeout_seconds, ttl_seconds=0.0
        )

    @property
    def has_leader(self) -> bool:
        """True while an operator leads and renews its Lease in time."""
        return self._liveness.has_leader

    @property
    def has_lost_leader(self) -> bool:
        """True once no operator has led for a minute: longer than a failover takes."""
        return self._liveness.seconds_without_leader >= _FAILOVER_SECONDS

    async def count_made_together(self, pod: Resource, namespace: str) -> int:
        """Return how many pods the owner of `pod` makes at once."""
        owner = controller_of(pod.metadata)
        kind = owners.ledger_kind_of(owner)
        if owner is None or kind is None or kind.is_composite:
            return SINGLE_POD
        try:
            getter = (
                self._stateful_set_getter if owner.kind == "StatefulSet" else self._owner_getter
            )
            found = await getter.find(kind.resource, owner.name, namespace)
        except ApiError as error:
            # The gate is optional: without it a pod is scheduled as usual. A failed review would
            # leave the pod without any default.
            _LOG.warning(
                "could not read the owner; its pods do not wait for their gang",
                extra={"error": str(error)},
            )
            return SINGLE_POD
        # An object created again under the same name is another owner.
        return (
            gate.count_created_together(found)
            if found is not None and found.metadata.uid == owner.uid
            else SINGLE_POD
        )
