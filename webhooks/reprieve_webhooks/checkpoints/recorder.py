"""Writes the annotation `reprieve.dev/last-checkpoint-at` of one pod, only forward in time."""

from datetime import datetime
from typing import NamedTuple

import msgspec

from reprieve_policy import keys
from reprieve_policy.kube.values import timestamp
from reprieve_runtime import deep
from reprieve_runtime.client.api import (
    MERGE_PATCH,
    METADATA_ONLY,
    Api,
    ApiError,
)
from reprieve_runtime.client.paths import object_path
from reprieve_webhooks.lookups.limits import MAX_OBJECT_BYTES
from reprieve_webhooks.snapshot.recent_choices import PodIdentity

_MAX_ATTEMPTS = 3
"""A pod that changes between the read and the write is read again."""


class RecordedTime(NamedTuple):
    """When a pod last saved, as its annotation says."""

    at: datetime
    is_new: bool


class _Annotations(msgspec.Struct, gc=False):
    """The one that is read. Without this, pods of many small ones would fill the memory."""

    saved_at: str = msgspec.field(name=keys.LAST_CHECKPOINT_AT, default="")


class _Metadata(msgspec.Struct, gc=False):
    uid: str = ""
    version: str = msgspec.field(name="resourceVersion", default="")
    annotations: _Annotations | None = None


class _PodMetadata(msgspec.Struct, gc=False):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class CheckpointRecorder:
    """Reads and patches pods; raises `ApiError`."""

    def __init__(self, api: Api, *, timeout_seconds: float) -> None:
        self._api, self._timeout_seconds = api, timeout_seconds

    async def record(self, pod: PodIdentity, saved_at: datetime) -> RecordedTime | None:
        """Return the time that the pod has now; `None` if this pod is gone.

        Another pod of the same name is never written to.
        """
        path = object_path("pods", pod.namespace, pod.name)
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                metadata = await self._read(path)
                if metadata.uid != pod.uid:
                    return None
                annotations = metadata.annotations
                known = None if annotations is None else timestamp.parse(annotations.saved_at)
                if known is not None and known >= saved_at:
                    return RecordedTime(known, is_new=False)
                await self._write(path, pod, metadata.version, saved_at)
            except ApiError as error:
                if error.is_not_found:
                    return None
                if not error.is_conflict or attempt == _MAX_ATTEMPTS:
                    raise
            else:
                return RecordedTime(saved_at, is_new=True)
        raise AssertionError("the last attempt returns or raises")

    async def _read(self, path: str) -> _Metadata:
        text = await self._api.request(
            "GET",
            path,
            accept=METADATA_ONLY,
            timeout_seconds=self._timeout_seconds,
            max_bytes=MAX_OBJECT_BYTES,
        )
        return deep.decode(text, _PodMetadata).metadata

    async def _write(self, path: str, pod: PodIdentity, version: str, saved_at: datetime) -> None:
        metadata = {
            "uid": pod.uid,
            "resourceVersion": version,
            "annotations": {keys.LAST_CHECKPOINT_AT: timestamp.render(saved_at)},
        }
        await self._api.request(
            "PATCH",
            path,
            params={"fieldManager": "reprieve-checkpoints"},
            body={"metadata": metadata},
            content_type=MERGE_PATCH,
            accept=METADATA_ONLY,
            timeout_seconds=self._timeout_seconds,
        )
