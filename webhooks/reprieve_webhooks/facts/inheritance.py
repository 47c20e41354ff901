"""What a new pod inherits: the ledger of its owner, or of the root owner that made the owner."""

import logging
from collections.abc import Mapping

from reprieve_policy.keys import LEDGER
from reprieve_policy.kube import owners
from reprieve_policy.kube.objects import ObjectMeta, OwnerReference, Resource, controller_of
from reprieve_policy.kube.owners import LEDGER_KINDS
from reprieve_policy.lifecycle import ledger
from reprieve_policy.lifecycle.ledger import LedgerEntry
from reprieve_runtime import lineage
from reprieve_runtime.bounded_dict import BoundedDict
from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector
from reprieve_webhooks.lookups.getter import CachedGetter
from reprieve_webhooks.lookups.limits import FAIR_LIMITS, MAX_OBJECT_BYTES

from .ledgers import LedgerCache

_LOG = logging.getLogger(__name__)

_ABSENT_RETRY_SECONDS = 60.0
"""Kinds of other projects that are installed later are noticed after at most this time."""
_MAX_OWNERS = 5000


class Inheritance:
    """Watches ledgers, and reads the root owners of controllers where that matters."""

    def __init__(self, api: Api, *, lookup_timeout_seconds: float) -> None:
        self.ledgers = LedgerCache()
        self.reflectors: Mapping[str, Reflector[PartialObjectMetadata, None]] = {
            row.resource: Reflector(
                api,
                object_path(row.resource),
                PartialObjectMetadata,
                self.ledgers.handler_for(kind),
                on_delete=self.ledgers.forgetter_for(kind),
                params={"labelSelector": f"{LEDGER}=true"},
                absent_retry_seconds=_ABSENT_RETRY_SECONDS if row.is_composite else None,
            )
            for kind, row in LEDGER_KINDS.items()
        }
        # A controller can be created again under its name within a second: a cached result could be
        # about another one.
        self._owner_getter = CachedGetter(
            api,
            PartialObjectMetadata,
            _identity_of,
            timeout_seconds=lookup_timeout_seconds,
            ttl_seconds=0.0,
            limits=FAIR_LIMITS,
            max_bytes=MAX_OBJECT_BYTES,
        )
        self._root_owners: BoundedDict[tuple[str, OwnerReference], OwnerReference | None] = (
            BoundedDict(_MAX_OWNERS)
        )

    def is_nothing(self, pod: Resource, in_namespace: str) -> bool:
        """Return whether neither the pod's owner nor a root owner in its namespace has a ledger."""
        owner = controller_of(pod.metadata)
        return owner is None or not (
            self.ledgers.has_root_owners(in_namespace) or self.ledgers.get(owner, in_namespace)
        )

    async def find_entry(self, pod: Resource, in_namespace: str) -> LedgerEntry | None:
        """Return the entry that a new pod inherits.

        Never raises: without the entry, the other rules still hold for the pod.
        """
        owner = controller_of(pod.metadata) if pod.kind == "Pod" else None
        if owner is None:
            return None
        ledger_owner = await self._find_ledger_owner(owner, in_namespace)
        return self.ledgers.get(ledger_owner, in_namespace).get(
            ledger.slot_of(pod.metadata, owner, ledger_owner)
        )

    async def _find_ledger_owner(self, owner: OwnerReference, in_namespace: str) -> OwnerReference:
        if not self.ledgers.has_root_owners(in_namespace):
            return owner
        try:
            return await self._find_root_owner(owner, in_namespace) or owner
        except ApiError as error:
            _LOG.warning(
                "could not read the root owner; the pod inherits nothing from it",
                extra={"error": str(error)},
            )
            return owner

    async def _find_root_owner(
        self, owner: OwnerReference, in_namespace: str
    ) -> OwnerReference | None:
        async def look_up(resource: str, name: str) -> ObjectMeta | None:
            return await self._owner_getter.find(resource, name, in_namespace)

        if owners.nested_kind_of(owner) is None:
            # Also what can name no object: of any length, it would stay in memory.
            return None
        key = (in_namespace, owner)
        if key not in self._root_owners:
            # The root owner of an object never changes: another uid is another object.
            found = await lineage.find_root_owner(owner, look_up)
            self._root_owners[key] = found
        return self._root_owners[key]


def _identity_of(owner: PartialObjectMetadata) -> ObjectMeta:
    """Return the uid and the controller of an owner."""
    controller = controller_of(owner.metadata)
    return ObjectMeta(
        uid=owner.metadata.uid, ownerReferences=None if controller is None else [controller]
    )
