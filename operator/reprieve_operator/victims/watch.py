"""The watch of victims: only pods that carry our label."""

import asyncio
import math
from collections.abc import Callable

from reprieve_operator.cluster.pods import PAGE_SIZE, WRITABLE, VictimPod
from reprieve_policy import keys
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Key, Reflector


class VictimWatch:
    """Passes on each victim that changed, and the uid of each that left the watch.

    A pod leaves the watch if it is gone or loses our label.
    """

    def __init__(
        self,
        api: Api,
        on_update: Callable[[VictimPod], None],
        on_delete: Callable[[str], None],
        *,
        on_listed: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_listed` is called once, when the first list is complete."""
        self._on_update = on_update
        self._on_delete = on_delete
        self._on_listed = on_listed
        self._uids: dict[Key, str] = {}
        selector = {"labelSelector": keys.SOFT_EVICTION, **WRITABLE}
        self.reflector: Reflector[VictimPod, None] = Reflector(
            api,
            object_path("pods"),
            VictimPod,
            self._handle_pod,
            on_delete=self._handle_delete,
            params=selector,
            page=PAGE_SIZE,
            is_compressed=True,
        )

    async def run(self) -> None:
        """Watch until cancelled."""
        announcement = asyncio.create_task(self._announce_first_list())
        try:
            await self.reflector.run()
        finally:
            announcement.cancel()

    async def _announce_first_list(self) -> None:
        await self.reflector.wait_synced(math.inf)
        self._on_listed()

    def _handle_pod(self, pod: VictimPod) -> None:
        key, uid = (pod.metadata.namespace or "", pod.metadata.name or ""), pod.metadata.uid or ""
        before, self._uids[key] = self._uids.get(key, uid), uid
        if before != uid:
            # Another pod of the same name was created while the watch was interrupted.
            self._on_delete(before)
        self._on_update(pod)

    def _handle_delete(self, key: Key) -> None:
        self._on_delete(self._uids.pop(key))
