"""What the gang gate needs to know of the cluster: whether an operator is there, and what a pod's owner makes."""

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
"""What an owner makes at once of which nothing is known: its pods do not wait."""


_FAILOVER_SECONDS = 60.0
"""Of leaders, with their pods' nodes and all."""


class GateFacts:
    """The operator's Lease, watched; owners, looked up."""

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
        # Its status says a rollout before the first pod of it is made. With a word of a moment ago, that pod would wait for
        # others which are made only once it runs.
        self._stateful_set_getter = CachedGetter(
            api, gate.PodController, timeout_seconds=lookup_timeout_seconds, ttl_seconds=0.0
        )

    @property
    def has_leader(self) -> bool:
        """True while one leads, and has said so in time."""
        return self._liveness.has_leader

    @property
    def has_lost_leader(self) -> bool:
        """True once none has led for a minute: longer than it takes for another one to follow."""
        return self._liveness.seconds_without_leader >= _FAILOVER_SECONDS

    async def count_made_together(self, pod: Resource, namespace: str) -> int:
        """Return how many pods the owner of `pod` makes at once."""
        owner = controller_of(pod.metadata)
        kind = owners.ledger_kind_of(owner)
        if owner is None or kind is None or kind.is_composite:
            return SINGLE_POD
        try:
            lookups = (
                self._stateful_set_getter if owner.kind == "StatefulSet" else self._owner_getter
            )
            found = await lookups.find(kind.resource, owner.name, namespace)
        except ApiError as error:
            # A gate is optional: without one a pod is scheduled as ever, without an answer it lacks all that we fill in.
            _LOG.warning(
                "owner not read, its pods do not wait for their gang", extra={"error": str(error)}
            )
            return SINGLE_POD
        # One made anew under an old name is another owner.
        return (
            gate.count_created_together(found)
            if found is not None and found.metadata.uid == owner.uid
            else SINGLE_POD
        )
