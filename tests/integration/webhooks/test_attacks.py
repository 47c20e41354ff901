"""Clients without credentials do not take the webhooks' memory, nor hold up reviews.

The program runs as a process, under the memory limit of its manifest.
"""

import asyncio
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from reprieve_policy import keys
from reprieve_testing import manifests
from reprieve_testing.servers.attackers import Attackers, many_files
from reprieve_testing.servers.reviews import a_pod, a_review
from reprieve_testing.servers.stub_api import stub_api, until
from reprieve_testing.servers.webhook_program import (
    RunningWebhooks,
    any_certificate,
    running_webhooks,
    write_certificate,
)
from reprieve_webhooks.http.body_budget import SMALL_BYTES
from reprieve_webhooks.settings import Settings

(CONTAINER,) = manifests.named("Deployment", "reprieve-webhooks")["spec"]["template"]["spec"][
    "containers"
]
pytestmark = pytest.mark.heavy  # a process at its memory limit
LIMIT = int(CONTAINER["resources"]["limits"]["memory"].removesuffix("Mi")) * 1024 * 1024
LARGEST = Settings().max_review_bytes
REVIEWS = 20
PROTECTED = json.dumps(a_review(a_pod(labels={keys.PREEMPTION_CLASS: "9"}))).encode()
"""Its namespace allows only class 10, so that it is refused where it is checked."""
PROTECTED_LARGE = json.dumps(
    a_review(a_pod(labels={keys.PREEMPTION_CLASS: "9"}, annotations={"x": "y" * 200_000}))
).encode()


UNKNOWN = "team-b"
"""A Namespace that no watch has, and whose reading takes for ever."""


def empty_containers(size: int) -> bytes:
    """Return a review of at most this size; it decodes to thirty times as much."""
    empty = a_review(a_pod(), namespace=UNKNOWN)
    empty["request"]["object"]["spec"]["containers"] = []
    head, _, tail = json.dumps(empty).partition("[]")
    count = (size - len(head) - len(tail) - 2) // len("{},")
    return f"{head}[{','.join(['{}'] * count)}]{tail}".encode()


@asynccontextmanager
async def ready_webhooks(directory: Path, *flags: str) -> AsyncIterator[RunningWebhooks]:
    namespace = {"metadata": {"name": "team-a", "annotations": {keys.WORKLOAD_TYPE: "sensitive"}}}
    write_certificate(directory)
    collections = {"/api/v1/namespaces": {"team-a": namespace}}
    async with stub_api(directory, collections=collections) as (stub, _):
        stub.lists_released.set()
        held = stub.reads_held[f"/api/v1/namespaces/{UNKNOWN}"] = asyncio.Event()
        async with running_webhooks(directory, "--cert-dir", str(directory), *flags) as program:
            await program.wait_for_log("ready")
            yield program
            held.set()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningWebhooks]:
    """One program for the attacks that leave nothing behind: each start takes a second."""
    async with ready_webhooks(tmp_path_factory.mktemp("webhooks")) as program:
        yield program


def attackers_of(program: RunningWebhooks, *, addresses: int = 1) -> Attackers:
    port = int(program.url.rpartition(":")[2])
    return Attackers(port, addresses=addresses, context=any_certificate())


async def check_reviews(program: RunningWebhooks, body: bytes = PROTECTED) -> None:
    """Send reviews, each on a connection of its own: all are answered, and refuse the pod."""
    for _ in range(REVIEWS):
        connector = aiohttp.TCPConnector(ssl=any_certificate())
        headers = {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(f"{program.url}/validate", data=body, headers=headers) as reply,
        ):
            assert reply.status == 200
            assert (await reply.json())["response"]["allowed"] is False


def check_memory(program: RunningWebhooks, most: int = LIMIT) -> None:
    assert program.process.returncode is None
    peak = program.peak_memory_bytes()
    assert peak < most, f"{peak >> 20} MiB of {most >> 20}"


@pytest.mark.asyncio(loop_scope="module")
async def test_stalled_bodies_take_little_memory_and_hold_up_no_review(
    shared: RunningWebhooks,
) -> None:
    async with attackers_of(shared) as attackers:
        attackers.stall(100, LARGEST)
        await check_reviews(shared)
        check_memory(shared)


@pytest.mark.slow  # `integration/webhooks/http/test_large_bodies.py` shows it with two
async def test_stalled_bodies_of_two_addresses_hold_up_no_large_review(tmp_path: Path) -> None:
    """Together, they take all room for large bodies."""
    async with (
        ready_webhooks(tmp_path, "--read-timeout-seconds", "120") as program,
        attackers_of(program, addresses=2) as attackers,
    ):
        attackers.stall(300, SMALL_BYTES + 1000, again=True)
        await until(lambda: attackers.stalled >= 300)
        await check_reviews(program, PROTECTED_LARGE)
        check_memory(program)


