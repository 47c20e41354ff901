"""The page `/ui` in a real browser: by keyboard, filtered, for a screen reader, in the dark.

Slow, because a browser takes seconds; it is skipped where there is no Chromium, which no package
index of Python has (Debian: `apt install chromium`).
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Phase
from reprieve_testing.servers.browser import CHROMIUM, Browser, browser
from reprieve_testing.servers.ui_page import GOOD, HOSTILE, WITHOUT_RIGHT, UiPage, ui_page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="this machine has no Chromium"),
]

NAMES = "[...document.querySelectorAll('#victims th button')].map(each => each.textContent)"
STATUS = "document.querySelector('#status').textContent"
FOCUSED = "document.activeElement.id || document.activeElement.textContent"


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[UiPage]:
    async with ui_page(tmp_path, lambda: datetime.now(UTC)) as found:
        found.add_victim("team-a", "trains")
        found.add_victim("team-b", "sweeps", Phase.CHECKPOINTING)
        found.end("team-a", "over", CheckpointOutcome.SAVED, "SoftEvictionCompleted")
        found.end("team-b", "lost", CheckpointOutcome.UNRESPONSIVE, "CheckpointUnanswered")
        yield found


@pytest.fixture
async def tab(page: UiPage, tmp_path: Path) -> AsyncIterator[Browser]:
    async with browser(tmp_path / "profile", page.url) as found:
        yield found
        refused = [each for each in found.complaints if "status of 403" in each]
        assert [each for each in found.complaints if each not in refused] == []


async def enter(tab: Browser, token: str = GOOD) -> None:
    """Enter the token by keyboard: the field has the focus."""
    await tab.see("document.activeElement.id === 'token'")
    await tab.type(token)
    await tab.press("Enter")


async def test_a_token_without_the_right_sees_why_and_nothing_else(tab: Browser) -> None:
    await enter(tab, WITHOUT_RIGHT)
    await tab.see(
        "document.querySelector('#login-error').textContent.includes('reprieve:ui-reader')"
    )
    assert await tab.evaluate("document.querySelector('#content').hidden")
    assert await tab.evaluate(NAMES) == []


async def test_the_whole_page_works_by_keyboard_and_texts_stay_texts(
    tab: Browser, page: UiPage
) -> None:
    await enter(tab)
    await tab.see(f"{NAMES}.length === 2")
    assert await tab.evaluate(STATUS) == "2 victims, as operator-a sees them"
    assert await tab.evaluate("document.querySelector('#token').value") == ""

    # The first victim's steps, by keyboard from the heading on.
    assert await tab.evaluate(FOCUSED) == "now"
    await tab.press("Tab")
    name = await tab.evaluate(FOCUSED)
    await tab.press("Enter")
    await tab.see("document.querySelectorAll('#victims .steps li').length === 2")
    assert await tab.evaluate(FOCUSED) == name
    assert await tab.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    steps = await tab.evaluate("document.querySelector('#victims .steps').textContent")
    assert "CheckpointRequested" in steps
    assert HOSTILE in steps
    assert await tab.evaluate("document.querySelectorAll('img').length") == 0

    # "/" leads to the filter.
    await tab.press("/")
    assert await tab.evaluate(FOCUSED) == "text"
    await tab.type("swe")
    await tab.see(f"{NAMES}.join() === 'sweeps'")
    assert await tab.evaluate("document.querySelector('#ended').children.length") == 0

    # A new victim comes by itself, and the filter stays.
    page.add_victim("team-a", "sweeps-too")
    await tab.see(f"{NAMES}.sort().join() === 'sweeps,sweeps-too'")
    assert await tab.evaluate(STATUS) == "3 victims, as operator-a sees them"


async def test_filters_and_the_last_day(tab: Browser) -> None:
    await enter(tab)
    await tab.see(f"{NAMES}.length === 2")
    rows = "[...document.querySelectorAll('#namespaces tr')].map(each => each.innerText)"
    shown = [row.split("\t") for row in await tab.evaluate(rows)]
    assert [row[:6] for row in shown] == [
        ["team-a", "1", "1", "0", "2.00", "0.00"],
        ["team-b", "1", "0", "1", "0.00", "2.00"],
    ]
    choose = (
        "(() => {{ const each = document.querySelector('#{id}'); each.{field} = {value};"
        " each.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"
    )
    await tab.evaluate(choose.format(id="namespace", field="value", value="'team-b'"))
    assert await tab.evaluate(NAMES) == ["sweeps"]
    await tab.evaluate(choose.format(id="phase", field="value", value="'hinted'"))
    assert await tab.evaluate(NAMES) == []
    await tab.evaluate(choose.format(id="phase", field="value", value="''"))
    await tab.evaluate(choose.format(id="problems", field="checked", value="true"))
    assert await tab.evaluate(NAMES) == []
    ended = "[...document.querySelectorAll('#ended th button')].map(each => each.textContent)"
    assert await tab.evaluate(ended) == ["lost"]


async def test_a_screen_reader_finds_a_name_for_each_control_table_and_bar(tab: Browser) -> None:
    await enter(tab)
    await tab.see(f"{NAMES}.length === 2")
    tree = (await tab.call("Accessibility.getFullAXTree"))["nodes"]
    named: dict[str, list[str]] = {}
    for node in tree:
        if not node.get("ignored"):
            role = node.get("role", {}).get("value", "")
            named.setdefault(role, []).append(node.get("name", {}).get("value", ""))
    for role in ("searchbox", "combobox", "checkbox", "button", "table", "progressbar"):
        assert named[role], role
        assert all(named[role]), f"a {role} has no name"
    assert named["heading"] == ["Reprieve", "Now", "The last 24 hours", "Lately"]
    assert len(named["main"]) == len(named["search"]) == len(named["status"]) == 1


async def test_another_replica_says_who_leads(tab: Browser, page: UiPage) -> None:
    page.is_leading = False
    await enter(tab)
    await tab.see(f"{STATUS}.includes('The leader is operator-b')")


async def test_the_page_is_dark_where_the_user_prefers_that(page: UiPage, tmp_path: Path) -> None:
    colours = {}
    for is_dark in (False, True):
        folder = tmp_path / f"profile-{is_dark}"
        async with browser(folder, page.url, is_dark=is_dark) as tab:
            await enter(tab)
            await tab.see(f"{NAMES}.length === 2")
            colours[is_dark] = await tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colours == {False: "rgb(255, 255, 255)", True: "rgb(20, 23, 28)"}
