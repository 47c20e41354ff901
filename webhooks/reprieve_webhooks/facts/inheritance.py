"""What a new pod inherits: its owner's ledger, or that of the whole which its owner is a part of."""

import logging
from collections.abc import Mapping

from reprieve_policy.keys import LEDGER
from reprieve_policy.kube.objects import ObjectMeta, OwnerReference, Resource, controller_of
from reprieve_policy.kube.owners import OWNERS
from reprieve_policy.lifecycle import ledger
from reprieve_policy.lifecycle.ledger import Entry
from reprieve_runtime import lineage
from reprieve_runtime.client.api import Api, ApiError, PartialObject
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector
from reprieve_webhooks.lookups.getter import Lookups

from .ledgers import Ledgers

_LOG = logging.getLogger(__name__)

_ABSENT_RETRY_SECONDS = 60.0
"""Kinds of other projects that are installed later are noticed after at most so long."""
_MAX_REMEMBERED = 5000


class Inheritance:
    """Ledgers, watched; what controllers are a part of, looked up where that matters."""

    def __init__(self, api: Api, *, lookup_timeout_seconds: float) -> None:
        self._ledgers = Ledgers()
        self.reflectors: Mapping[str, Reflector[PartialObject, None]] = {
            row.resource: Reflector(
                api,
                object_path(row.resource),
                PartialObject,
                self._ledgers.keeper_of(kind),
                params={"labelSelector": f"{LEDGER}=true"},
                absent_retry_seconds=_ABSENT_RETRY_SECONDS if row.is_whole else None,
            )
            for kind, row in OWNERS.items()
        }
        # A controller is made anew under its old name within a second: an answer of a moment ago is about another one.
        self._lookups = Lookups(api, PartialObject, timeout_seconds=lookup_timeout_seconds, remembered_seconds=0.0)
        self._wholes: dict[tuple[str, OwnerReference], OwnerReference | None] = {}

    async def of(self, pod: Resource, in_namespace: str) -> Entry | None:
        """Return what a pod that is being created inherits; never raises: without it, the pod is judged all the same."""
        owner = controller_of(pod.metadata) if pod.kind == "Pod" else None
        if owner is None:
            return None
        keeper = await self._find_keeper(owner, in_namespace)
        return self._ledgers.of(keeper, in_namespace).get(ledger.slot_of(pod.metadata, owner, keeper))

    async def _find_keeper(self, owner: OwnerReference, in_namespace: str) -> OwnerReference:
        if not self._ledgers.has_wholes(in_namespace):
            return owner
        try:
            return await self._find_whole(owner, in_namespace) or owner
        except ApiError as error:
            _LOG.warning("owner not read, its pod inherits nothing from above", extra={"error": str(error)})
            return owner

    async def _find_whole(self, owner: OwnerReference, in_namespace: str) -> OwnerReference | None:
        async def look_up(resource: str, name: str) -> ObjectMeta | None:
            found = await self._lookups.find(resource, name, in_namespace)
            return None if found is None else found.metadata

        key = (in_namespace, owner)
        if key not in self._wholes:
            # What an object is a part of never changes: one with another uid is another object.
            found = await lineage.find_whole(owner, look_up)
            if len(self._wholes) >= _MAX_REMEMBERED:
                del self._wholes[next(iter(self._wholes))]
            self._wholes[key] = found
        return self._wholes[key]
