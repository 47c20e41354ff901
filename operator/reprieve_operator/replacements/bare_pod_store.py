"""Stores the pending replacements of bare pods, one ControllerRevision each.

A ControllerRevision holds immutable data of any form and outlives the operator that wrote it. It is
in the operator's own namespace, where no tenant can write. A Secret would need permissions that no
program should have, and a ConfigMap can be changed.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from reprieve_operator.cluster.writes import Writes
from reprieve_policy import keys
from reprieve_policy.kube.objects import VersionedMeta, annotations_of, labels_of
from reprieve_policy.lifecycle.bare_pod import MAX_BYTES, MAX_RECORDS, MAX_RECORDS_OF_NAMESPACE
from reprieve_runtime.client.api import ApiError, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path

_PREFIX = "bare-pod-"


def too_large_reason() -> str:
    """Return why a large manifest cannot be stored."""
    return f"its manifest has more than {MAX_BYTES // 1024} KiB"


class NamespacedName(NamedTuple):
    """The namespace and name of a replacement."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacementRecord:
    """One pending replacement."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def replacement(self) -> dict[str, Any]:
        """The pod's manifest."""
        manifest: dict[str, Any] = self.data["pod"]
        return manifest


class BarePodStore:
    """Records by the uid of the victim.

    Only the leader writes records, so the ones that it loaded and has written since are complete.
    """

    def __init__(self, writes: Writes, namespace: str) -> None:
        self._writes = writes
        self._namespace = namespace
        self._count_by_namespace: Counter[str] = Counter()
        self.pending: dict[str, NamespacedName] = {}
        """Where each replacement will be, by the victim's uid."""
        self.is_loaded = False
        """Until it is true, there may be records that `pending` lacks."""

    async def load(self) -> None:
        """Read the records of earlier leaders."""
        path = object_path("controllerrevisions", self._namespace)
        params = {"labelSelector": keys.BARE_POD}
        async for page in self._writes.list_pages(
            path, PartialObjectMetadata, params=params, metadata_only=True
        ):
            for record in page:
                namespace = labels_of(record.metadata)[keys.BARE_POD]
                name = annotations_of(record.metadata).get(keys.BARE_POD, "")
                self._track(
                    (record.metadata.name or "").removeprefix(_PREFIX),
                    NamespacedName(namespace, name),
                )
        self.is_loaded = True

    def rejection_reason(self, replacement: Mapping[str, Any]) -> str:
        """Return why a replacement cannot be stored; empty if it can."""
        namespace = replacement["metadata"]["namespace"]
        if len(json.dumps(replacement, ensure_ascii=False).encode()) > MAX_BYTES:
            return too_large_reason()
        # A namespace never has more than it leaves free. Without this, a few namespaces whose pods
        # cannot be created would take all room.
        most = min(MAX_RECORDS_OF_NAMESPACE, MAX_RECORDS - len(self.pending))
        if self._count_by_namespace[namespace] >= most:
            return "too many pods are waiting to be recreated"
        return ""

    async def put(self, uid: str, replacement: Mapping[str, Any]) -> None:
        """Store the replacement of a victim; an existing record stays unchanged."""
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
            await self._writes.create(object_path("controllerrevisions", self._namespace), document)
        except ApiError as error:
            if not error.is_conflict:
                raise
        self._track(uid, place)

    async def get(self, uid: str) -> ReplacementRecord | None:
        """Return a record, `None` if there is none."""
        return await self._writes.get(self._path(uid), ReplacementRecord)

    async def remove(self, uid: str) -> None:
        """Delete a record: its pod was created, or never will be."""
        await self._writes.delete_object(self._path(uid))
        place = self.pending.pop(uid, None)
        if place is not None:
            self._count_by_namespace[place.namespace] -= 1

    def _track(self, uid: str, place: NamespacedName) -> None:
        if uid not in self.pending:
            self._count_by_namespace[place.namespace] += 1
        self.pending[uid] = place

    def _path(self, uid: str) -> str:
        return object_path("controllerrevisions", self._namespace, _PREFIX + uid)