@pytest.mark.slow  # more connections than the others
async def test_connections_that_are_replaced_all_the_time_take_less_than_the_limit(
    tmp_path: Path,
) -> None:
    """More than are held: each new one closes one, whose memory is given back at once."""
    async with (
        ready_webhooks(tmp_path) as program,
        attackers_of(program, addresses=4) as attackers,
    ):
        attackers.stall(700, LARGEST, again=True)
        # Each sends as much as the server takes: on a busy machine, for minutes.
        await until(lambda: attackers.opened >= 1500, seconds=600)
        check_memory(program)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("size", [7_700_000, LARGEST - 100_000])
async def test_a_flood_of_large_reviews_leaves_no_review_unanswered(
    shared: RunningWebhooks, size: int
) -> None:
    async with attackers_of(shared) as attackers:
        attackers.flood(24, size)
        await check_reviews(shared)
        check_memory(shared)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("size", [SMALL_BYTES, 223_000])
async def test_reviews_of_many_values_take_less_than_the_limit_while_they_await_facts(
    tmp_path: Path, size: int
) -> None:
    """As many as are held: what they decode to would take 900 MB and 3 GB."""
    flags = "--lookup-timeout-seconds", "2"
    async with (
        ready_webhooks(tmp_path, *flags) as program,
        attackers_of(program, addresses=4) as attackers,
    ):
        attackers.ask_at_once(420, empty_containers(size))
        await until(lambda: attackers.asked >= (420 if size <= SMALL_BYTES else 100))
        await check_reviews(program)
        check_memory(program)


@pytest.mark.slow  # more connections than the two above
async def test_as_many_connections_as_are_held_take_less_than_the_limit(tmp_path: Path) -> None:
    async with ready_webhooks(tmp_path) as program, attackers_of(program, addresses=4) as attackers:
        attackers.stall(300, LARGEST)
        attackers.stall(300, 64 * 1024)
        await attackers.send_half_a_head(200)
        await check_reviews(program)
        check_memory(program)


@pytest.mark.slow  # `integration/webhooks/http/test_connections.py` shows it with a few
async def test_thousands_of_connections_without_tls_take_little_memory(
    tmp_path: Path,
) -> None:
    """As many as are held take 25 MiB. Without the bound, these would take more than the limit."""
    async with ready_webhooks(tmp_path) as program:
        with many_files():
            async with attackers_of(program, addresses=4) as attackers:
                await attackers.open_in_silence(4000)
                await check_reviews(program)
                check_memory(program, LIMIT * 5 // 8)


@pytest.mark.slow  # `integration/webhooks/http/test_bad_input.py` shows the bound
async def test_what_clients_do_not_read_takes_little_memory(tmp_path: Path) -> None:
    """A response repeats the uid of its review, and waits in memory for a client that reads it."""
    review = a_review(a_pod(), uid="u" * (LARGEST - 10_000))
    async with ready_webhooks(tmp_path) as program, attackers_of(program) as attackers:
        await attackers.ask_and_read_nothing(30, json.dumps(review).encode())
        await check_reviews(program)
        check_memory(program)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_values_of_a_body_of_very_many_are_not_decoded(
    shared: RunningWebhooks,
) -> None:
    """Without this, these empty containers would take more memory than the limit."""
    spec = '{"containers":[' + ",".join(["{}"] * 8_000_000) + "]}"
    head = (
        '{"apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"CREATE",'
        '"kind":{"kind":"Pod"},"object":{"spec":'
    )
    headers = {"Content-Type": "application/json"}
    body = f"{head}{spec}}}}}}}".encode()
    async with shared.session.post(
        f"{shared.url}/validate", data=io.BytesIO(body), headers=headers
    ) as reply:
        assert reply.status == 200
        assert "too large to be checked" in await reply.text()
    check_memory(shared)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "field",
    ['"object":{"deleteOptions":{"dryRun":[%b]}}', '"userInfo":{"groups":[%b]}'],
    ids=["options", "groups"],
)
async def test_the_values_of_a_deletion_of_very_many_are_not_decoded(
    shared: RunningWebhooks, field: str
) -> None:
    """A deletion is read without its pod, and all else of it has a bound."""
    head = (
        '{"apiVersion":"admission.k8s.io/v1","request":{"uid":"u","operation":"DELETE",'
        '"kind":{"kind":"Pod"},'
    )
    body = (head + field + "}}").encode() % b",".join([b'"ab"'] * 5_000_000)
    async with shared.session.post(
        f"{shared.url}/guard",
        data=io.BytesIO(body),
        headers={"Content-Type": "application/json"},
    ) as reply:
        assert reply.status == 400
        assert "too large" in await reply.text()
    check_memory(shared)
