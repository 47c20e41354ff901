"""What an operator that is uninstalled leaves behind: no pod that only it could release.

An operator that stops for another reason (an upgrade, a node that is drained) leaves the finalizer
on its victims: the next one continues. Where its Deployment is gone or has no replicas, no next one
comes.
"""

import asyncio
import logging
from collections.abc import Iterable

from reprieve_policy import keys
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

from .cluster import kept_pods, pod_state
from .cluster.deployments import OwnDeployment
from .cluster.pods import VersionedObject
from .cluster.retries import is_permanent
from .cluster.writes import Writes
from .victims.pod_tracker import VictimRef

_log = logging.getLogger(__name__)

RELEASE_SECONDS = 15.0
"""Half of the grace period of the operator's own pod."""
_READ_SECONDS = 5.0
"""For the read of the own Deployment: an upgrade must not wait for an API server that is away."""
_READ_PAUSE_SECONDS = 0.5
_MIN_PASSES = 2
"""A write that was under way when the term ended may reach the API server after the first pass."""
_PASS_PAUSE_SECONDS = 1.0
_MAX_PAUSE_SECONDS = 5.0


class Uninstall:
    """Watches for the end of the operator's own Deployment, at the end of a term."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self._api = api
        self._path = object_path("deployments", namespace, name)
        self._is_deployed = False

    async def remember_deployment(self) -> None:
        """Note whether there is a Deployment: a program that was started by hand has none."""
        if self._is_deployed:
            return
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
            async with asyncio.timeout(_READ_SECONDS):
                return await self._read_is_going()
        except (ApiError, TimeoutError) as error:
            text = str(error) or "timeout"
            _log.warning("could not read the own Deployment", extra={"error": text})
            return False

    async def _read_is_going(self) -> bool:
        """Read until the API server answers; raises an `ApiError` that will not change."""
        while True:
            try:
                return (await self._read()).is_going
            except ApiError as error:
                if error.is_not_found:
                    return True
                if is_permanent(error):
                    raise
            await asyncio.sleep(_READ_PAUSE_SECONDS)

    async def _read(self) -> OwnDeployment:
        return await self._api.get(self._path, OwnDeployment)


class VictimRelease:
    """Removes our finalizer from all victims at the end of the last term."""

    def __init__(self, writes: Writes, known: Iterable[VictimRef]) -> None:
        """`known`: the victims of the term; its last writes to them may not be seen yet."""
        self._writes = writes
        self._known = {ref.uid: ref for ref in known}
        self._pause_seconds = _PASS_PAUSE_SECONDS

    async def run(self) -> None:
        """Release until no victim is held; log that some may be, if the time is over."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                passes = 0
                while not await self._release_once() or passes < _MIN_PASSES - 1:
                    passes += 1
                    await asyncio.sleep(self._pause_seconds)
        except TimeoutError:
            _log.error("not all pods were released in time; run `reprieve cleanup`")

    async def _release_once(self) -> bool:
        """Release the victims that are held now; true if there were none."""
        self._pause_seconds = _PASS_PAUSE_SECONDS
        try:
            held = await self._find_held()
        except ApiError as error:
            self._note(error)
            return False
        await asyncio.gather(*(self._release(metadata) for metadata in held))
        return not held

    async def _find_held(self) -> list[VersionedMeta]:
        """Return the pods with our finalizer: those with our label, and those that are known."""
        labelled: dict[str, VersionedMeta] = {}
        async for page in self._writes.list_pages(
            object_path("pods"),
            VersionedObject,
            params={"labelSelector": keys.SOFT_EVICTION},
            metadata_only=True,
        ):
            labelled.update(
                (pod.metadata.uid or "", kept_pods.prune_metadata(pod.metadata)) for pod in page
            )
        others = [ref for uid, ref in self._known.items() if uid not in labelled]
        found = await asyncio.gather(*(self._read(ref) for ref in others))
        pods = [*labelled.values(), *(metadata for metadata in found if metadata is not None)]
        return [metadata for metadata in pods if pod_state.has_cleanup_finalizer(metadata)]

    async def _read(self, ref: VictimRef) -> VersionedMeta | None:
        pod = await self._writes.read_pod(ref.namespace, ref.name, ref.uid)
        if pod is None:
            self._known.pop(ref.uid, None)
        return None if pod is None else kept_pods.prune_metadata(pod.metadata)

    async def _release(self, metadata: VersionedMeta) -> None:
        """Remove the finalizer; a pod that cannot be written to is found again in the next pass."""
        try:
            await self._writes.remove_finalizer(metadata)
        except ApiError as error:
            self._note(error, metadata.key)

    def _note(self, error: ApiError, pod: str = "") -> None:
        extra = {"pod": pod, "error": str(error)}
        _log.warning("could not release victims; it is tried again", extra=extra)
        pause = min(error.retry_after_seconds or 0.0, _MAX_PAUSE_SECONDS)
        self._pause_seconds = max(self._pause_seconds, pause)
