"""Each alert and each Event has its heading in the runbook, and each link to it leads there."""

import re

import pytest

from reprieve_operator.cluster import event_recorder
from reprieve_testing import manifests, monitoring

SITE = "https://reprieve.dev/docs/"
"""Where the pages of `docs` are published: `docs/runbook/alerts.md` is `SITE/runbook/alerts/`."""
DOCS = manifests.ROOT / "docs"
ALERTS = {rule["alert"]: rule for rule in monitoring.alerts()}


def headings(page: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^## (.*)$", text, re.MULTILINE)


def sections(page: str) -> dict[str, str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    _, *rest = re.split(r"^## ", text, flags=re.MULTILINE)
    return {title: body for title, _, body in (part.partition("\n") for part in rest)}


def resolves(url: str) -> bool:
    """Return whether a published address is that of a page here, and of a heading on it."""
    path, _, anchor = url.removeprefix(SITE).partition("#")
    name = path.strip("/")
    pages = [page for page in (DOCS / f"{name}.md", DOCS / name / "README.md") if page.exists()]
    if not url.startswith(SITE) or not pages:
        return False
    named = str(pages[0].relative_to(DOCS))
    return not anchor or anchor in [heading.lower() for heading in headings(named)]


def test_every_alert_has_its_heading_in_the_order_of_the_rules() -> None:
    assert headings("runbook/alerts.md") == list(ALERTS)


def test_every_event_has_its_heading() -> None:
    assert sorted(headings("runbook/events.md")) == sorted(event_recorder.REASONS)


@pytest.mark.parametrize("name", ALERTS)
def test_every_alert_is_complete_and_its_runbook_url_leads_to_its_heading(name: str) -> None:
    annotations, labels = ALERTS[name]["annotations"], ALERTS[name]["labels"]
    assert set(annotations) == {"summary", "description", "runbook_url"}
    assert annotations["runbook_url"].endswith(f"#{name.lower()}")
    assert resolves(annotations["runbook_url"])
    assert annotations["summary"].endswith(".")
    assert len(annotations["summary"]) < 100
    section = sections("runbook/alerts.md")[name]
    assert f"**Means** ({labels['severity']})" in section
    assert all(part in section for part in ("**Look at**", "**Do**"))


@pytest.mark.parametrize("reason", event_recorder.REASONS)
def test_every_event_says_what_it_means_and_what_to_do(reason: str) -> None:
    section = sections("runbook/events.md")[reason]
    assert section.startswith("**Means**")
    assert "**Do**" in section


def test_what_the_runbook_looks_for_in_logs_is_what_the_programs_write() -> None:
    page = (DOCS / "runbook/alerts.md").read_text(encoding="utf-8")
    found = re.findall(r"\| grep (?:-i )?(.+)$", page, re.MULTILINE)
    sought = {words.strip("'\"") for words in found}
    assert sought == {"error", "uid", "certificate", "unreadable object"}
    sources = "".join(
        path.read_text(encoding="utf-8")
        for package in ("certs", "operator", "runtime", "webhooks")
        for path in (manifests.ROOT / package).rglob("*.py")
    )
    written = " ".join(re.findall(r"_log\.\w+\(.*?\)\n", sources, re.IGNORECASE | re.DOTALL))
    assert {words for words in sought if words not in written} == set()


def test_logs_by_a_selector_are_read_whole() -> None:
    """With a selector and without `--tail`, kubectl shows ten lines of each pod."""
    pages = [page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md")]
    commands = re.findall(r"^ *(kubectl logs .* -l .*)$", "\n".join(pages), re.MULTILINE)
    assert commands
    assert [command for command in commands if " --tail=-1 " not in f"{command} "] == []


def test_the_dashboards_link_leads_to_the_runbook() -> None:
    assert [link["url"] for link in monitoring.dashboard()["links"]] == [f"{SITE}runbook/"]
    assert all(resolves(link["url"]) for link in monitoring.dashboard()["links"])


def test_an_address_without_a_page_or_heading_does_not_resolve() -> None:
    assert not resolves(f"{SITE}runbook/alarms/")
    assert not resolves(f"{SITE}runbook/alerts/#reprieveunheardof")
    assert not resolves("https://example.com/runbook/alerts/")
