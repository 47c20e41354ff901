"""The ledgers of owners, which their next pods inherit: kept as texts, the newest, within a limit.

A user who may edit a Job can fill its ledger with a quarter of a megabyte, and create hundreds of
Jobs. Without the limit, every webhook would be killed at its memory limit, and objects would be
admitted unchecked.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from reprieve_policy.keys import LEDGER
from reprieve_policy.kube.objects import OwnerReference, annotations_of
from reprieve_policy.kube.owners import LEDGER_KINDS
from reprieve_policy.lifecycle import ledger
from reprieve_policy.lifecycle.ledger import Ledger
from reprieve_runtime.client.api import PartialObjectMetadata
from reprieve_runtime.client.stored import Key

MAX_CHARACTERS = 32 * 1024 * 1024
"""Of all ledgers together: some 50,000 of one slot. Parsed, a ledger is six times as large."""
OVERHEAD_CHARACTERS = 512
"""Counted for each owner besides its text, so that many short ledgers are limited as well."""

_NO_LEDGER: Ledger = {}
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _StoredLedger:
    uid: str
    text: str


class LedgerCache:
    """Ledgers by kind, namespace and name of the owner; beyond the limit the oldest are dropped."""

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self._max_characters = max_characters
        self._characters = 0
        self._ledgers: dict[_Key, _StoredLedger] = {}
        self._root_owner_counts: Counter[str] = Counter()
        self.changes = 0
        """Grows with every change of a ledger."""

    def handler_for(self, kind: str) -> Callable[[PartialObjectMetadata], None]:
        """Return a handler for the owners of one kind that a watch delivers."""

        def keep(owner: PartialObjectMetadata) -> None:
            metadata = owner.metadata
            text = annotations_of(metadata).get(LEDGER, "")
            self._store(
                (kind, metadata.namespace or "", metadata.name or ""),
                _StoredLedger(metadata.uid or "", text),
            )

        return keep

    def forgetter_for(self, kind: str) -> Callable[[Key], None]:
        """Return a handler for the owners of one kind that are gone, or have no ledger any more.

        Without this, the next pod would inherit an eviction that was cancelled.
        """

        def forget(owner: Key) -> None:
            self.changes += 1
            self._remove((kind, *owner))

        return forget

    def get(self, owner: OwnerReference, in_namespace: str) -> Ledger:
        """Return the ledger of this owner; one created again under the same name inherits none."""
        known = self._ledgers.get((owner.kind, in_namespace, owner.name))
        return _NO_LEDGER if known is None or known.uid != owner.uid else ledger.parse(known.text)

    def has_root_owners(self, namespace: str) -> bool:
        """True where a root owner, which makes controllers, keeps a ledger in this namespace."""
        return self._root_owner_counts[namespace] > 0

    def _store(self, key: _Key, stored: _StoredLedger) -> None:
        self.changes += 1
        self._remove(key)
        self._ledgers[key] = stored
        self._characters += len(stored.text) + OVERHEAD_CHARACTERS
        self._root_owner_counts[key[1]] += LEDGER_KINDS[key[0]].is_composite
        while self._characters > self._max_characters:
            self._remove(next(iter(self._ledgers)))

    def _remove(self, key: _Key) -> None:
        before = self._ledgers.pop(key, None)
        if before is not None:
            self._characters -= len(before.text) + OVERHEAD_CHARACTERS
            self._root_owner_counts[key[1]] -= LEDGER_KINDS[key[0]].is_composite
