"""A review whose answer is remembered is answered at once: with the same answer, and counted."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from reprieve_policy import keys
from reprieve_testing.servers.reviews import RunningServer, a_pod, a_review, running_server
from reprieve_webhooks.admission import review

of_both = pytest.mark.parametrize("path", ["/mutate", "/validate"])


class Server:
    """A running server that notes which reviews are not answered at once."""

    def __init__(self, running: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running, self.awaited = running, 0
        answer = running.webhooks._answer

        async def count(*arguments: Any) -> Any:
            self.awaited += 1
            return await answer(*arguments)

        monkeypatch.setattr(running.webhooks, "_answer", count)

    async def ask(self, path: str, preemption_class: str = "4", **changes: Any) -> Any:
        pod = a_pod(labels={keys.PREEMPTION_CLASS: preemption_class})
        return await self.running.ask(path, a_review(pod, **changes))


@pytest_asyncio.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Server]:
    async with running_server() as running:
        yield Server(running, monkeypatch)


@of_both
@pytest.mark.parametrize("preemption_class", ["4", "11"])
async def test_the_third_pod_of_a_template_is_answered_at_once(
    server: Server, path: str, preemption_class: str
) -> None:
    answers = [await server.ask(path, preemption_class) for _ in range(3)]
    assert server.awaited == 2
    assert answers[2] == answers[1] == answers[0]
    name = path.removeprefix("/")
    count = f'reprieve_admission_duration_seconds_count{{webhook="{name}"}} 3.0'
    assert count in server.running.shown_metrics()


@of_both
async def test_a_review_that_no_rule_concerns_is_answered_at_once(
    server: Server, path: str
) -> None:
    thing = {"kind": "Thing", "apiVersion": "example.com/v1", "metadata": {"name": "a"}}
    assert (await server.running.ask(path, a_review(thing)))["allowed"]
    assert server.awaited == 0


async def test_while_draining_the_connection_of_a_remembered_answer_is_closed(
    server: Server,
) -> None:
    before = [await server.ask("/validate") for _ in range(2)]
    server.running.webhooks.is_draining = True
    assert await server.ask("/validate") == before[0]
    assert server.awaited == 3


async def test_another_content_type_is_looked_at_in_the_usual_way(server: Server) -> None:
    for _ in range(3):
        status, _ = await server.running.send(
            "/validate",
            b"{}",
            headers={"Content-Type": "application/json; charset=utf-8"},
        )
        assert status == 400
    assert server.awaited == 3


async def test_a_failure_is_reported_in_the_usual_way_and_logged_once(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(review, "parse", fail)
    status, _ = await server.running.send("/validate", b"{}")
    assert (status, len(caplog.records)) == (500, 1)
