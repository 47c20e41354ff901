"""What an operator that is uninstalled leaves behind: no pod that only it could release.

An operator that stops for another reason (an upgrade, a node that is drained) leaves the finalizer
on its victims: the next one continues. Where its Deployment is gone or has no replicas, no next one
comes.
"""

import asyncio
import logging
from collections.abc import Iterable

from reprieve_policy.kube.objects import VersionedMeta
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

from .cluster import pod_state
from .cluster.deployments import OwnDeployment
from .cluster.retries import GONE_OR_CHANGED
from .cluster.writes import Writes

_log = logging.getLogger(__name__)

_RELEASE_SECONDS = 15.0
"""Half of the grace period of the operator's own pod."""
_MAX_TRIES = 5


class Uninstall:
    """Watches for the end of the operator's own Deployment, at the end of a term."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self._path = object_path("deployments", namespace, name)
        self._is_deployed = False

    async def remember_deployment(self) -> None:
        """Note whether there is a Deployment: a program that was started by hand has none."""
        try:
            await self._read()
        except ApiError as error:
            # Unknown is not "none": a read that fails once must not leave the victims held.
            self._is_deployed = not error.is_not_found
            if self._is_deployed:
                _log.warning("could not read the own Deployment", extra={"error": str(error)})
        else:
            self._is_deployed = True

    async def is_in_progress(self) -> bool:
        """True if the Deployment was there and is gone, is being deleted, or has no replicas."""
        if not self._is_deployed:
            return False
        try:
            return (await self._read()).is_going
        except ApiError as error:
            if not error.is_not_found:
                _log.warning("could not read the own Deployment", extra={"error": str(error)})
            return error.is_not_found

    async def _read(self) -> OwnDeployment:
        return await self._api.get(self._path, OwnDeployment)


async def release_pods(writes: Writes, pods: Iterable[VersionedMeta]) -> None:
    """Remove our finalizer from the pods; log those that could not be released."""
    try:
        async with asyncio.timeout(_RELEASE_SECONDS):
            await asyncio.gather(*(_release(writes, metadata) for metadata in pods))
    except TimeoutError:
        _log.error("not all pods were released in time; run `reprieve cleanup`")


async def _release(writes: Writes, metadata: VersionedMeta) -> None:
    for _ in range(_MAX_TRIES):
        try:
            await writes.remove_finalizer(metadata)
        except ApiError as error:
            if error.status not in GONE_OR_CHANGED:
                _log.error(
                    "could not release the pod; run `reprieve cleanup`",
                    extra={"pod": metadata.key, "error": str(error)},
                )
                return
        else:
            return
        pod = await _reread(writes, metadata)
        if pod is None or not pod_state.has_cleanup_finalizer(pod):
            return
        metadata = pod


async def _reread(writes: Writes, metadata: VersionedMeta) -> VersionedMeta | None:
    name, uid = metadata.name or "", metadata.uid or ""
    try:
        pod = await writes.read_pod(metadata.namespace or "", name, uid)
    except ApiError:
        return None
    return None if pod is None else pod.metadata
