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
from reprieve_operator.cluster.writes import Effects
from reprieve_policy import keys
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_policy.lifecycle.bare_pod import MAX_BYTES, MAX_RECORDS, MAX_RECORDS_OF_NAMESPACE
from reprieve_runtime.client.api import ApiError, PartialObject
from reprieve_runtime.client.paths import object_path

_PREFIX = "bare-pod-"
_CONFLICT = 409


class Place(NamedTuple):
    """Where a replacement will be."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One replacement to be made."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def replacement(self) -> dict[str, Any]:
        """The pod's manifest."""
        found: dict[str, Any] = self.data["pod"]
        return found


class BareStore:
    """Records by the uid of the victim. Only the leader writes: what it read once and wrote since is all there is."""

    def __init__(self, effects: Effects, namespace: str) -> None:
        self._effects = effects
        self._namespace = namespace
        self._of_namespace: Counter[str] = Counter()
        self.places: dict[str, Place] = {}
        """By the victim's uid."""
        self.is_loaded = False
        """Until then, there may be more than `places` tells."""

    async def load(self) -> None:
        """Read what earlier leaders have left."""
        path = object_path("controllerrevisions", self._namespace)
        params = {"labelSelector": keys.BARE_POD}
        async for page in self._effects.pages(path, PartialObject, params=params, metadata_only=True):
            for found in page:
                namespace = labels_of(found.metadata)[keys.BARE_POD]
                name = annotations_of(found.metadata).get(keys.BARE_POD, "")
                self._know((found.metadata.name or "").removeprefix(_PREFIX), Place(namespace, name))
        self.is_loaded = True

    def refuses(self, replacement: Mapping[str, Any]) -> str:
        """Return why there is no room for a replacement; empty where there is."""
        namespace = replacement["metadata"]["namespace"]
        if len(json.dumps(replacement, ensure_ascii=False).encode()) > MAX_BYTES:
            return f"its manifest has more than {MAX_BYTES // 1024} KiB"
        if len(self.places) >= MAX_RECORDS or self._of_namespace[namespace] >= MAX_RECORDS_OF_NAMESPACE:
            return "too many pods wait for being made anew"
        return ""

    async def put(self, uid: str, replacement: Mapping[str, Any]) -> None:
        """Keep the replacement of a victim; one that is kept already stays as it is."""
        place = Place(replacement["metadata"]["namespace"], replacement["metadata"]["name"])
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
            await self._effects.create(object_path("controllerrevisions", self._namespace), document)
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
        self._know(uid, place)

    async def get(self, uid: str) -> Record | None:
        """Return a record, `None` where there is none."""
        return await self._effects.find(self._path(uid), Record)

    async def remove(self, uid: str) -> None:
        """Forget a replacement: it is made, or will never be."""
        await self._effects.remove(self._path(uid))
        place = self.places.pop(uid, None)
        if place is not None:
            self._of_namespace[place.namespace] -= 1

    def _know(self, uid: str, place: Place) -> None:
        if uid not in self.places:
            self._of_namespace[place.namespace] += 1
        self.places[uid] = place

    def _path(self, uid: str) -> str:
        return object_path("controllerrevisions", self._namespace, _PREFIX + uid)
