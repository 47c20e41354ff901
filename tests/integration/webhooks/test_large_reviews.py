"""Whatever the texts and lists of an object are, its review is answered, up to what etcd stores."""

import io
import json
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import Mock

import pytest
import pytest_asyncio

from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.facts import Facts
from reprieve_policy.kube import template_kinds
from reprieve_testing.guard.fixture import a_victim
from reprieve_testing.servers.reviews import RunningServer, a_pod, a_review, running_server
from reprieve_webhooks.admission import handlers, review
from reprieve_webhooks.admission.large_review import MAX_VALUES, count_values
from reprieve_webhooks.admission.remembered_pods import RememberedPods
from reprieve_webhooks.guard import review as guard_review
from reprieve_webhooks.settings import Settings

STORED = 1_500_000
"""etcd stores 1.5 MiB of an object by default."""
TEXTS = (",", "{", "]", "[{,", '"', "\\", '\\",', "<", "&,", "\x01", "\u2028", "ä", "😀", "y")
BAD = {keys.PREEMPTION_CLASS: "11"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[RunningServer]:
    async with running_server(max_review_bytes=Settings().max_review_bytes) as running:
        yield running


def encoded(sent: dict[str, Any]) -> bytes:
    """Return JSON as Go writes it: some characters in six bytes, others as they are."""
    text = json.dumps(sent, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode()


def a_deployment(labels: dict[str, str] | None = None, **container: Any) -> dict[str, Any]:
    pod = a_pod(labels=labels)
    pod["spec"]["containers"] = [{"name": "main", "image": "i", **container}]
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    return {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": template}}


def an_update(old: dict[str, Any], new: dict[str, Any]) -> bytes:
    return encoded(a_review(new, old=old))


def filled(text: str) -> str:
    return text * (STORED // len(text.encode()))


async def answer(server: RunningServer, body: bytes, path: str = "/validate") -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    url = server.url + path
    async with server.session.post(url, data=io.BytesIO(body), headers=headers) as reply:
        assert reply.status == 200, await reply.text()
        response: dict[str, Any] = (await reply.json())["response"]
        return response


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("text", TEXTS)
async def test_no_text_has_a_change_admitted_unchecked(server: RunningServer, text: str) -> None:
    """Commas in a text are no values, and what takes six bytes for each byte is still answered."""
    pad = [{"name": "PAD", "value": filled(text)}]
    body = an_update(a_deployment(env=pad), a_deployment(BAD, env=pad))
    assert (await answer(server, body))["allowed"] is False
    assert (await answer(server, body, "/mutate"))["allowed"] is True


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("text", [",", "{[", "\\", "y"])
async def test_an_object_with_a_long_text_of_usual_size_is_checked(
    server: RunningServer, text: str
) -> None:
    pad = [{"name": "PAD", "value": filled(text)}]
    body = an_update(a_deployment(env=pad), a_deployment({"a": "b"}, env=pad))
    assert (await answer(server, body))["allowed"] is True


LISTS: dict[str, dict[str, Any]] = {
    "empty arguments": {"args": [""] * (STORED // 2)},
    "ports": {"ports": [{"containerPort": 1}] * 160_000},
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("container", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("is_new", [True, False])
async def test_what_cannot_be_checked_is_refused(
    server: RunningServer, container: dict[str, Any], *, is_new: bool
) -> None:
    sent = a_review(a_deployment(**container), old=None if is_new else a_deployment())
    response = await answer(server, encoded(sent))
    assert response["allowed"] is False
    assert "too large to be checked" in response["status"]["message"]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_new_object_whose_status_is_too_large_is_refused_before_its_status_is_dropped(
    server: RunningServer,
) -> None:
    sent = a_pod() | {"status": {"conditions": [{}] * 200_000}}
    assert (await answer(server, encoded(a_review(sent)), "/mutate"))["allowed"] is False


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("metadata", "is_allowed"),
    [
        ({"labels": {keys.SOFT_EVICTION: "requested"}}, True),
        ({"annotations": {keys.KOORDINATOR_SOFT_EVICTION: "{}", keys.PREEMPTOR: "u"}}, True),
        ({"annotations": {keys.REFUSED_SINCE: "2026-11-28T12:00:00Z"}}, True),
        ({"annotations": {keys.EVICTION: "{}", keys.CHECKPOINT_REQUEST: "{}"}}, True),
        ({"labels": {keys.GANG_GATE_LABEL: "waiting"}}, True),
        ({"labels": {keys.SOFT_EVICTION: "requested", "a": "b"}}, False),
        ({"annotations": {keys.EVICTION_COST: "9"}}, False),
        ({"labels": {"a": 1}}, False),
        ({"labels": []}, False),
    ],
)
async def test_a_large_pod_can_be_marked(
    server: RunningServer, metadata: dict[str, Any], *, is_allowed: bool
) -> None:
    """The policies in the API server check who may: without this, its owner would keep its node."""
    pod = a_pod()
    pod["spec"]["containers"] = [{"name": "main", "args": [""] * 200_000}]
    pod["metadata"]["annotations"] = {keys.CHECKPOINT_ANSWER: "{}"}
    marked = {**pod, "metadata": {**pod["metadata"], **metadata}}
    for path in ("/mutate", "/validate"):
        response = await answer(server, an_update(pod, marked), path)
        assert response["allowed"] is (is_allowed or path == "/mutate")


@pytest.mark.asyncio(loop_scope="module")
async def test_annotations_beyond_what_an_api_server_stores_are_compared_as_a_whole(
    server: RunningServer,
) -> None:
    pod = a_pod()
    pod["spec"]["containers"] = [{"name": "main", "args": [""] * 200_000}]
    pod["metadata"]["annotations"] = {"a": "<" * 400_000}
    marked = {**pod, "metadata": {**pod["metadata"], "labels": {keys.SOFT_EVICTION: "requested"}}}
    assert (await answer(server, an_update(pod, marked)))["allowed"] is True
    annotations = {**pod["metadata"]["annotations"], keys.EVICTION: "{}"}
    marked = {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}
    assert (await answer(server, an_update(pod, marked)))["allowed"] is False


LARGE = a_deployment(args=[""] * 200_000)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_large_object_stays_free_to_be_deleted_and_to_change_where_no_rule_reads(
    server: RunningServer,
) -> None:
    freed = {**LARGE, "metadata": {"name": "d", "finalizers": [], "deletionTimestamp": "x"}}
    assert (await answer(server, an_update(LARGE, freed)))["allowed"] is True
    noted = {**freed, "metadata": {**freed["metadata"], "annotations": {"cleaned": "yes"}}}
    assert (await answer(server, an_update(LARGE, noted)))["allowed"] is True
    changed = {**freed, "spec": {**freed["spec"], "replicas": 3}}
    assert (await answer(server, an_update(LARGE, changed)))["allowed"] is False
    labelled = {**LARGE, "metadata": {"name": "d", "labels": BAD}}
    assert (await answer(server, an_update(LARGE, labelled)))["allowed"] is False


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("enforcement", "warned"), [("warn", True), ("off", False)])
async def test_where_rules_do_not_refuse_a_large_object_is_not_refused(
    server: RunningServer, enforcement: str, *, warned: bool
) -> None:
    server.source.facts = Facts(namespace=NamespacePolicy(enforcement=enforcement))
    response = await answer(server, encoded(a_review(LARGE)))
    server.source.facts = Facts()
    assert response["allowed"] is True
    assert bool(response.get("warnings")) is warned


@pytest.mark.asyncio(loop_scope="module")
async def test_a_large_pod_that_a_controller_makes_is_not_refused(server: RunningServer) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u"}
    pod = a_pod()
    pod["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    pod["spec"]["containers"] = [{"name": "main", "args": [""] * 200_000}]
    user = {"username": "system:serviceaccount:kube-system:replicaset-controller"}
    assert (await answer(server, encoded(a_review(pod, userInfo=user))))["allowed"] is True
    assert (await answer(server, encoded(a_review(pod))))["allowed"] is False


@pytest.mark.asyncio(loop_scope="module")
async def test_a_large_object_without_rules_passes(server: RunningServer) -> None:
    sent = {"kind": "Sweep", "metadata": {"name": "s"}, "data": [0] * 90_000}
    assert (await answer(server, encoded(a_review(sent))))["allowed"] is True


@pytest.mark.parametrize(("path", "is_changed"), [("trial", True), ("spec.trial", False)])
def test_a_template_outside_of_the_spec_counts_as_changed(path: str, *, is_changed: bool) -> None:
    listed = template_kinds.parse(f"example.com/Sweep: {path}", "templateKinds")
    assert isinstance(listed, template_kinds.TemplateKinds)
    sent = {"kind": "Sweep", "metadata": {"name": "s"}, "spec": {"x": [0] * 90_000}}
    found = review.parse(encoded(a_review(sent, old=sent)), listed)
    assert isinstance(found, review.UncheckedRequest)
    assert found.is_changed is is_changed


@pytest.mark.parametrize(
    "sent",
    [
        b'{"apiVersion":"admission.k8s.io/v1","request":null,"x":[' + b"0," * MAX_VALUES + b"0,0]}",
        b"[" + b"0," * MAX_VALUES + b"0,0]",
        b"0," * MAX_VALUES + b"0,0",
        encoded(a_review(a_pod(), uid=["u"] * MAX_VALUES * 3)),
        encoded(a_review(a_pod(), uid=["u"] * MAX_VALUES)),
    ],
)
def test_what_is_large_and_no_review_is_malformed(sent: bytes) -> None:
    assert isinstance(review.parse(sent), review.Malformed)
    assert isinstance(guard_review.parse(sent), review.Malformed)


def test_commas_in_texts_are_no_values() -> None:
    texts = json.dumps([r"a\"," + "," * MAX_VALUES, "\\", ","]).encode()
    assert count_values(texts) == 2
    most = b"[" + b'"a,b",' * MAX_VALUES + b"0]"
    assert count_values(most) == MAX_VALUES
    assert count_values(b"[0," + most[1:]) == MAX_VALUES + 1
    assert count_values(b"[0,0,0," + most[1:]) == MAX_VALUES + 1


def test_the_guard_reads_a_pod_with_any_text_and_skips_one_with_very_many_values() -> None:
    def parsed(**spec: Any) -> guard_review.GuardRequest:
        victim = a_victim()
        victim["spec"] |= spec
        sent = a_review(None, old=victim, operation="DELETE")
        found = guard_review.parse(encoded(sent))
        assert not isinstance(found, review.Malformed)
        assert (found.is_deletion, found.namespace) == (True, "team-a")
        return found

    texts = parsed(containers=[{"name": "main", "args": [filled(",<")]}])
    assert texts.old_object is not None
    assert parsed(containers=[{"name": "main", "args": [""] * 200_000}]).old_object is None


@pytest.mark.parametrize(
    "annotations",
    [{f"a{number}": "" for number in range(MAX_VALUES + 1)}, {"a": "<" * 2_500_000}],
    ids=["many", "long"],
)
def test_the_guard_reads_an_eviction_with_any_metadata(annotations: dict[str, str]) -> None:
    eviction = {
        "kind": "Eviction",
        "metadata": {"name": "p", "annotations": annotations},
        "deleteOptions": {"preconditions": {"uid": "u"}},
    }
    found = guard_review.parse(encoded(a_review(eviction)))
    assert isinstance(found, guard_review.GuardRequest)
    assert found.is_eviction
    assert found.object is not None
    assert found.object.delete_options is not None
    assert found.object.delete_options.preconditions is not None
    assert found.object.delete_options.preconditions.uid == "u"


def test_no_answer_of_another_pod_is_given_to_a_large_one() -> None:
    pod = a_pod()
    pod["spec"]["containers"] = [{"name": "main", "args": [""] * 200_000}]
    request = review.parse(encoded(a_review(pod)))
    assert isinstance(request, review.UncheckedRequest)
    remembered: Any = Mock(spec=RememberedPods)
    assert handlers.validate_now(request, remembered) is None
    assert handlers.mutate_now(request, remembered) is None
    assert remembered.mock_calls == []
