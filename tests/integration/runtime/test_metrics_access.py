"""Who may read `/metrics`, and how many calls to the API server that may cost."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Gauge

from reprieve_certs import issue
from reprieve_certs.serving import ServingContext, load_self_signed
from reprieve_runtime.client.api import Api
from reprieve_runtime.serving import metrics_access, token_reviews
from reprieve_runtime.serving.metrics_access import (
    NO_RIGHT,
    NO_TOKEN,
    NOT_KNOWN,
    NOT_VALID,
    TOO_MANY,
    MetricsAccess,
)
from reprieve_runtime.serving.metrics_port import MetricsProtection, serve_metrics
from reprieve_testing.objects.builders import NOW
from reprieve_testing.servers.stub_api import (
    ACCESS_REVIEWS,
    API_SERVER,
    TOKEN_REVIEWS,
    StubApi,
    StubToken,
    stub_api,
)
from reprieve_testing.servers.webhook_program import any_certificate

SCRAPER = "system:serviceaccount:monitoring:prometheus"
PEER = "10.0.0.1"
GOOD = "Bearer good"
TOO_LONG = "Bearer " + "a" * 4097


class Checked(NamedTuple):
    """The check in front of a stub, and the time that it has."""

    access: MetricsAccess
    stub: StubApi
    api: Api
    clock: list[float]

    @property
    def calls(self) -> int:
        return self.stub.calls[TOKEN_REVIEWS] + self.stub.calls[ACCESS_REVIEWS]

    def pass_time(self, seconds: float) -> None:
        self.clock[0] += seconds


@pytest.fixture
async def checked(tmp_path: Path) -> AsyncIterator[Checked]:
    async with stub_api(tmp_path, granted={SCRAPER}) as (stub, api):
        stub.tokens = {
            "good": StubToken([API_SERVER], SCRAPER),
            "no-right": StubToken([API_SERVER], "system:serviceaccount:team:other"),
            "of-an-agent": StubToken(["reprieve.dev/checkpoints"], SCRAPER),
        }
        clock = [1000.0]
        yield Checked(MetricsAccess(api, monotonic=lambda: clock[0]), stub, api, clock)


async def test_a_token_with_the_right_is_accepted_and_both_reviews_name_what_they_are_about(
    checked: Checked,
) -> None:
    assert await checked.access.refusal(GOOD, PEER) is None
    (spec,) = checked.stub.asked
    assert (spec["user"], spec["uid"]) == (SCRAPER, "u")
    assert spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}


@pytest.mark.parametrize(
    ("header", "refusal"),
    [
        ("Bearer unknown", NOT_VALID),
        ("Bearer of-an-agent", NOT_VALID),
        ("Bearer no-right", NO_RIGHT),
    ],
)
async def test_a_token_that_is_not_valid_gets_401_and_one_without_the_right_403(
    checked: Checked, header: str, refusal: metrics_access.AccessRefusal
) -> None:
    assert await checked.access.refusal(header, PEER) == refusal
    assert refusal.status == (403 if refusal is NO_RIGHT else 401)


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic Z29vZA==", "good", "Bearer a b", "Bearer é", TOO_LONG],
)
async def test_what_cannot_be_a_token_is_refused_without_a_call(
    checked: Checked, header: str
) -> None:
    assert await checked.access.refusal(header, PEER) == NO_TOKEN
    assert checked.calls == 0


async def test_answers_are_kept_a_minute_if_good_and_some_seconds_if_not(checked: Checked) -> None:
    for _ in range(5):
        assert await checked.access.refusal(GOOD, PEER) is None
        assert await checked.access.refusal("Bearer no-right", PEER) == NO_RIGHT
    assert checked.calls == 4

    checked.pass_time(token_reviews.REFUSED_SECONDS)
    checked.stub.granted.add("system:serviceaccount:team:other")
    assert await checked.access.refusal("Bearer no-right", PEER) is None

    checked.pass_time(token_reviews.ACCEPTED_SECONDS)
    checked.stub.granted.clear()
    assert await checked.access.refusal(GOOD, PEER) == NO_RIGHT


async def test_a_flood_of_tokens_costs_few_calls_and_stops_no_known_scraper(
    checked: Checked,
) -> None:
    assert await checked.access.refusal(GOOD, PEER) is None
    checked.pass_time(token_reviews.ACCEPTED_SECONDS)
    before = checked.calls
    flood = [await checked.access.refusal(f"Bearer bad{n}", "10.0.0.2") for n in range(1000)]
    assert flood.count(NOT_VALID) == checked.calls - before == 5
    assert flood.count(TOO_MANY) == 995
    # A new scraper at another address is reviewed all the same, and so is the known one.
    assert await checked.access.refusal("Bearer no-right", "10.0.0.3") == NO_RIGHT
    for address in range(100):
        await checked.access.refusal(f"Bearer worse{address}", f"10.0.1.{address}")
    assert checked.calls - before <= 5 + 2 + 20
    assert await checked.access.refusal("Bearer new", "10.0.0.4") == TOO_MANY
    checked.stub.granted.clear()
    assert await checked.access.refusal(GOOD, PEER) == NO_RIGHT


async def test_in_an_outage_a_token_that_was_good_within_the_hour_still_is_and_no_other(
    checked: Checked,
) -> None:
    assert await checked.access.refusal(GOOD, PEER) is None
    checked.stub.is_failing = True
    assert await checked.access.refusal("Bearer no-right", PEER) == NOT_KNOWN
    checked.pass_time(token_reviews.ACCEPTED_SECONDS)
    assert await checked.access.refusal(GOOD, PEER) is None
    checked.pass_time(token_reviews.KNOWN_SECONDS)
    assert await checked.access.refusal(GOOD, PEER) == NOT_KNOWN


async def test_the_port_speaks_https_and_answers_each_refusal_with_its_status(
    checked: Checked, caplog: pytest.LogCaptureFixture
) -> None:
    serving, registry = ServingContext(), CollectorRegistry()
    load_self_signed(serving, issue.ServingNames(("localhost",)), NOW)
    Gauge("shown", "A value", registry=registry).set(7)
    protection = MetricsProtection(serving.listener, checked.access)
    port = await serve_metrics(registry, address="127.0.0.1", port=0, protection=protection)
    connector = aiohttp.TCPConnector(ssl=any_certificate())
    url = f"https://127.0.0.1:{port.port}"
    try:
        async with aiohttp.ClientSession(connector=connector) as session:

            async def get(path: str, token: str = "") -> tuple[int, str, str]:
                headers = {"Authorization": f"Bearer {token}"} if token else {}
                async with session.get(url + path, headers=headers) as reply:
                    challenge = reply.headers.get("WWW-Authenticate", "")
                    return reply.status, challenge, await reply.text()

            assert (await get("/metrics"))[:2] == (401, "Bearer")
            assert (await get("/metrics", "unknown"))[:2] == (401, "Bearer")
            assert (await get("/metrics", "no-right"))[:2] == (403, "")
            assert (await get("/other", "good"))[0] == 404
            status, _, text = await get("/metrics", "good")
            assert (status, "\nshown 7.0\n" in text) == (200, True)
            checked.stub.is_failing = True
            assert (await get("/metrics", "another"))[0] == 503
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(f"http://127.0.0.1:{port.port}/metrics")
    finally:
        await port.close()
    assert "another" not in caplog.text
    assert "could not check who reads the metrics" in caplog.text
