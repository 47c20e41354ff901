"""A steady stream of creations through the API server, and what became of each.

One half are pods that the webhooks change, the other half pods that only the webhooks refuse: from
each answer it can be seen that they were asked. All are dry runs, which leave nothing behind.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import aiohttp

from mainjob.installation import PROBE
from realcluster.state import ADMIN, Cluster
from reprieve_policy import keys

CHANGED, DENIED = "changed by the webhooks", "denied by the webhooks"
UNASKED = "let through unasked"
RATE = 200
"""Requests a second."""
_MOST_UNDER_WAY = 100
"""A machine that is slower than the rate gets as many requests as it answers."""
_CONNECTIONS = 32


def a_plain_pod() -> Any:
    """Return a pod that states nothing about preemption: the webhooks give it a class."""
    pod: Any = PROBE
    return {**pod, "metadata": {"name": "plain"}}


@dataclass
class Creations:
    """How many creations had which outcome so far."""

    outcomes: Counter[str] = field(default_factory=Counter)

    @property
    def failed(self) -> Counter[str]:
        """All outcomes but the two right ones."""
        right = (CHANGED, DENIED)
        return Counter(
            {what: number for what, number in self.outcomes.items() if what not in right}
        )


@contextmanager
def creating(cluster: Cluster, rate: float = RATE) -> Iterator[Creations]:
    """Create pods at this rate while the block runs; return once each has its answer."""
    seen, ended = Creations(), threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(_create(cluster, rate, seen, ended))
        except BaseException as error:  # noqa: BLE001 - raised again below, in the test's thread
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
    if failures:
        raise failures[0]


async def _create(cluster: Cluster, rate: float, seen: Creations, ended: threading.Event) -> None:
    context = ssl.create_default_context(cafile=str(cluster.ca_file))
    context.check_hostname = False
    # The API server's self-signed certificate lacks extensions that Python 3.13 requires.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    connector = aiohttp.TCPConnector(ssl=context, limit=_CONNECTIONS)
    headers = {"Authorization": f"Bearer {cluster.token(ADMIN)}"}
    url = f"{cluster.api_server}/api/v1/namespaces/default/pods?dryRun=All"
    under_way = asyncio.Semaphore(_MOST_UNDER_WAY)
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with (
        aiohttp.ClientSession(connector=connector, headers=headers) as session,
        asyncio.TaskGroup() as tasks,
    ):

        async def send(pod: Any) -> None:
            try:
                async with session.post(url, json=pod) as answer:
                    seen.outcomes[outcome(answer.status, await answer.json())] += 1
            except (aiohttp.ClientError, TimeoutError) as error:
                seen.outcomes[f"no answer: {error!r}"] += 1
            finally:
                under_way.release()

        for number in itertools.count():
            if ended.is_set():
                break
            await asyncio.sleep(max(0.0, began + number / rate - loop.time()))
            await under_way.acquire()
            tasks.create_task(send(PROBE if number % 2 else a_plain_pod()))


def outcome(status: int, document: Any) -> str:
    """Return what became of a creation."""
    if status == HTTPStatus.CREATED:
        labels = document["metadata"].get("labels", {})
        is_probe = document["metadata"]["name"] == "probe"
        return CHANGED if keys.PREEMPTION_CLASS in labels and not is_probe else UNASKED
    message = str(document.get("message"))
    return DENIED if "denied the request" in message else f"{status}: {message}"
