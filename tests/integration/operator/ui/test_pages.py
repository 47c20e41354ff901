"""The page `/ui`: who may read its data, what its answers forbid a browser, and what they say."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from reprieve_operator import settings
from reprieve_operator.clock import Clock
from reprieve_operator.history import History
from reprieve_operator.ui import document, pages
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Phase
from reprieve_testing import manifests
from reprieve_testing.objects.builders import NOW
from reprieve_testing.servers.stub_api import StubApi
from reprieve_testing.servers.ui_page import GOOD, WITHOUT_RIGHT, UiPage, ui_page
from reprieve_testing.servers.webhook_program import any_certificate

FILES = ("", "/app.js", "/style.css")
STATIC = Path(pages.__file__).parent / "static"


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[UiPage]:
    async with ui_page(tmp_path, lambda: NOW) as found:
        yield found


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(ssl=any_certificate())
    ) as found:
        yield found


async def data(
    page: UiPage, session: aiohttp.ClientSession, token: str = GOOD
) -> tuple[int, str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with session.get(f"{page.url}/data", headers=headers) as reply:
        is_json = reply.content_type == "application/json"
        return reply.status, await reply.text(), await reply.json() if is_json else None


async def test_the_data_is_for_tokens_with_the_right_to_this_path(
    page: UiPage, session: aiohttp.ClientSession
) -> None:
    assert (await data(page, session, ""))[0] == 401
    assert (await data(page, session, "unknown"))[0] == 401
    status, text, _ = await data(page, session, WITHOUT_RIGHT)
    assert status == 403
    assert "non-resource URL /ui: bind the ClusterRole reprieve:ui-reader" in text
    assert (await data(page, session))[0] == 200
    assert [spec["nonResourceAttributes"]["path"] for spec in page.stub.asked] == ["/ui", "/ui"]


async def test_the_files_need_no_token_and_no_answer_allows_anything_from_elsewhere(
    page: UiPage, session: aiohttp.ClientSession
) -> None:
    for path in (*FILES, "/data"):
        async with session.get(page.url + path) as reply:
            assert reply.status == (401 if path == "/data" else 200)
            assert {name: reply.headers[name] for name in pages.HEADERS} == dict(pages.HEADERS)
    assert page.stub.asked == []
    for path in ("/other", "/../metrics", "/data/"):
        async with session.get(page.url + path) as reply:
            assert reply.status in (401, 404)
    async with session.post(f"{page.url}/data") as reply:
        assert reply.status == 404


def test_the_page_names_nothing_from_elsewhere_and_nothing_inline() -> None:
    page = (STATIC / "index.html").read_text()
    assert set(re.findall(r'(?:src|href)="([^"#]+)"', page)) == {"/ui/app.js", "/ui/style.css"}
    assert not re.search(r"<style|style=|<script>|\son[a-z]+=", page)
    assert not re.search(r"https?://|url\(|@import", "".join(map(Path.read_text, STATIC.iterdir())))
    assert not re.search(
        r"innerHTML|insertAdjacent|document\.write|eval\(", (STATIC / "app.js").read_text()
    )


async def test_the_document_has_victims_by_their_deadlines_and_pods_that_ended(
    page: UiPage, session: aiohttp.ClientSession
) -> None:
    page.add_victim("team-b", "first")
    page.add_victim("team-a", "saving", Phase.TERMINATING)
    page.end("team-a", "over", CheckpointOutcome.SAVED, "SoftEvictionCompleted")
    page.end("team-b", "lost", CheckpointOutcome.UNRESPONSIVE, "CheckpointUnanswered")
    _, _, shown = await data(page, session)
    assert [victim["name"] for victim in shown["victims"]] == ["first", "saving"]
    first, terminating = shown["victims"]
    assert (first["phase"], first["begun_at"] < first["deadline"]) == ("hinted", True)
    assert terminating["deadline"] is None
    assert [step["reason"] for step in first["steps"]] == ["CheckpointRequested"]
    assert [(victim["name"], victim["outcome"]) for victim in shown["ended"]] == [
        ("lost", "CheckpointUnanswered"),
        ("over", "SoftEvictionCompleted"),
    ]
    hours = [
        (each["namespace"], each["kept_hours"], each["lost_hours"]) for each in shown["namespaces"]
    ]
    assert hours == [("team-a", 2.0, 0.0), ("team-b", 0.0, 2.0)]
    assert (shown["victim_count"], shown["gated_pods"]) == (2, 3)


async def test_the_document_has_gangs_the_queue_and_since_when_it_knows_steps(
    page: UiPage, session: aiohttp.ClientSession
) -> None:
    page.add_gang("team-a", "first", turn=1)
    page.add_victim("team-a", "trains")
    page.add_preemptor("team-b", "urgent", "node-1", "trains")
    _, _, shown = await data(page, session)
    assert [(row["name"], row["phase"]) for row in shown["gangs"]] == [
        ("first", "waiting for room")
    ]
    assert [(row["kind"], row["name"]) for row in shown["queue"]] == [
        ("preemptor", "urgent"),
        ("gang", "first"),
    ]
    assert (shown["gang_count"], shown["queue_count"]) == (1, 2)
    assert (shown["past_steps"], shown["steps_since"]) == ("not-yet", shown["since"])


async def test_a_replica_that_does_not_lead_names_the_leader_and_no_victim(
    page: UiPage, session: aiohttp.ClientSession
) -> None:
    page.add_victim("team", "one")
    page.is_leading = False
    _, _, shown = await data(page, session)
    assert (shown["is_leading"], shown["leader"], shown["victims"]) == (False, "operator-b", [])


def test_a_document_has_at_most_a_thousand_victims() -> None:
    page = UiPage(History(Clock(now=lambda: NOW)), lambda: NOW, StubApi())
    for number in range(document.MAX_VICTIMS + 1):
        page.add_victim("team", f"p-{number}")
    shown = page.document()
    assert (len(shown.victims), shown.victim_count) == (document.MAX_VICTIMS, 1001)


def test_the_page_is_off_by_default_and_needs_the_check_of_tokens(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert not settings.OperatorSettings().ui
    assert settings.read(["--ui=true"]).ui
    with pytest.raises(SystemExit):
        settings.read(["--ui=true", "--metrics-authentication=none"])
    assert "--ui needs --metrics-authentication=token" in capsys.readouterr().err


def test_the_component_turns_it_on_and_the_role_grants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    (component,) = manifests.read(manifests.MANIFESTS / "components/ui/kustomization.yaml")
    patch = yaml.safe_load(component["patches"][0]["patch"])
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert container == {"name": "operator", "env": [{"name": "REPRIEVE_UI", "value": "true"}]}
    deployed = manifests.named("Deployment", "reprieve-operator")["spec"]["template"]["spec"]
    assert [each["name"] for each in deployed["containers"]] == [container["name"]]
    monkeypatch.setenv("REPRIEVE_UI", "true")
    assert settings.read([]).ui
    assert component["resources"] == ["rbac.yaml"]
    rights, binding = manifests.read(manifests.MANIFESTS / "components/ui/rbac.yaml")
    reads = {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["list"]}
    assert rights["rules"] == [reads]
    assert binding["roleRef"]["name"] == rights["metadata"]["name"]
    assert binding["subjects"] == [
        {
            "kind": "ServiceAccount",
            "name": settings.OperatorSettings().deployment_name,
            "namespace": "reprieve-system",
        }
    ]
    role = manifests.named("ClusterRole", pages.ROLE)
    assert role["rules"] == [{"nonResourceURLs": [pages.PATH], "verbs": ["get"]}]
