"""Reports of agents to the real server, with an API server that the test plays."""

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from reprieve_policy import keys
from reprieve_policy.kube.values import timestamp
from reprieve_runtime.serving import token_reviews
from reprieve_testing.objects.builders import NOW
from reprieve_testing.servers.reviews import RunningServer, running_server, trusting
from reprieve_testing.servers.stub_api import TOKEN_REVIEWS, StubApi, StubToken, stub_api, until
from reprieve_webhooks.checkpoints import service
from reprieve_webhooks.checkpoints.metrics import ReportMetrics, ReportOutcome
from reprieve_webhooks.checkpoints.recorder import CheckpointRecorder
from reprieve_webhooks.checkpoints.route import MAX_BYTES, PATH, routes
from reprieve_webhooks.checkpoints.service import CheckpointReports
from reprieve_webhooks.http.request_body import RequestBodyReader

PODS = "/api/v1/namespaces/team-a/pods"
POD = f"{PODS}/train-0"
ACCOUNT = "system:serviceaccount:team-a:default"
POD_NAME = "authentication.kubernetes.io/pod-name"
POD_UID = "authentication.kubernetes.io/pod-uid"
GOOD = "good.token.signature"
SECRET = "token.that-no-log.shows"
OTHER = "token.of-another.pod"
HERE, ELSEWHERE = "127.0.0.1", "127.107.4.1"
"""Addresses of clients."""


def a_token(
    name: str = "train-0",
    uid: str = "uid-0",
    *,
    audience: str = "reprieve.dev",
    username: str = ACCOUNT,
) -> StubToken:
    return StubToken([audience], username, {POD_NAME: [name], POD_UID: [uid]})


def a_pod(uid: str = "uid-0", saved_at: str | None = None) -> Any:
    annotations = {} if saved_at is None else {keys.LAST_CHECKPOINT_AT: saved_at}
    return {
        "metadata": {
            "name": "train-0",
            "uid": uid,
            "resourceVersion": "7",
            "annotations": annotations,
        }
    }


def ago(seconds: int) -> str:
    return timestamp.render(NOW - timedelta(seconds=seconds))


