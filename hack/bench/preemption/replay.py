"""Replays a trace on a cluster: creates its jobs when they arrive, and plays every pod's workload.

One process with one clock: a pod was created, ran, was deleted and ended when its watch event
arrived.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from bench.victims import workload
from realcluster.errors import ClusterError

from . import objects
from .records import PodRecords, ReplayResult
from .run import Action, PodRun
from .trace import Trace

_CONNECTIONS = 32
_LINE_BYTES = 1 << 20
_PAUSE_SECONDS = 0.1
_STRATEGIC_PATCH = {"Content-Type": "application/strategic-merge-patch+json"}
_PODS = f"/api/v1/namespaces/{objects.NAMESPACE}/pods"
_OVER = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
"""Conflict or not found: another client ended the pod at the same moment."""


async def play(
    trace: Trace, kubeconfig: Path, say: Callable[[str], None], *, publishes: bool = True
) -> ReplayResult:
    """Replay a trace to its end, or to its horizon.

    With `publishes`, workloads publish when they saved at their intervals.
    """
    pod_records = PodRecords(trace, publishes=publishes)
    async with _session(kubeconfig) as session:
        contender_cluster = _Workloads(session, pod_records)
        server = await workload.listen(contender_cluster.answer)
        port: int = server.sockets[0].getsockname()[1]
        began_at = time.monotonic()
        contender_cluster.begin(contender_cluster.watch())
        contender_cluster.begin(contender_cluster.create(trace, port, began_at))
        late: list[float] = []
        try:
            while (
                not pod_records.is_all_done and time.monotonic() < began_at + trace.horizon_seconds
            ):
                say(pod_records.counts())
                late.append(await _overslept())
                contender_cluster.check()
        finally:
            server.close()
            await contender_cluster.end()
        now = time.monotonic()
        return ReplayResult(list(pod_records.records(began_at, now)), now - began_at, sorted(late))


class _Workloads:
    """The cluster's pods and their workloads."""

    def __init__(self, session: aiohttp.ClientSession, pod_records: PodRecords) -> None:
        self._session = session
        self._ledger = pod_records
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, what: Coroutine[Any, Any, None]) -> None:
        """PodRun a coroutine in the background."""
        self._tasks.add(asyncio.create_task(what))

    def check(self) -> None:
        """Raise the error of a background task."""
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.remove(task)
            task.result()

    async def end(self) -> None:
        """Stop all workloads."""
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def create(self, trace: Trace, port: int, began_at: float) -> None:
        """Create each job when it arrives."""
        for job in trace.jobs:
            await asyncio.sleep(began_at + job.arrives_at - time.monotonic())
            await self._call(
                "POST",
                f"/apis/batch/v1/namespaces/{objects.NAMESPACE}/jobs",
                objects.job(job, port),
            )

    async def watch(self) -> None:
        """Record all changes of pods."""
        version = ""
        while True:
            path = f"{_PODS}?watch=true&allowWatchBookmarks=true&resourceVersion={version}"
            async with self._session.get(path, timeout=aiohttp.ClientTimeout(None)) as answer:
                answer.raise_for_status()
                async for line in answer.content:
                    said = json.loads(line)
                    if said["type"] == "ERROR":
                        raise ClusterError(
                            f"the watch of pods is lost: {said['object'].get('message')}"
                        )
                    version = said["object"]["metadata"]["resourceVersion"]
                    if said["type"] != "BOOKMARK":
                        self._see(said["type"], said["object"])

    def answer(self, address: str, method: str, _path: str, body: bytes) -> Mapping[str, object]:
        """Return the workload's answer to a hint, or to a poll of its progress."""
        run = self._ledger.at(address)
        if run is None or run.job.checkpoints is None:
            return {"state": "cannot"}
        if method != "POST":
            return {"state": run.says()}
        request = json.loads(body)["id"]
        run.hint(request, time.monotonic())
        self._arm(run)
        return {"state": run.says(), "id": request}

    def _see(self, event: str, pod: Mapping[str, Any]) -> None:
        run = self._ledger.see(event, pod, time.monotonic())
        if run is not None:
            self._arm(run)

    def _arm(self, run: PodRun) -> None:
        """Schedule the workload's next action."""
        if timer := self._timers.pop(run.uid, None):
            timer.cancel()
        if due := run.next():
            at, action = due
            delay = max(0.0, at - time.monotonic())
            self._timers[run.uid] = asyncio.get_running_loop().call_later(
                delay, self._act, run, action
            )

    def _act(self, run: PodRun, action: Action) -> None:
        if action is Action.EXIT:
            self.begin(self._exit(run, run.exit()))
            return
        if action is Action.CHECKPOINT:
            run.checkpoint()
            self.begin(self._publish(run, datetime.now(UTC)))
        else:
            run.save(time.monotonic())
        self._arm(run)

    async def _publish(self, run: PodRun, saved_at: datetime) -> None:
        """Write on the workload's own pod when it saved."""
        await self._call("PATCH", f"{_PODS}/{run.name}", objects.saved(run.uid, saved_at))

    async def _exit(self, run: PodRun, exit_code: int) -> None:
        """Report, as a pod's kubelet would, that its container has ended."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        await self._call(
            "PATCH", f"{_PODS}/{run.name}/status", objects.ended(run.uid, now, exit_code=exit_code)
        )

    async def _call(self, method: str, path: str, body: objects.Document) -> None:
        headers = _STRATEGIC_PATCH if method == "PATCH" else None
        async with self._session.request(method, path, json=body, headers=headers) as answer:
            text = await answer.text()
        if not answer.ok and not (method == "PATCH" and answer.status in _OVER):
            raise ClusterError(f"{method} {path}: {answer.status} {text[:300]}")


async def _overslept() -> float:
    began = time.monotonic()
    await asyncio.sleep(_PAUSE_SECONDS)
    return time.monotonic() - began - _PAUSE_SECONDS


def _session(kubeconfig: Path) -> aiohttp.ClientSession:
    config = json.loads(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    trust = ssl.create_default_context(
        cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
    )
    # Python 3.13 requires extensions that the API server's self-signed certificate does not have.
    trust.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return aiohttp.ClientSession(
        cluster["server"],
        connector=aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=trust),
        headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
        read_bufsize=_LINE_BYTES,
        trust_env=False,
    )
