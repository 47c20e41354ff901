"""What a new pod inherits: its owner's ledger, or that of the whole which its owner is a part of."""

import logging
from collections.abc import Mapping

from reprieve_policy.keys import LEDGER
from reprieve_policy.kube.objects import ObjectMeta, OwnerReference, Resource, controller_of
from reprieve_policy.kube.owners import LEDGER_KINDS
from reprieve_policy.lifecycle import ledger
from reprieve_policy.lifecycle.ledger import LedgerEntry
from reprieve_runtime import lineage
from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector
from reprieve_webhooks.lookups.getter import CachedGetter

from .ledgers import LedgerCache

_LOG = logging.getLogger(__name__)

_ABSENT_RETRY_SECONDS = 60.0
"""Kinds of other projects that are installed later are noticed after at most so long."""
_MAX_OWNERS = 5000


class Inheritance:
    """Ledgers, watched; what controllers are a part of, looked up where that matters."""

    def __init__(self, api: Api, *, lookup_timeout_seconds: float) -> None:
        self._ledgers = LedgerCache()
        self.reflectors: Mapping[str, Reflector[PartialObjectMetadata, None]] = {
            row.resource: Reflector(
                api,
                object_path(row.resource),
                PartialObjectMetadata,
                self._ledgers.handler_for(kind),
                params={"labelSelector": f"{LEDGER}=true"},
                absent_retry_seconds=_ABSENT_RETRY_SECONDS if row.is_composite else None,
            )
            for kind, row in LEDGER_KINDS.items()
        }
        # A controller is made anew under its old name within a second: an answer of a moment ago is about another one.
        self._owner_getter = CachedGetter(
            api, PartialObjectMetadata, timeout_seconds=lookup_timeout_seconds, ttl_seconds=0.0
        )
        self._root_owners: dict[tuple[str, OwnerReference], OwnerReference | None] = {}

    async def find_entry(self, pod: Resource, in_namespace: str) -> LedgerEntry | None:
        """Return what a pod that is being created inherits; never raises: without it, the pod is judged all the same."""
        owner = controller_of(pod.metadata) if pod.kind == "Pod" else None
        if owner is None:
            return None
        keeper = await self._find_ledger_owner(owner, in_namespace)
        return self._ledgers.get(keeper, in_namespace).get(
            ledger.slot_of(pod.metadata, owner, keeper)
        )

    async def _find_ledger_owner(self, owner: OwnerReference, in_namespace: str) -> OwnerReference:
        if not self._ledgers.has_root_owners(in_namespace):
            return owner
        try:
            return await self._find_root_owner(owner, in_namespace) or owner
        except ApiError as error:
            _LOG.warning(
                "owner not read, its pod inherits nothing from above", extra={"error": str(error)}
            )
            return owner

    async def _find_root_owner(
        self, owner: OwnerReference, in_namespace: str
    ) -> OwnerReference | None:
        async def look_up(resource: str, name: str) -> ObjectMeta | None:
            found = await self._owner_getter.find(resource, name, in_namespace)
            return None if found is None else found.metadata

        key = (in_namespace, owner)
        if key not in self._root_owners:
            # What an object is a part of never changes: one with another uid is another object.
            found = await lineage.find_root_owner(owner, look_up)
            if len(self._root_owners) >= _MAX_OWNERS:
                del self._root_owners[next(iter(self._root_owners))]
            self._root_owners[key] = found
        return self._root_owners[key]
