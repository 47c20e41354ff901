"""The page `/ui` in a real browser: by keyboard, filtered, for a screen reader, in the dark.

Slow, because a browser takes seconds; it is skipped where there is no Chromium, which no package
index of Python has (Debian: `apt install chromium`).
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reprieve_operator.gangs.divergence import DivergingGang
from reprieve_operator.history import PastStep, PastSteps, Step
from reprieve_operator.replacements.bare_pods import PendingReplacement
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Phase
from reprieve_testing.servers.browser import CHROMIUM, Browser, browser
from reprieve_testing.servers.ui_page import GOOD, HOSTILE, WITHOUT_RIGHT, UiPage, ui_page

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="this machine has no Chromium"),
]

NAMES = "[...document.querySelectorAll('#victims th button')].map(each => each.textContent)"
STATUS = "document.querySelector('#status').textContent"
SET = (
    "(() => {{ const each = document.querySelector('#{id}'); each.{field} = {value};"
    " each.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"
)
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
    await tab.evaluate(SET.format(id="namespace", field="value", value="'team-b'"))
    assert await tab.evaluate(NAMES) == ["sweeps"]
    await tab.evaluate(SET.format(id="phase", field="value", value="'hinted'"))
    assert await tab.evaluate(NAMES) == []
    await tab.evaluate(SET.format(id="phase", field="value", value="''"))
    await tab.evaluate(SET.format(id="problems", field="checked", value="true"))
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
    views = ["Now", "Gangs", "Queue", "The last 24 hours", "Lately"]
    assert named["heading"] == ["Reprieve", *views]
    assert [name for name in named["region"] if name in views] == views
    assert named["navigation"] == ["Views"]
    assert len(named["main"]) == len(named["search"]) == len(named["status"]) == 1


def rows_of(table: str) -> str:
    """Return an expression for the rows of a table, each as its cells."""
    cells = "[...row.children].map(cell => cell.textContent)"
    return f"[...document.querySelectorAll('#{table} tr')].map(row => {cells})"


async def test_gangs_and_the_queue_say_who_waits_for_whom(tab: Browser, page: UiPage) -> None:
    page.add_gang("team-a", "first", turn=1)
    page.add_gang("team-b", "second", turn=2)
    page.add_victim("team-a", "member-0", Phase.SAVED, gang="leaving")
    page.add_victim("team-a", "member-1", gang="leaving")
    page.diverging.append(DivergingGang("team-b", "mixed", f"differs in {HOSTILE}"))
    page.add_preemptor("team-b", "urgent", "node-1", "trains", "sweeps")
    page.replacements.append(PendingReplacement("gone", "team-a", "bare", page.now()))
    await enter(tab)
    await tab.see(f"{NAMES}.length === 4")
    gangs = await tab.evaluate(rows_of("gangs"))
    assert [row[:4] for row in gangs] == [
        ["first", "team-a", "waiting for room", "room for 4 pods; turn 1 of 2"],
        [
            *("second", "team-b", "waiting for room"),
            "room for 4 pods; turn 2 of 2, after team-a/first",
        ],
        ["leaving", "team-a", "leaving", "member-1 to be ready"],
        ["mixed", "team-b", "pods differ", f"nothing: a pod differs in {HOSTILE}"],
    ]
    assert [row[5:] for row in gangs][1:3] == [["4", "4", "4", "0"], ["2", "", "", ""]]
    queue = await tab.evaluate(rows_of("queue"))
    assert [[*row[:4], row[5]] for row in queue] == [
        [
            *("urgent", "team-b", "preemptor"),
            "2 of 2 victims to be ready: team-a/trains, team-b/sweeps",
            "node-1",
        ],
        ["first", "team-a", "gang", "room for 4 pods; turn 1 of 2", ""],
        ["second", "team-b", "gang", "room for 4 pods; turn 2 of 2, after team-a/first", ""],
        ["bare", "team-a", "pod", "its next try: the API server refused it", ""],
    ]
    assert await tab.evaluate("document.querySelectorAll('img').length") == 0

    # The text finds what waits for a pod, and the box what needs a look.
    await tab.press("/")
    await tab.type("sweeps")
    await tab.see(f"{rows_of('queue')}.map(row => row[0]).join() === 'urgent'")
    assert await tab.evaluate(rows_of("gangs")) == []
    await tab.evaluate(SET.format(id="text", field="value", value="''"))
    await tab.evaluate(SET.format(id="problems", field="checked", value="true"))
    assert [row[0] for row in await tab.evaluate(rows_of("gangs"))] == ["mixed"]
    assert [row[0] for row in await tab.evaluate(rows_of("queue"))] == ["bare"]


async def test_a_view_is_reached_by_its_link(tab: Browser) -> None:
    await enter(tab)
    await tab.see(f"{NAMES}.length === 2")
    await tab.evaluate("document.querySelector('#views a').focus()")
    await tab.press("Tab")
    await tab.press("Tab")
    assert await tab.evaluate(FOCUSED) == "Queue"
    await tab.press("Enter")
    await tab.see(f"({FOCUSED}) === 'queue-view'")


async def test_steps_of_an_earlier_leader_are_shown_as_such(tab: Browser, page: UiPage) -> None:
    at = page.history.since - timedelta(minutes=5)
    step = Step(at, "CheckpointRequested", "asked by another leader", is_from_event=True)
    page.history.add_past([PastStep("team-a", "trains", "uid-trains", step)], PastSteps.READ)
    await enter(tab)
    await tab.see("document.querySelector('#past-note').textContent.includes('from Events')")
    await tab.evaluate("document.querySelector('[data-uid=uid-trains]').click()")
    text = "document.querySelector('#victims .steps').textContent"
    assert "asked by another leader (from an Event)" in await tab.evaluate(text)


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
