"""Plays a trace against a cluster: creates its jobs when they arrive, and is the workload of every pod.

One process with one clock: when a pod was created, ran, was deleted and ended is when its watch said so.
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
from .ledger import Ledger, Played
from .run import Action, Run
from .trace import Trace

_CONNECTIONS = 32
_LINE_BYTES = 1 << 20
_PAUSE_SECONDS = 0.1
_STRATEGIC_PATCH = {"Content-Type": "application/strategic-merge-patch+json"}
_PODS = f"/api/v1/namespaces/{objects.NAMESPACE}/pods"
_OVER = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
"""Somebody else ended the pod in the same moment."""


async def play(trace: Trace, kubeconfig: Path, say: Callable[[str], None]) -> Played:
    """Play a trace to its end, or to its horizon."""
    ledger = Ledger(trace)
    async with _session(kubeconfig) as session:
        stage = _Stage(session, ledger)
        server = await workload.listen(stage.answer)
        port: int = server.sockets[0].getsockname()[1]
        began_at = time.monotonic()
        stage.begin(stage.watch())
        stage.begin(stage.create(trace, port, began_at))
        late: list[float] = []
        try:
            while not ledger.is_all_done and time.monotonic() < began_at + trace.horizon_seconds:
                say(ledger.counts())
                late.append(await _overslept())
                stage.check()
        finally:
            server.close()
            await stage.end()
        now = time.monotonic()
        return Played(list(ledger.records(began_at, now)), now - began_at, sorted(late))


class _Stage:
    """The cluster's pods, and what their workloads do."""

    def __init__(self, session: aiohttp.ClientSession, ledger: Ledger) -> None:
        self._session = session
        self._ledger = ledger
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, what: Coroutine[Any, Any, None]) -> None:
        """Do something beside all else."""
        self._tasks.add(asyncio.create_task(what))

    def check(self) -> None:
        """Raise what has failed."""
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.remove(task)
            task.result()

    async def end(self) -> None:
        """Let no workload do anything any more."""
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
        """Take note of all that happens to pods."""
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
        """Return what the workload at an address answers to a hint, or to the question how far it is."""
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

    def _arm(self, run: Run) -> None:
        """Have the workload do what it does next when it is time to."""
        if timer := self._timers.pop(run.uid, None):
            timer.cancel()
        if due := run.next():
            at, action = due
            delay = max(0.0, at - time.monotonic())
            self._timers[run.uid] = asyncio.get_running_loop().call_later(
                delay, self._act, run, action
            )

    def _act(self, run: Run, action: Action) -> None:
        if action is Action.EXIT:
            self.begin(self._exit(run, run.exit()))
        else:
            run.save(time.monotonic())
            self._arm(run)

    async def _exit(self, run: Run, exit_code: int) -> None:
        """Say of a pod, as its kubelet would, that its container has ended."""
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
    # The API server's self-signed certificate lacks extensions that Python 3.13 began to insist on.
    trust.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    return aiohttp.ClientSession(
        cluster["server"],
        connector=aiohttp.TCPConnector(limit=_CONNECTIONS, ssl=trust),
        headers={"Authorization": f"Bearer {config['users'][0]['user']['token']}"},
        read_bufsize=_LINE_BYTES,
        trust_env=False,
    )
