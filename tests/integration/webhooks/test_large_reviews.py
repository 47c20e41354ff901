"""Whatever the texts and lists of an object are, its review is answered, up to what etcd stores."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.facts import Facts
from reprieve_testing.guard.fixture import a_victim
from reprieve_testing.servers import deep_json
from reprieve_testing.servers.reviews import RunningServer, a_pod, a_review, running_server
from reprieve_webhooks.admission import handlers, review
from reprieve_webhooks.admission.large_review import MAX_VALUES, has_too_many_values
from reprieve_webhooks.guard import review as guard_review
from reprieve_webhooks.settings import Settings

STORED = 1_500_000
"""etcd stores 1.5 MiB of an object by default."""
TEXTS = (",", "{", "]", "[{,", '"', "\\", '\\",', "<", "&,", "\x01", "\u2028", "ä", "😀", "y")
DEPLOYMENT = {"group": "apps", "version": "v1", "kind": "Deployment"}
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
    return encoded(a_review(new, kind=DEPLOYMENT, operation="UPDATE", oldObject=old))


def filled(text: str) -> str:
    return text * (STORED // len(text.encode()))


async def answer(server: RunningServer, body: bytes, path: str = "/validate") -> dict[str, Any]:
    status, text = await server.send(path, body)
    assert status == 200, text
    response: dict[str, Any] = json.loads(text)["response"]
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
    "ports": {"ports": [{"containerPort": 1}] * 100_000},
    "deep values beside a text": {"args": ["<" * 800_000], "x": deep_json.deepened({})},
}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("container", LISTS.values(), ids=LISTS)
@pytest.mark.parametrize("is_new", [True, False])
async def test_what_cannot_be_checked_is_refused(
    server: RunningServer, container: dict[str, Any], is_new: bool
) -> None:
    new = a_deployment(**container)
    sent = a_review(new, kind=DEPLOYMENT)
    if not is_new:
        sent = a_review(new, kind=DEPLOYMENT, operation="UPDATE", oldObject=a_deployment())
    response = await answer(server, deep_json.dumps(sent).replace("<", "\\u003c").encode())
    assert response["allowed"] is False
    assert "too large to be checked" in response["status"]["message"]


LARGE = a_deployment(args=[""] * 200_000)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_large_object_stays_free_to_be_deleted_and_to_change_where_no_rule_reads(
    server: RunningServer,
) -> None:
    freed = {**LARGE, "metadata": {"name": "d", "finalizers": [], "deletionTimestamp": "x"}}
    assert (await answer(server, an_update(LARGE, freed)))["allowed"] is True
    labelled = {**LARGE, "metadata": {"name": "d", "labels": BAD}}
    assert (await answer(server, an_update(LARGE, labelled)))["allowed"] is False


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("enforcement", "warned"), [("warn", True), ("off", False)])
async def test_where_rules_do_not_refuse_a_large_object_is_not_refused(
    server: RunningServer, enforcement: str, warned: bool
) -> None:
    server.source.facts = Facts(namespace=NamespacePolicy(enforcement=enforcement))
    response = await answer(server, encoded(a_review(LARGE, kind=DEPLOYMENT)))
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
    kind = {"group": "", "version": "v1", "kind": "Secret"}
    sent = {"kind": "Secret", "metadata": {"name": "s"}, "data": {str(n): "" for n in range(90_000)}}
    assert (await answer(server, encoded(a_review(sent, kind=kind))))["allowed"] is True


async def test_a_template_outside_of_the_spec_counts_as_changed() -> None:
    kind = {"group": "example.com", "version": "v1", "kind": "Sweep"}
    listed = review.TemplateKinds.parse("example.com/Sweep: trial") if False else None
    assert listed is None and kind


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
    texts = json.dumps([r'a\",' + "," * MAX_VALUES, "\\", ","]).encode()
    assert not has_too_many_values(texts)
    most = b"[" + b'"a,b",' * MAX_VALUES + b"0]"
    assert not has_too_many_values(most)
    assert has_too_many_values(b"[0," + most[1:])
    assert has_too_many_values(most, objects=1)


def test_the_guard_reads_a_pod_with_any_text_and_skips_one_with_very_many_values() -> None:
    def parsed(**spec: Any) -> guard_review.GuardRequest:
        victim = a_victim()
        victim["spec"] |= spec
        sent = a_review(None, operation="DELETE", oldObject=victim)
        found = guard_review.parse(encoded(sent))
        assert not isinstance(found, review.Malformed)
        assert (found.is_deletion, found.namespace) == (True, "team-a")
        return found

    texts = parsed(containers=[{"name": "main", "args": [filled(",<")]}])
    assert texts.old_object is not None
    assert parsed(containers=[{"name": "main", "args": [""] * 200_000}]).old_object is None


def test_no_answer_of_another_pod_is_given_to_a_large_one() -> None:
    pod = a_pod()
    pod["spec"]["containers"] = [{"name": "main", "args": [""] * 200_000}]
    request = review.parse(encoded(a_review(pod)))
    assert isinstance(request, review.UncheckedRequest)
    remembered: Any = None
    assert handlers.validate_now(request, remembered) is None
    assert handlers.mutate_now(request, remembered) is None
