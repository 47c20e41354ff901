"""A process that acts on pods from outside: `create`, `mark`, `bare-mark`, and `end`.

`end` is the least that ends a victim: it patches each with the mark and deletes it, two calls and
nothing else. `bare-mark` sets a mark that the operator ignores, for `bare_notifier`. The process
writes a line with its progress from time to time, and finally a line with its processor time.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp

from . import pods

AT_ONCE = 32
_SAY_SECONDS = 0.5
_MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
_OK = range(200, 300)
_BUSY = (429, 500, 503, 504)
_TRIES = 8


@dataclass(frozen=True)
class Calls:
    """Calls about the pods of one namespace."""

    session: aiohttp.ClientSession
    url: str
    """The URL of the collection."""

    async def make(self, method: str, url: str, body: pods.Document) -> None:
        """Make one call; try again while the API server is busy."""
        headers = _MERGE_PATCH if method == "PATCH" else None
        for left in reversed(range(_TRIES)):
            async with self.session.request(method, url, json=body, headers=headers) as response:
                text = await response.read()
            if response.status in _OK:
                return
            if response.status not in _BUSY or not left:
                sys.exit(f"{method} {url}: {response.status} {text[:300].decode(errors='replace')}")
            await asyncio.sleep(1)


class PodActions:
    """One session with the API server, with as many connections as concurrent calls."""

    def __init__(self, calls: Calls, options: argparse.Namespace) -> None:
        self._calls = calls
        self._options = options
        self.done = 0

    async def run(self) -> None:
        """Act on all pods."""
        numbers = iter(range(self._options.first, self._options.first + self._options.count))
        verbs: dict[str, Callable[[int], Awaitable[None]]] = {
            "create": self._create,
            "mark": partial(self._patch, pods.MARK),
            "bare-mark": partial(self._patch, pods.BARE_MARK),
            "end": self._end,
        }
        do = verbs[self._options.verb]
        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE, self._options.count)):
                group.create_task(self._each(do, numbers))

    async def _each(self, do: Callable[[int], Awaitable[None]], numbers: Iterator[int]) -> None:
        for number in numbers:
            await do(number)
            self.done += 1

    async def _create(self, number: int) -> None:
        of = self._options
        made = (
            pods.victim(of.namespace, number, of.nodes, of.port)
            if of.port
            else pods.bystander(number, of.nodes)
        )
        await self._calls.make("POST", self._calls.url, made)

    async def _patch(self, body: pods.Document, number: int) -> None:
        await self._calls.make("PATCH", f"{self._calls.url}/{pods.name(number)}", body)

    async def _end(self, number: int) -> None:
        await self._patch(pods.BARE_MARK, number)
        await self._calls.make("DELETE", f"{self._calls.url}/{pods.name(number)}", pods.DELETE)


@asynccontextmanager
async def connect(options: argparse.Namespace, connections: int) -> AsyncIterator[Calls]:
    """Make calls with a kubeconfig's token during the block."""
    config = json.loads(options.kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    trust = ssl.create_default_context(cadata=authority)
    # Python 3.13 requires extensions that the API server's self-signed certificate does not have.
    trust.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
    connector = aiohttp.TCPConnector(limit=connections, ssl=trust)
    async with aiohttp.ClientSession(
        connector=connector, headers=headers, trust_env=False
    ) as session:
        yield Calls(session, f"{cluster['server']}/api/v1/namespaces/{options.namespace}/pods")


async def _work(options: argparse.Namespace) -> None:
    async with connect(options, AT_ONCE) as calls:
        pod_actions = PodActions(calls, options)
        saying = asyncio.create_task(_say(pod_actions))
        await pod_actions.run()
        saying.cancel()


async def _say(pod_actions: PodActions) -> None:
    while True:
        print(pod_actions.done, flush=True)
        await asyncio.sleep(_SAY_SECONDS)


def main() -> None:
    """Perform one action on the pods `first` to `first + count - 1` of a namespace."""
    parser = argparse.ArgumentParser("bench.victims.pod_actions", description=__doc__)
    parser.add_argument("verb", choices=["create", "mark", "bare-mark", "end"])
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument(
        "--port", type=int, default=0, help="where victims are hinted; 0: bystanders are made"
    )
    options = parser.parse_args()
    asyncio.run(_work(options))
    print(json.dumps({"cpu_seconds": time.process_time()}), flush=True)


if __name__ == "__main__":
    main()
