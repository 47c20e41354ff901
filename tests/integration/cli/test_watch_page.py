"""`reprieve watch --ui` shows what the operator's page shows, read from the page's own server."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from reprieve_cli.cluster import operator_page
from reprieve_cli.commands import watch
from reprieve_policy.lifecycle.eviction import CheckpointOutcome
from reprieve_testing.objects.builders import NOW
from reprieve_testing.servers.ui_page import GOOD, HOSTILE, WITHOUT_RIGHT, UiPage, ui_page

CLOCK = f"{NOW.astimezone(UTC):%H:%M:%S}"


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[UiPage]:
    async with ui_page(tmp_path, lambda: NOW) as found:
        yield found


async def shown(page: UiPage, *words: str, token: str = GOOD) -> Result:
    """Run the command once, in a thread: the page's server is in this one."""
    arguments = ["--once", "--ui", page.url, *words]
    environment = {"REPRIEVE_UI_TOKEN": token}
    return await asyncio.to_thread(
        CliRunner().invoke, watch.command, arguments, env=environment, catch_exceptions=False
    )


async def test_victims_gangs_the_queue_and_the_totals_are_shown(page: UiPage) -> None:
    page.add_gang("team-a", "first", turn=1)
    page.add_victim("team-a", "trains")
    page.add_preemptor("team-b", "urgent", "node-1", "trains")
    page.end("team-a", "over", CheckpointOutcome.SAVED, "SoftEvictionCompleted")
    done = await shown(page, "-A")
    assert done.exit_code == 0
    awaited = "waits for 1 of 1 victim to be ready: team-a/trains"
    saved = "1 saved (2.00 pod-hours kept)"
    assert done.output.splitlines() == [
        "1 victim, as operator-a sees them:",
        f"  team-a/trains  hinted  4m00s left  by {HOSTILE}",
        "gangs:",
        "  team-a/first  waiting for room  waits for room for 4 pods; turn 1 of 1",
        "queue:",
        f"  preemptor team-b/urgent  for room on node-1  {awaited}  4m00s left",
        "  gang team-a/first  waits for room for 4 pods; turn 1 of 1",
        f"since {CLOCK}, at most 24 hours:",
        f"  team-a  1 victim, {saved}, 0 unsaved (0.00 lost), cost 0.00 device-hours",
        "no longer victims:",
        f"  {CLOCK}  team-a/over  SoftEvictionCompleted",
    ]


async def test_one_namespace_and_the_steps_of_its_victims(page: UiPage) -> None:
    page.add_victim("team-a", "trains")
    page.add_victim("team-b", "other")
    done = await shown(page, "-n", "team-b", "--steps")
    assert done.output.splitlines()[1:4] == [
        f"  team-b/other  hinted  4m00s left  by {HOSTILE}",
        f"    {CLOCK}  CheckpointRequested: asked to save {HOSTILE}",
        "gangs: none shown",
    ]


async def test_json_is_the_whole_document(page: UiPage) -> None:
    page.add_victim("team-a", "trains")
    done = await shown(page, "-A", "-o", "json")
    assert [victim["name"] for victim in json.loads(done.output)["victims"]] == ["trains"]


async def test_a_text_of_a_user_cannot_move_the_cursor(page: UiPage) -> None:
    page.add_victim("team-a", "trains", gang="\x1b[2J\nfake")
    done = await shown(page, "-A")
    assert "\x1b" not in done.output
    assert "gang \\x1b[2J\\nfake" in done.output


async def test_what_cannot_be_read_is_said_in_one_line(page: UiPage) -> None:
    refused = await shown(page, "-A", token=WITHOUT_RIGHT)
    assert refused.exit_code == 2
    assert "403" in refused.output
    assert "bind the ClusterRole reprieve:ui-reader" in refused.output
    page.is_leading = False
    elsewhere = await shown(page, "-A")
    assert elsewhere.output == "reprieve: operator-a does not lead: forward a port of operator-b\n"
    page.url = "https://127.0.0.1:1"
    closed = await shown(page, "-A")
    assert closed.exit_code == 2
    assert "does `kubectl port-forward` run" in closed.output


@pytest.mark.parametrize("document", [{"now": "2026-11-27T04:00:00Z"}, []])
def test_a_page_of_another_version_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, document: Any
) -> None:
    monkeypatch.setattr(operator_page, "read", lambda *_: document)
    words = ["-A", "--once", "--ui", "https://localhost:8081", "--ui-token", GOOD]
    done = CliRunner().invoke(watch.command, words)
    assert done.exit_code == 2
    assert "is the operator of another version?" in done.output


@pytest.mark.parametrize(
    "url", ["https://localhost:8081", "https://127.0.0.1:8081/ui", "https://[::1]:8081"]
)
def test_a_forwarded_port_is_an_https_address_of_this_machine(url: str) -> None:
    assert operator_page.is_forwarded(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:8081",
        "https://reprieve.example.com",
        "https://localhost.example.com:8081",
        "localhost:8081",
        "https://localhost",
        "https://localhost:99999",
        "https://[::1",
    ],
)
def test_a_token_is_sent_to_no_other_address(url: str) -> None:
    assert not operator_page.is_forwarded(url)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--ui", "https://example.com"), "forward the leader's port"),
        (("--ui", "https://localhost:8081"), "--ui needs a token"),
        (("--ui", "https://localhost:8081", "--ui-token", "two\nlines"), "--ui needs a token"),
    ],
)
def test_a_wrong_call_is_a_usage_error(words: tuple[str, ...], message: str) -> None:
    done = CliRunner().invoke(watch.command, ["-A", *words])
    assert done.exit_code == 2
    assert message in done.output
