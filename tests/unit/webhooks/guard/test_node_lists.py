"""A review of a native group lists the pods of many nodes, a few at a time."""

import asyncio
import json
from typing import Any, cast

import msgspec

from reprieve_runtime.client.api import Api
from reprieve_webhooks.guard.objects import GuardedPod
from reprieve_webhooks.guard.reader import GuardReader


class Cluster:
    """Has one pod of the group on each node; counts the lists that are under way."""

    def __init__(self, *, hangs: bool = False) -> None:
        self.under_way = self.most = 0
        self._hangs = hangs

    async def request(self, _method: str, _path: str, **options: Any) -> bytes:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            if self._hangs:
                await asyncio.Event().wait()
            for _ in range(10):
                await asyncio.sleep(0)
        finally:
            self.under_way -= 1
        _, _, node = options["params"]["fieldSelector"].partition("=")
        spec = {"nodeName": node, "schedulingGroup": {"podGroupName": "train"}}
        return json.dumps({"items": [{"spec": spec}]}).encode()


async def runs_group_on_nodes(cluster: Cluster, number: int) -> list[bool | None]:
    reader = GuardReader(cast("Api", cluster), timeout_seconds=1.0)
    pod = msgspec.convert(
        {"spec": {"schedulingGroup": {"podGroupName": "train"}}}, GuardedPod, strict=False
    )
    nodes = [f"node-{each}" for each in range(number)]
    return await asyncio.gather(*(reader.runs_group_on(node, pod, "team") for node in nodes))


async def test_a_few_lists_of_pods_are_read_at_a_time() -> None:
    """Each may have megabytes of pods that a user sizes."""
    cluster = Cluster()
    assert await runs_group_on_nodes(cluster, 20) == [True] * 20
    assert cluster.most == 4


async def test_where_lists_hang_it_is_unknown_where_the_group_runs() -> None:
    cluster = Cluster(hangs=True)
    assert await runs_group_on_nodes(cluster, 20) == [None] * 20
    assert cluster.under_way == 0
