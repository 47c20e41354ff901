"""ElasticQuotas (document 000): what each promises, allows and has used, and which one a pod uses.

The used amounts are Koordinator's own, from the status and two annotations of each quota, so
nothing here grows with the number of pods. They are as old as Koordinator's last write. Which quota
a pod uses mirrors Koordinator's `getPodAssociateQuotaName`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from reprieve_policy.keys import (
    NON_PREEMPTIBLE_REQUEST,
    NON_PREEMPTIBLE_USED,
    QUOTA_NAME,
    QUOTA_NAMESPACES,
)
from reprieve_policy.kube.objects import ObjectMeta, Quantities, annotations_of
from reprieve_policy.kube.values import json_document, quantity

DEFAULT = "koordinator-default-quota"
"""The quota of pods that name none, or one that does not exist."""

_MAX_TEXT = 64 * 1024
"""Characters of an annotation that are read. Koordinator does not write longer ones."""
MAX_ENTRIES = 1000
"""Entries that are kept of one list or set of amounts. Without this, a user who may write a quota
could fill our memory."""

Amounts = Mapping[str, int]
"""Nanos by resource."""
QuotaKey = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """One ElasticQuota. A value that cannot be read counts as absent."""

    namespace: str
    name: str
    min_amounts: Amounts
    """`spec.min`: what its non-preemptible pods may use."""
    max_amounts: Amounts
    """`spec.max`: what all its pods may use."""
    used: Amounts
    non_preemptible_used: Amounts
    non_preemptible_request: Amounts
    namespaces: tuple[str, ...]
    """Namespaces whose pods use it without naming it, besides its own, if that has its name."""
    tells_non_preemptible: bool = True
    """False: only the amounts of all its pods are published, as by scheduler-plugins."""

    @property
    def key(self) -> QuotaKey:
        """Its namespace and name."""
        return self.namespace, self.name

    def is_for(self, namespace: str) -> bool:
        """True if it is meant for the pods of a namespace; those of others may use it by name.

        Not by its own name alone, as in Koordinator: without this, a user who may create Namespaces
        could name one after the quota of another team, and use its `min`.
        """
        return namespace in (self.namespace, *self.namespaces)


def read_leniently(
    metadata: ObjectMeta, least: Quantities, most: Quantities, used: Quantities
) -> Quota:
    """Read an ElasticQuota that may not have been validated."""
    annotations = annotations_of(metadata)
    return Quota(
        namespace=metadata.namespace or "",
        name=metadata.name or "",
        min_amounts=read_amounts(least),
        max_amounts=read_amounts(most),
        used=read_amounts(used),
        non_preemptible_used=read_amounts(_read_map(annotations.get(NON_PREEMPTIBLE_USED))),
        non_preemptible_request=read_amounts(_read_map(annotations.get(NON_PREEMPTIBLE_REQUEST))),
        namespaces=_read_names(annotations.get(QUOTA_NAMESPACES)),
        tells_non_preemptible=NON_PREEMPTIBLE_USED in annotations,
    )


def read_amounts(written: Mapping[str, object]) -> dict[str, int]:
    """Return the amounts that can be read, in nanos."""
    texts = {
        name: text
        for name, text in list(written.items())[:MAX_ENTRIES]
        if isinstance(text, (str, int, float))
    }
    read = {name: quantity.parse(text, "") for name, text in texts.items()}
    return {name: amount for name, amount in read.items() if isinstance(amount, int)}


class Quotas:
    """All quotas, with the lookup by a pod's labels. It changes as the cluster does."""

    def __init__(self, quotas: Iterable[Quota] = ()) -> None:
        self._by_key: dict[QuotaKey, Quota] = {}
        self._by_name: dict[str, dict[QuotaKey, Quota]] = {}
        self._by_user: dict[str, dict[QuotaKey, Quota]] = {}
        self.changes = 0
        """A number that grows where pods may use another quota than before. Amounts change more
        often, and do not count."""
        for quota in quotas:
            self.put(quota)

    def current(self) -> Mapping[QuotaKey, Quota]:
        """Return all quotas, as they are now."""
        return self._by_key.copy()

    def put(self, quota: Quota) -> None:
        """Add a quota, or replace its previous state."""
        before = self._drop_key(quota.key)
        self.changes += before is None or before.namespaces != quota.namespaces
        self._by_key[quota.key] = quota
        self._by_name.setdefault(quota.name, {})[quota.key] = quota
        for namespace in quota.namespaces:
            self._by_user.setdefault(namespace, {})[quota.key] = quota

    def remove(self, key: QuotaKey) -> None:
        """Remove a quota, if it is there."""
        self.changes += self._drop_key(key) is not None

    def find(self, labels: Mapping[str, str], namespace: str) -> Quota | None:
        """Return the quota of a pod with these labels in this namespace, or `None`."""
        if not self._by_key:
            return None
        name = labels.get(QUOTA_NAME)
        found = self._named(name, namespace) if name else self._of_namespace(namespace)
        return found or self._named(DEFAULT, namespace)

    def _drop_key(self, key: QuotaKey) -> Quota | None:
        quota = self._by_key.pop(key, None)
        if quota is not None:
            _drop(self._by_name, quota.name, key)
            for namespace in quota.namespaces:
                _drop(self._by_user, namespace, key)
        return quota

    def _named(self, name: str, namespace: str) -> Quota | None:
        # Koordinator's names are cluster-wide. If two quotas share a name, the one in the pod's own
        # namespace counts.
        same = self._by_name.get(name, {})
        return same.get((namespace, name)) or _first(same)

    def _of_namespace(self, namespace: str) -> Quota | None:
        return self._by_key.get((namespace, namespace)) or _first(self._by_user.get(namespace, {}))


def _first(quotas: Mapping[QuotaKey, Quota]) -> Quota | None:
    return quotas[min(quotas)] if quotas else None


def _drop(index: dict[str, dict[QuotaKey, Quota]], name: str, key: QuotaKey) -> None:
    same = index.get(name, {})
    same.pop(key, None)
    if not same:
        index.pop(name, None)


def _read_map(text: str | None) -> Mapping[str, object]:
    document = json_document.read(text or "", _MAX_TEXT)
    return document if isinstance(document, dict) else {}


def _read_names(text: str | None) -> tuple[str, ...]:
    document = json_document.read(text or "", _MAX_TEXT)
    names = document[:MAX_ENTRIES] if isinstance(document, list) else []
    return tuple(name for name in names if isinstance(name, str))
