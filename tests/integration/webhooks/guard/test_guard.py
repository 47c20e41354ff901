"""The guard's route: its responses, its writes and its reads."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.facts import Facts
from reprieve_testing.guard.fixture import (
    HINT,
    HINTED,
    OPERATOR,
    SCHEDULER,
    TEAM,
    GuardFixture,
    a_victim,
    another_victim,
    code_of,
    guard_fixture,
)
from reprieve_testing.servers.reviews import a_review
from reprieve_webhooks.lookups.limits import BURST_CALLS


@pytest_asyncio.fixture
async def here(tmp_path: Path) -> AsyncIterator[GuardFixture]:
    async with guard_fixture(tmp_path, a_victim()) as found:
        yield found


async def test_a_scheduler_is_postponed_and_the_pod_is_marked_at_the_reviewed_version(
    here: GuardFixture,
) -> None:
    response = await here.delete_and_nominate(a_victim())
    assert (code_of(response), response["status"]["reason"]) == (404, "NotFound")
    ((path, patch),) = here.stub.patches
    assert path == f"{TEAM}/train"
    metadata = patch["metadata"]
    assert (metadata["uid"], metadata["resourceVersion"]) == ("uid-of-train", "7")
    assert metadata["labels"] == {keys.SOFT_EVICTION: "marked"}
    said = json.loads(metadata["annotations"][keys.KOORDINATOR_SOFT_EVICTION])
    assert said["reason"] == "preempted by pod uid-of-high"
    assert metadata["annotations"][keys.PREEMPTOR] == "uid-of-high"


async def test_reviews_of_ever_new_kinds_make_no_new_metrics(here: GuardFixture) -> None:
    for number in range(3):
        kind = {"group": "", "version": "v1", "kind": f"Kind{number}"}
        review = a_review(None, old=a_victim(), operation="DELETE", kind=kind)
        assert (await here.server.ask("/guard", review))["allowed"] is True
    await here.delete(a_victim(), userInfo={"username": OPERATOR})
    lines = [
        line
        for line in here.server.shown_metrics().splitlines()
        if line.startswith("reprieve_admission_reviews_total")
    ]
    assert lines == [
        'reprieve_admission_reviews_total{kind="other",outcome="skipped",webhook="guard"} 3.0',
        'reprieve_admission_reviews_total{kind="Pod",outcome="skipped",webhook="guard"} 1.0',
    ]


@pytest.mark.parametrize("status", [403, 500])
async def test_if_the_mark_cannot_be_written_the_deletion_is_allowed(
    here: GuardFixture, status: int
) -> None:
    here.stub.refuses = {f"{TEAM}/train": status}
    review = a_review(None, old=a_victim(), operation="DELETE", userInfo=SCHEDULER)
    answered, _ = await here.server.send("/guard", json.dumps(review).encode())
    assert answered == 503


async def test_a_pod_without_room_for_the_mark_goes_without_notice(here: GuardFixture) -> None:
    here.stub.collections[TEAM] = {"train": a_victim()}
    here.stub.refuses = {f"{TEAM}/train": 422}
    here.stub.refusal = "metadata.annotations: Too long: may not be more than 262144 bytes"
    for response in (await here.delete(a_victim()), await here.evict()):
        # Also with `failurePolicy: Fail`: the pod's owner can fill the annotations.
        assert response["allowed"] is True
        assert response["warnings"] == ["no notice: the pod has no room for its mark"]


async def test_a_dry_run_writes_nothing(here: GuardFixture) -> None:
    assert (await here.delete(a_victim(), dryRun=True))["allowed"] is False
    tried = await here.evict(body={"deleteOptions": {"dryRun": ["All"]}})
    assert tried["allowed"] is True
    assert "asked to save a checkpoint first" in tried["warnings"][0]
    assert here.stub.patches == []


async def test_an_eviction_is_postponed_without_a_time_and_marked_as_an_eviction(
    here: GuardFixture,
) -> None:
    response = await here.evict()
    assert response["status"]["code"] == 429
    assert "retryAfterSeconds" not in response["status"]["details"]
    assert here.stub.patches[0][1]["metadata"]["labels"] == {keys.SOFT_EVICTION: "evict"}


@pytest.mark.parametrize(
    ("preconditions", "is_about"),
    [
        ({"uid": "uid-of-train"}, True),
        ({"uid": "uid-of-train", "resourceVersion": "7"}, True),
        ({"uid": None}, True),
        ({}, True),
        (None, True),
        ({"uid": "uid-of-one-before"}, False),
        ({"uid": ""}, False),
        ({"resourceVersion": "6"}, False),
    ],
)
async def test_an_eviction_of_another_pod_of_that_name_marks_no_pod(
    here: GuardFixture, preconditions: Any, *, is_about: bool
) -> None:
    response = await here.evict(body={"deleteOptions": {"preconditions": preconditions}})
    # The API server refuses it then, by itself.
    assert response["allowed"] is not is_about
    assert bool(here.stub.patches) is is_about


async def test_a_pod_that_is_larger_than_any_usual_one_is_evicted_without_notice(
    tmp_path: Path,
) -> None:
    """Without this, many evictions of such pods at once would take all memory of the webhooks."""
    usual, large = ("x" * (256 * 1024 - 1000), "x" * 1024 * 1024)
    for text, is_allowed in ((usual, False), (large, True)):
        pod = a_victim(annotations=HINT | {"example.com/note": text})
        async with guard_fixture(tmp_path, pod) as here:
            assert (await here.evict())["allowed"] is is_allowed
            assert bool(here.stub.patches) is not is_allowed


def have_no_time_pass(here: GuardFixture) -> None:
    """Stop the clock of the rate limits: tokens do not refill."""
    asked: list[Any] = [
        *here.guard._reader._pod_getters.values(),
        here.guard._reader._pod_group_getter,
        here.guard._reader._job_getter,
    ]
    for lookups in asked:
        now = lookups._single_flight._monotonic()
        lookups._single_flight._monotonic = lambda now=now: now


async def test_of_many_evictions_at_once_none_succeeds_without_notice_for_lack_of_reads(
    here: GuardFixture,
) -> None:
    have_no_time_pass(here)
    answers = await asyncio.gather(
        *(here.evict(f"pod-{number}") for number in range(BURST_CALLS + 20))
    )
    assert {answered["status"]["code"] for answered in answers if not answered["allowed"]} == {429}
    assert any("too many evictions" in json.dumps(answered) for answered in answers)


async def test_many_evictions_in_one_namespace_do_not_affect_another(here: GuardFixture) -> None:
    have_no_time_pass(here)
    answers = await asyncio.gather(
        *(here.evict(f"pod-{number}") for number in range(BURST_CALLS + 20))
    )
    assert not all(answered["allowed"] for answered in answers)
    assert (await here.evict(namespace="team-b"))["allowed"]


async def test_many_evictions_do_not_leave_preempted_pods_without_notice(tmp_path: Path) -> None:
    pods = [another_victim(f"pod-{number}") for number in range(BURST_CALLS + 20)]
    for number, pod in enumerate(pods):
        pod["spec"]["schedulingGroup"] = {"podGroupName": f"group-{number}"}
    async with guard_fixture(tmp_path, *pods) as here:
        have_no_time_pass(here)
        answers = await asyncio.gather(*(here.evict(pod["metadata"]["name"]) for pod in pods))
        assert any("too many evictions" in json.dumps(answered) for answered in answers)
        response = await here.delete_and_nominate(pods[-1])
        assert "asked to save a checkpoint first" in response["status"]["message"]
        assert here.marked()[-1] == pods[-1]["metadata"]["name"]


async def test_of_many_preemptions_at_once_no_pod_is_deleted_without_notice_for_lack_of_reads(
    here: GuardFixture,
) -> None:
    """Each pod has a Job and a native group of its own; the operator reads both once more."""
    have_no_time_pass(here)
    pods = [another_victim(f"pod-{number}") for number in range(BURST_CALLS + 20)]
    for number, pod in enumerate(pods):
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"job-{number}", "uid": "u"}
        pod["metadata"] |= {"ownerReferences": [owner | {"controller": True}]}
        pod["spec"]["schedulingGroup"] = {"podGroupName": f"group-{number}"}
    answers = await asyncio.gather(*(here.delete(pod) for pod in pods))
    assert not any(answer["allowed"] for answer in answers)
    assert len(set(here.marked())) == len(pods)


OF_A_JOB = {
    "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u", "controller": True}
    ]
}
UNREAD = (
    "/apis/batch/v1/namespaces/team-a/jobs/job",
    "/apis/scheduling.k8s.io/v1beta1/namespaces/team-a/podgroups/group",
)


@pytest.mark.parametrize("is_saving", [True, False], ids=["saving", "not yet asked"])
async def test_a_job_or_group_that_cannot_be_read_ends_no_notice(
    here: GuardFixture, *, is_saving: bool
) -> None:
    """The operator reads them again; a failed review would have the pod deleted at once."""
    here.stub.barred = set(UNREAD)
    annotations = HINT | ({keys.EVICTION: HINTED} if is_saving else {})
    pod = a_victim(annotations=annotations, **OF_A_JOB)
    pod["spec"]["schedulingGroup"] = {"podGroupName": "group"}
    response = await here.delete(pod)
    assert "asked to save a checkpoint" in response["status"]["message"]
    assert all(here.stub.calls[path] for path in UNREAD)
    here.stub.collections[TEAM] = {"train": pod}
    assert "asked to save a checkpoint" in (await here.evict())["status"]["message"]


async def test_the_guard_does_not_apply_to(here: GuardFixture) -> None:
    by_a_person = {"userInfo": {"username": "jane"}}
    by_the_operator = {"userInfo": {"username": OPERATOR}}
    assert (await here.delete(a_victim(), **by_a_person))["allowed"]
    assert (await here.delete(a_victim(), **by_the_operator))["allowed"]
    assert (await here.evict(**by_the_operator))["allowed"]
    assert (await here.evict("gone"))["allowed"]
    assert (await here.evict("../../secrets"))["allowed"]
    assert (await here.delete(a_victim(deletionTimestamp="2026-11-21T12:00:00Z")))["allowed"]
    assert (await here.server.ask("/guard", a_review(a_victim())))["allowed"]
    here.facts.facts = Facts(operator_is_live=False)
    assert (await here.delete(a_victim()))["allowed"]
    assert here.stub.patches == []


async def test_with_enforcement_warn_the_deletion_is_allowed(here: GuardFixture) -> None:
    here.facts.facts = Facts(operator_is_live=True, namespace=NamespacePolicy(enforcement="warn"))
    response = await here.evict()
    assert response["allowed"] is True
    assert "asked to save a checkpoint first" in response["warnings"][0]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"apiVersion":"v1"}',
        b'{"apiVersion":"admission.k8s.io/v1"}',
        b'\xff"',
        b"[" * 100_000,
    ],
    ids=["nothing", "half", "a list", "null", "another kind", "no request", "not UTF-8", "deep"],
)
async def test_a_body_that_is_not_a_review_is_refused(here: GuardFixture, body: bytes) -> None:
    assert (await here.server.send("/guard", body))[0] == 400


async def test_a_pod_of_any_form_causes_no_error(here: GuardFixture) -> None:
    for broken in (
        {"spec": None},
        {"metadata": {"labels": 5}},
        {"spec": {"priority": "high"}},
        {"status": []},
    ):
        review = a_review(None, old=a_victim() | broken, operation="DELETE", userInfo=SCHEDULER)
        assert (await here.server.send("/guard", json.dumps(review).encode()))[0] == 400
    odd = a_victim(annotations=HINT | {keys.EVICTION: "[" * 5000})
    assert (await here.delete(odd))["allowed"] is False
