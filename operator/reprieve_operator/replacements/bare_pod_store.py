"""The replacements of bare pods that are still to be made, where no tenant can write: a ControllerRevision for each.

Immutable data of any form, in the operator's own namespace, which survives whoever wrote it; a Secret would need rights that
nobody should have, and a ConfigMap may be changed.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reprieve_operator.cluster.pods import VersionedMeta
from reprieve_operator.cluster.writes import Writes
from reprieve_policy import keys
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_policy.lifecycle.bare_pod import MAX_BYTES, MAX_RECORDS, MAX_RECORDS_OF_NAMESPACE
from reprieve_runtime.client.api import ApiError, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path

_PREFIX = "bare-pod-"
_CONFLICT = 409


class NamespacedName(NamedTuple):
    """Where a replacement will be."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementRecord:
    """One replacement to be made."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def replacement(self) -> dict[str, Any]:
        """The pod's manifest."""
        found: dict[str, Any] = self.data["pod"]
        return found


class BarePodStore:
    """Records by the uid of the victim. Only the leader writes: what it read once and wrote since is all there is."""

    def __init__(self, effects: Writes, namespace: str) -> None:
        self._effects = effects
        self._namespace = namespace
        self._count_by_namespace: Counter[str] = Counter()
        self.pending: dict[str, NamespacedName] = {}
        """By the victim's uid."""
        self.is_loaded = False
        """Until then, there may be more than `places` tells."""

    async def load(self) -> None:
        """Read what earlier leaders have left."""
        path = object_path("controllerrevisions", self._namespace)
        params = {"labelSelector": keys.BARE_POD}
        async for page in self._effects.list_pages(
            path, PartialObjectMetadata, params=params, metadata_only=True
        ):
            for found in page:
                namespace = labels_of(found.metadata)[keys.BARE_POD]
                name = annotations_of(found.metadata).get(keys.BARE_POD, "")
                self._track(
                    (found.metadata.name or "").removeprefix(_PREFIX),
                    NamespacedName(namespace, name),
                )
        self.is_loaded = True

    def rejection_reason(self, replacement: Mapping[str, Any]) -> str:
        """Return why there is no room for a replacement; empty where there is."""
        namespace = replacement["metadata"]["namespace"]
        if len(json.dumps(replacement, ensure_ascii=False).encode()) > MAX_BYTES:
            return f"its manifest has more than {MAX_BYTES // 1024} KiB"
        if (
            len(self.pending) >= MAX_RECORDS
            or self._count_by_namespace[namespace] >= MAX_RECORDS_OF_NAMESPACE
        ):
            return "too many pods wait for being made anew"
        return ""

    async def put(self, uid: str, replacement: Mapping[str, Any]) -> None:
        """Keep the replacement of a victim; one that is kept already stays as it is."""
        place = NamespacedName(
            replacement["metadata"]["namespace"], replacement["metadata"]["name"]
        )
        document = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": _PREFIX + uid,
                "namespace": self._namespace,
                "labels": {keys.BARE_POD: place.namespace},
                "annotations": {keys.BARE_POD: place.name},
            },
            "revision": 1,
            "data": {"pod": replacement},
        }
        try:
            await self._effects.create(
                object_path("controllerrevisions", self._namespace), document
            )
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
        self._track(uid, place)

    async def get(self, uid: str) -> ReplacementRecord | None:
        """Return a record, `None` where there is none."""
        return await self._effects.get(self._path(uid), ReplacementRecord)

    async def remove(self, uid: str) -> None:
        """Forget a replacement: it is made, or will never be."""
        await self._effects.delete_object(self._path(uid))
        place = self.pending.pop(uid, None)
        if place is not None:
            self._count_by_namespace[place.namespace] -= 1

    def _track(self, uid: str, place: NamespacedName) -> None:
        if uid not in self.pending:
            self._count_by_namespace[place.namespace] += 1
        self.pending[uid] = place

    def _path(self, uid: str) -> str:
        return object_path("controllerrevisions", self._namespace, _PREFIX + uid)
