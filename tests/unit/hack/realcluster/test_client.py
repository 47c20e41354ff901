"""Which `kubectl get` is a plain read, and where the API server answers it."""

from pathlib import Path
from typing import Any

import pytest

from realcluster.client import objects
from realcluster.client.objects import Client, Resource, Wanted

PLAIN = {
    "pods -n team": Wanted("pods", namespace="team"),
    "pod a -n team": Wanted("pod", "a", "team"),
    "nodes": Wanted("nodes"),
    "pods -A -l a=b,c=d": Wanted("pods", namespace="", selector="a=b,c=d"),
    "pods --all-namespaces --field-selector=spec.nodeName=": Wanted(
        "pods", namespace="", field_selector="spec.nodeName="
    ),
    "pods --namespace=team": Wanted("pods", namespace="team"),
}


@pytest.mark.parametrize(("words", "wanted"), PLAIN.items(), ids=PLAIN)
def test_a_plain_read_is_understood(words: str, wanted: Wanted) -> None:
    assert objects.parse(words.split()) == wanted


@pytest.mark.parametrize("words", ["pods --watch", "pods,jobs", "pod/a", "pod a b", "", "-n team"])
def test_all_else_is_left_to_kubectl(words: str) -> None:
    assert objects.parse(words.split()) is None


POD = Resource("/api/v1", "pods", "Pod", "v1", namespaced=True)
NODE = Resource("/api/v1", "nodes", "Node", "v1", namespaced=False)
URLS = {
    "a single pod": (POD.url("team", "a"), "/api/v1/namespaces/team/pods/a"),
    "the pods of a namespace": (POD.url("team"), "/api/v1/namespaces/team/pods"),
    "all pods with a label": (
        POD.url("", labelSelector="a=b", fieldSelector=""),
        "/api/v1/pods?labelSelector=a%3Db",
    ),
    "a node has no namespace": (NODE.url("default", "n", "status"), "/api/v1/nodes/n/status"),
}


@pytest.mark.parametrize(("url", "wanted"), URLS.values(), ids=URLS)
def test_the_url_is_the_api_servers(url: str, wanted: str) -> None:
    assert url == wanted


def test_kubectls_names_of_a_resource_are_those_of_discovery() -> None:
    entry = {
        "resource": "events",
        "responseKind": {"kind": "Event"},
        "scope": "Namespaced",
        "singularResource": "event",
        "shortNames": ["ev"],
    }
    group = {
        "metadata": {"name": "events.k8s.io"},
        "versions": [{"version": "v1", "resources": [entry]}],
    }
    ((resource, names),) = objects.discovered({"items": [group]}, "/apis")
    assert resource == Resource(
        "/apis/events.k8s.io/v1", "events", "Event", "events.k8s.io/v1", namespaced=True
    )
    assert {"events", "event", "ev", "events.events.k8s.io", "events.v1.events.k8s.io"} <= set(
        names
    )


def test_items_of_a_list_say_what_they_are_and_managed_fields_are_left_out() -> None:
    item = {"metadata": {"name": "a", "managedFields": [{}]}}
    listed = objects.listed({"items": [item]}, POD)
    assert listed == {
        "apiVersion": "v1",
        "kind": "List",
        "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}],
    }


def test_a_token_outlasts_a_chaos_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def answer(_: Client, __: str, url: str, body: Any) -> Any:
        asked.append((url, body["spec"]["expirationSeconds"]))
        return {"status": {"token": "abc"}}

    account = Resource("/api/v1", "serviceaccounts", "ServiceAccount", "v1", namespaced=True)
    monkeypatch.setattr(Client, "has_token", lambda _: True)
    monkeypatch.setattr(Client, "_resource", lambda *_: account)
    monkeypatch.setattr(Client, "_call", answer)
    assert Client(Path("kubeconfig")).create_token("operator", "home") == "abc"
    assert asked == [("/api/v1/namespaces/home/serviceaccounts/operator/token", 24 * 60 * 60)]
