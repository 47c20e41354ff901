"""The watch of victims: the pods that carry our label, and nothing else, as they change."""

from collections.abc import Callable

from reprieve_operator.cluster.pods import Pod
from reprieve_policy import keys
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Key, Reflector

_PAGE = 50
"""Pods asked for at once: each may bring 256 KiB of annotations, and a page is in memory whole."""


class PodWatch:
    """Tells of each victim as it is now, and by its uid of each that has left: it is gone, or our label is."""

    def __init__(self, api: Api, see: Callable[[Pod], None], lose: Callable[[str], None]) -> None:
        self._see = see
        self._lose = lose
        self._uids: dict[Key, str] = {}
        selector = {"labelSelector": keys.SOFT_EVICTION}
        self.reflector: Reflector[Pod, None] = Reflector(
            api, object_path("pods"), Pod, self._take, forget=self._forget, params=selector, page=_PAGE
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        await self.reflector.run()

    def _take(self, pod: Pod) -> None:
        key, uid = (pod.metadata.namespace or "", pod.metadata.name or ""), pod.metadata.uid or ""
        before, self._uids[key] = self._uids.get(key, uid), uid
        if before != uid:
            # While nobody watched, another pod of the same name took its place.
            self._lose(before)
        self._see(pod)

    def _forget(self, key: Key) -> None:
        self._lose(self._uids.pop(key))
