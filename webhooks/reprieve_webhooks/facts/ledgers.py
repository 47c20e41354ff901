"""What owners' next pods inherit: as texts, the newest, in bounded memory.

Whoever may edit a Job may fill its ledger with a quarter of a megabyte, and make hundreds of Jobs. Without the bound,
they would end every webhook by its memory limit, and objects would be admitted unchecked.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from reprieve_policy.keys import LEDGER
from reprieve_policy.kube.objects import OwnerReference, annotations_of
from reprieve_policy.kube.owners import OWNERS
from reprieve_policy.lifecycle import ledger
from reprieve_policy.lifecycle.ledger import Ledger
from reprieve_runtime.client.api import PartialObject

MAX_CHARACTERS = 32 * 1024 * 1024
"""Of all ledgers together: some 50,000 of one slot. A text is a sixth of the size of what is read from it."""
OVERHEAD = 512
"""Counted for each owner beside its text, so that many that say next to nothing are bounded as well."""

_NO_LEDGER: Ledger = {}
_Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Kept:
    uid: str
    text: str


class Ledgers:
    """Ledgers by kind, namespace and name of their owner; the oldest are forgotten where there are too many."""

    def __init__(self, max_characters: int = MAX_CHARACTERS) -> None:
        self._max_characters = max_characters
        self._characters = 0
        self._kept: dict[_Key, _Kept] = {}
        self._wholes: Counter[str] = Counter()

    def keeper_of(self, kind: str) -> Callable[[PartialObject], None]:
        """Return what takes in the owners of one kind, as a watch has them."""

        def keep(owner: PartialObject) -> None:
            metadata = owner.metadata
            text = annotations_of(metadata).get(LEDGER, "")
            self._keep((kind, metadata.namespace or "", metadata.name or ""), _Kept(metadata.uid or "", text))

        return keep

    def of(self, owner: OwnerReference, in_namespace: str) -> Ledger:
        """Return the ledger of this very owner: one made anew under an old name inherits nothing."""
        known = self._kept.get((owner.kind, in_namespace, owner.name))
        return _NO_LEDGER if known is None or known.uid != owner.uid else ledger.parse(known.text)

    def has_wholes(self, namespace: str) -> bool:
        """True where a ledger of this namespace is kept by what makes controllers."""
        return self._wholes[namespace] > 0

    def _keep(self, key: _Key, kept: _Kept) -> None:
        self._forget(key)
        self._kept[key] = kept
        self._characters += len(kept.text) + OVERHEAD
        self._wholes[key[1]] += OWNERS[key[0]].is_whole
        while self._characters > self._max_characters:
            self._forget(next(iter(self._kept)))

    def _forget(self, key: _Key) -> None:
        before = self._kept.pop(key, None)
        if before is not None:
            self._characters -= len(before.text) + OVERHEAD
            self._wholes[key[1]] -= OWNERS[key[0]].is_whole
