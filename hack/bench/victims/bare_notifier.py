"""The least that gives notice: it watches for marks, notifies each workload, and deletes its pod.

For each pod: a patch of its state, the hint, a poll after the usual pause if the workload is not
done, and a DELETE. It knows no policy, checks no answer, writes no Event, survives no restart. So
the time from a mark to its hint is that of the API server, the workload and this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from . import pod_actions, pods

_POLL_SECONDS = 5.0
"""The default of the operator's --poll-interval-seconds."""
_READ_LIMIT = 4 * 1024 * 1024
"""The longest line of a watch, in bytes."""


class BareNotifier:
    """Handles `count` victims of a namespace, each in a task of its own."""

    def __init__(
        self,
        calls: pod_actions.Calls,
        workloads: aiohttp.ClientSession,
        options: argparse.Namespace,
    ) -> None:
        self._calls = calls
        self._workloads = workloads
        self._port = options.port
        self._namespace = options.namespace
        self._count = options.count

    async def run(self) -> None:
        """Return once all victims are deleted."""
        seen = set[str]()
        async with asyncio.TaskGroup() as group:
            async for pod in self._marked():
                name = pod["metadata"]["name"]
                if name not in seen:
                    seen.add(name)
                    group.create_task(self._handle(name, pod["status"]["podIP"]))
                if len(seen) == self._count:
                    break

    async def _marked(self) -> AsyncIterator[Any]:
        query = {"watch": "1", "labelSelector": pods.BARE_MARK_LABEL, "resourceVersion": "0"}
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._calls.session.get(
            self._calls.url, params=query, timeout=timeout, read_bufsize=_READ_LIMIT
        ) as response:
            print("watching", flush=True)
            async for line in response.content:
                yield json.loads(line)["object"]

    async def _handle(self, name: str, address: str) -> None:
        url = f"{self._calls.url}/{name}"
        await self._calls.make("PATCH", url, pods.BARE_STATE)
        workload = f"http://{address}:{self._port}/{self._namespace}/{name}"
        async with self._workloads.post(workload, json={"id": name}) as answer:
            is_saved = (await answer.json())["state"] == "saved"
        if not is_saved:
            await asyncio.sleep(_POLL_SECONDS)
            async with self._workloads.get(workload) as answer:
                await answer.read()
        await self._calls.make("DELETE", url, pods.DELETE)


async def _work(options: argparse.Namespace) -> None:
    # One connection more, for the watch.
    async with (
        pod_actions.connect(options, pod_actions.AT_ONCE + 1) as calls,
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), trust_env=False
        ) as workloads,
    ):
        await BareNotifier(calls, workloads, options).run()


def main() -> None:
    """Handle victims until as many as expected are deleted; print the processor time."""
    parser = argparse.ArgumentParser("bench.victims.bare_notifier", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--port", type=int, required=True, help="of the workloads")
    asyncio.run(_work(parser.parse_args()))
    print(json.dumps({"cpu_seconds": time.process_time()}), flush=True)


if __name__ == "__main__":
    main()