@dataclass
class Clock:
    """A monotonic clock that the test moves."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Reporting:
    """A server that takes reports, the API server behind it, and what is counted."""

    server: RunningServer
    stub: StubApi
    clock: Clock
    registry: CollectorRegistry
    reports: CheckpointReports

    async def report(
        self,
        age_seconds: object = 12,
        *,
        token: str | None = GOOD,
        body: bytes | None = None,
        address: str = HERE,
    ) -> tuple[int, str, str | None]:
        """Return the status, the text and `Retry-After` of one report."""
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        data = json.dumps({"ageSeconds": age_seconds}).encode() if body is None else body
        connector = aiohttp.TCPConnector(ssl=trusting(self.server.ca), local_addr=(address, 0))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(self.server.url + PATH, data=data, headers=headers) as reply,
        ):
            return reply.status, await reply.text(), reply.headers.get("Retry-After")

    def counted(self, outcome: ReportOutcome) -> float:
        name = "reprieve_checkpoint_reports_total"
        return self.registry.get_sample_value(name, {"outcome": outcome}) or 0.0


@asynccontextmanager
async def reporting(
    directory: Path,
    *,
    pod: Any = None,
    tokens: dict[str, StubToken] | None = None,
    timeout_seconds: float = 5.0,
) -> AsyncIterator[Reporting]:
    collections = {PODS: {"train-0": pod or a_pod()}}
    known = {GOOD: a_token()} if tokens is None else tokens
    async with stub_api(directory, collections=collections, tokens=known) as (stub, api):
        clock, registry = Clock(), CollectorRegistry()
        api.server_time.now = lambda: NOW  # type: ignore[method-assign]
        reports = CheckpointReports(api, timeout_seconds=timeout_seconds, monotonic=clock)
        bodies = RequestBodyReader("report", max_bytes=MAX_BYTES, timeout_seconds=5.0)
        table = routes(reports, bodies, ReportMetrics(registry))
        async with running_server(further_routes=table) as server:
            yield Reporting(server, stub, clock, registry, reports)


def written(saved_at: str, uid: str = "uid-0") -> Any:
    annotations = {keys.LAST_CHECKPOINT_AT: saved_at}
    return {"metadata": {"uid": uid, "resourceVersion": "7", "annotations": annotations}}


async def test_a_report_is_written_to_the_pod_of_the_token(tmp_path: Path) -> None:
    async with reporting(tmp_path) as running:
        status, text, _ = await running.report(12)
        assert (status, json.loads(text)) == (200, {"lastCheckpointAt": ago(12)})
        assert running.stub.patches == [(POD, written(ago(12)))]
        assert running.counted(ReportOutcome.RECORDED) == 1


async def test_a_later_time_replaces_an_earlier_or_unreadable_one(tmp_path: Path) -> None:
    for known in (ago(13), "soon"):
        async with reporting(tmp_path, pod=a_pod(saved_at=known)) as running:
            assert (await running.report(12))[0] == 200
            assert running.stub.patches == [(POD, written(ago(12)))]


async def test_an_earlier_or_equal_time_changes_nothing(tmp_path: Path) -> None:
    for known in (ago(11), ago(12)):
        async with reporting(tmp_path, pod=a_pod(saved_at=known)) as running:
            status, text, _ = await running.report(12)
            assert (status, json.loads(text)) == (200, {"lastCheckpointAt": known})
            assert running.stub.patches == []
            assert running.counted(ReportOutcome.UNCHANGED) == 1


def with_many_annotations(count: int) -> Any:
    pod = a_pod(saved_at=ago(13))
    pod["metadata"]["annotations"] |= {f"a{number}": "" for number in range(count)}
    return pod


async def test_nothing_else_of_a_pod_is_decoded(tmp_path: Path) -> None:
    """Without this, twenty pods of many small annotations would have the webhooks killed."""
    many = with_many_annotations(30_000)
    async with stub_api(tmp_path, collections={PODS: {"train-0": many}}) as (_, api):
        recorder = CheckpointRecorder(api, timeout_seconds=5.0)
        await recorder._read(POD)
        before = sys.getallocatedblocks()
        kept = await recorder._read(POD)
        assert sys.getallocatedblocks() - before < 3000
    assert kept.annotations is not None
    assert kept.annotations.saved_at == ago(13)


async def test_a_pod_that_is_too_large_to_be_read_is_not_written_to(tmp_path: Path) -> None:
    async with reporting(tmp_path, pod=with_many_annotations(60_000)) as running:
        assert (await running.report(12))[0] == 503
        assert running.stub.patches == []
        assert running.counted(ReportOutcome.FAILED) == 1


NOT_OURS = "the token is not valid for the audience reprieve.dev\n"
NO_POD = "the token is not that of a pod\n"
REFUSED = {
    "no valid token": (None, 401, NOT_OURS),
    "a token for the API server": (
        a_token(audience="https://kubernetes.default.svc"),
        401,
        NOT_OURS,
    ),
    "a ServiceAccount's token without a pod": (
        StubToken(["reprieve.dev"], ACCOUNT, {}),
        403,
        NO_POD,
    ),
    "a user's token that names a pod": (a_token(username="alice"), 403, NO_POD),
    "two pods": (
        StubToken(["reprieve.dev"], ACCOUNT, {POD_NAME: ["a", "b"], POD_UID: ["uid-0"]}),
        403,
        NO_POD,
    ),
    "a name that leads elsewhere": (a_token(name="../secrets/x"), 403, NO_POD),
    "a pod of this name with another uid": (
        a_token(uid="uid-of-the-one-before"),
        403,
        "the pod of the token is gone\n",
    ),
    "a pod that does not exist": (a_token("train-1"), 403, "the pod of the token is gone\n"),
}


@pytest.mark.parametrize(("token", "status", "text"), REFUSED.values(), ids=REFUSED)
async def test_only_the_pod_of_a_token_is_written_to(
    tmp_path: Path, token: StubToken | None, status: int, text: str
) -> None:
    tokens = {} if token is None else {SECRET: token}
    async with reporting(tmp_path, tokens=tokens) as running:
        assert await running.report(token=SECRET) == (status, text, None)
        assert running.stub.patches == []


@pytest.mark.parametrize(
    "token", [None, "", "opaque", "two.parts", "a..c", "a.b.c.d", "a.b.c=", f"a.b.{'c' * 4096}"]
)
async def test_what_cannot_be_the_token_of_a_service_account_costs_no_review(
    tmp_path: Path, token: str | None
) -> None:
    async with reporting(tmp_path) as running:
        assert await running.report(token=token) == (
            401,
            "a ServiceAccount's token is required: Authorization: Bearer TOKEN\n",
            None,
        )
        assert not running.stub.calls
        assert running.counted(ReportOutcome.UNAUTHORIZED) == 1


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"ageSeconds":"1"}', b'{"ageSeconds":1.5}', b"\xff", b"[" * 900]
)
async def test_a_body_that_is_no_report_is_refused(tmp_path: Path, body: bytes) -> None:
    async with reporting(tmp_path) as running:
        expected = (400, 'must be JSON like {"ageSeconds":12}\n', None)
        assert await running.report(body=body) == expected
        assert not running.stub.calls
        assert running.counted(ReportOutcome.MALFORMED) == 1


@pytest.mark.parametrize("age", [-1, service.MAX_AGE_SECONDS + 1])
async def test_a_save_in_the_future_or_long_ago_is_refused(tmp_path: Path, age: int) -> None:
    async with reporting(tmp_path) as running:
        status, text, _ = await running.report(age)
        assert (status, text.startswith("ageSeconds must be between 0 and ")) == (400, True)


async def test_a_large_body_is_refused(tmp_path: Path) -> None:
    async with reporting(tmp_path) as running:
        status, text, _ = await running.report(body=b" " * (MAX_BYTES + 1))
        assert (status, text) == (413, f"a report must not be larger than {MAX_BYTES} bytes\n")
        assert not running.stub.calls


async def test_a_pod_that_reports_too_often_is_limited_and_no_other_pod_is(tmp_path: Path) -> None:
    tokens = {GOOD: a_token(), "a.new.one": a_token(), OTHER: a_token("train-1", "uid-1")}
    async with reporting(tmp_path, tokens=tokens) as running:
        running.stub.collections[PODS]["train-1"] = a_pod("uid-1")
        assert (await running.report(12))[0] == 200
        assert await running.report(0) == (429, "this pod has just reported\n", "8")
        assert (await running.report(0, token="a.new.one"))[0] == 429
        assert (await running.report(0, token=OTHER))[0] == 200
        running.clock.seconds += service.MIN_INTERVAL_SECONDS
        assert (await running.report(0))[0] == 200
        assert running.counted(ReportOutcome.LIMITED) == 2


async def test_the_review_of_a_token_is_cached_briefly(tmp_path: Path) -> None:
    async with reporting(tmp_path) as running:
        for seconds, reviews in ((0, 1), (30, 1), (31, 2)):
            running.clock.seconds += seconds
            await running.report()
            assert running.stub.calls[TOKEN_REVIEWS] == reviews, seconds
        # A token that is not valid yet may be soon.
        for seconds, reviews in ((0, 3), (4, 3), (2, 4)):
            running.clock.seconds += seconds
            await running.report(token="not.yet.valid")
            assert running.stub.calls[TOKEN_REVIEWS] == reviews, seconds


def new_token(number: int) -> str:
    return f"new.token.{number}"


async def test_a_flood_of_new_tokens_keeps_out_neither_a_known_agent_nor_one_at_another_address(
    tmp_path: Path,
) -> None:
    async with reporting(
        tmp_path, tokens={GOOD: a_token(), OTHER: a_token("train-1", "uid-1")}
    ) as (running):
        running.stub.collections[PODS]["train-1"] = a_pod("uid-1")
        assert (await running.report(12))[0] == 200
        running.clock.seconds += token_reviews.ACCEPTED_SECONDS
        before = running.stub.calls[TOKEN_REVIEWS]
        flood = [await running.report(token=new_token(number)) for number in range(110)]
        assert [status for status, *_ in flood] == [401] * 25 + [429] * 85
        assert flood[-1] == (429, "too many reports\n", "5")
        assert running.stub.calls[TOKEN_REVIEWS] - before == 25
        assert (await running.report(token=OTHER))[0] == 429
        assert (await running.report(token=OTHER, address=ELSEWHERE))[0] == 200
        assert (await running.report(11))[0] == 200


async def test_new_tokens_of_many_addresses_are_limited_and_keep_out_no_known_agent(
    tmp_path: Path,
) -> None:
    async with reporting(tmp_path) as running:
        assert (await running.report(12))[0] == 200
        running.clock.seconds += token_reviews.ACCEPTED_SECONDS
        statuses = [
            (await running.report(token=new_token(number), address=f"127.107.5.{number}"))[0]
            for number in range(1, 102)
        ]
        assert statuses == [401] * 100 + [429]
        assert (await running.report(11))[0] == 200


async def test_a_pod_that_changes_meanwhile_is_read_again(tmp_path: Path) -> None:
    async with reporting(tmp_path) as running:
        running.stub.refuses[POD] = 409
        status, text, _ = await running.report()
        assert (status, text) == (503, "the API server did not record the report\n")
        assert running.stub.calls[POD] == len(running.stub.patches) == 3


async def test_without_rights_the_agent_is_told_to_wait_for_long(tmp_path: Path) -> None:
    expected = (503, "the webhooks may not review tokens or patch pods\n", "3600")
    async with reporting(tmp_path) as running:
        running.stub.barred.add(TOKEN_REVIEWS)
        assert await running.report() == expected
    async with reporting(tmp_path) as running:
        running.stub.refuses[POD] = 403
        assert await running.report() == expected
        assert running.counted(ReportOutcome.FAILED) == 1


async def test_while_the_api_server_fails_or_is_away_the_agent_may_retry_and_no_token_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    expected = (503, "the API server did not record the report\n", None)
    async with reporting(tmp_path, tokens={SECRET: a_token()}) as running:
        running.stub.is_failing = True
        assert await running.report(token=SECRET) == expected
        running.stub.is_failing = False
        running.stub.refuses[POD] = 0
        assert await running.report(token=SECRET) == expected
        running.stub.refuses.clear()
        running.clock.seconds += service.MIN_INTERVAL_SECONDS
        assert (await running.report(token=SECRET))[0] == 200
    logged = [record for record in caplog.records if record.name == service.__name__]
    assert [vars(record)["error"] for record in logged] == ["500 InternalError"]
    assert SECRET not in "".join(str(vars(record)) for record in caplog.records)


async def test_a_token_review_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    async with reporting(tmp_path) as running:
        running.stub.tokens[GOOD] = StubToken(["reprieve.dev"], ACCOUNT, {POD_NAME: "no list"})  # type: ignore[dict-item]
        assert (await running.report())[0] == 503


async def test_while_reviews_take_long_new_tokens_leave_room_for_other_reports(
    tmp_path: Path,
) -> None:
    released = asyncio.Event()
    async with reporting(tmp_path) as running:
        assert (await running.report(12))[0] == 200
        running.clock.seconds += service.MIN_INTERVAL_SECONDS
        reviewed = running.stub._review_token

        async def held(request: Any) -> Any:
            await released.wait()
            return await reviewed(request)

        running.stub._review_token = held  # type: ignore[method-assign]
        busy, waiting = (429, "too many reports at once\n", "5"), []
        async with asyncio.TaskGroup() as tasks:
            for address in (HERE, ELSEWHERE):
                for number in range(service.MAX_CONCURRENT // 4):
                    token = f"{address}.{number}".replace(".", "-") + ".b.c"
                    waiting.append(tasks.create_task(running.report(token=token, address=address)))
                # The one of the known token was the first.
                await until(lambda: running.stub.calls[TOKEN_REVIEWS] == 1 + len(waiting))
                assert await running.report(token=SECRET, address=address) == busy
            assert await running.report(token=SECRET, address="127.107.4.2") == busy
            assert (await running.report(11))[0] == 200
            released.set()
        assert [task.result()[0] for task in waiting] == [401] * len(waiting)
        assert (await running.report(token=SECRET))[0] == 401
        assert not running.reports._active


async def test_a_get_is_not_allowed(tmp_path: Path) -> None:
    async with reporting(tmp_path) as running:
        assert (await running.server.get(PATH))[0] == 405
