"""Well-formed reviews over TLS: what is refused, filled in, warned of and left alone."""

import asyncio
import copy
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import jsonpatch
import pytest
import pytest_asyncio

from reprieve_policy import keys
from reprieve_policy.checkpointing.agent import CheckpointService
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.template_kinds import TemplateKinds
from reprieve_policy.lifecycle.eviction import Checkpoint
from reprieve_policy.lifecycle.ledger import LedgerEntry
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import class_priorities
from reprieve_testing.servers.reviews import (
    Document,
    FixedFacts,
    RunningServer,
    a_pod,
    a_review,
    patch_of,
    running_server,
)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[RunningServer]:
    async with running_server() as running:
        yield running


async def test_a_class_above_10_is_refused_with_400_and_its_cause(server: RunningServer):
    response = await server.ask("/validate", a_review(a_pod(labels={keys.PREEMPTION_CLASS: "11"})))

    path, message = (
        "metadata.labels[reprieve.dev/preemption-class]",
        'Invalid value: "11": must be between 0 and 10, in plain digits',
    )
    assert response["allowed"] is False
    assert response["status"] == {
        "status": "Failure",
        "code": 400,
        "reason": "BadRequest",
        "message": f"{path}: {message}",
        "details": {"causes": [{"reason": "FieldValueInvalid", "message": message, "field": path}]},
    }


async def test_all_violations_are_returned_at_once(server: RunningServer):
    labels = {keys.PREEMPTION_CLASS: "11", keys.PREEMPTIBLE: "maybe"}
    response = await server.ask(
        "/validate", a_review(a_pod(labels=labels, annotations={keys.CHECKPOINT: "x"}))
    )

    causes = response["status"]["details"]["causes"]
    assert [cause["reason"] for cause in causes] == [
        "FieldValueInvalid",
        "FieldValueNotSupported",
        "FieldValueNotSupported",
    ]
    assert all(
        f"{cause['field']}: {cause['message']}" in response["status"]["message"] for cause in causes
    )


async def test_a_misspelled_key_is_warned_of(server: RunningServer):
    pod = a_pod(annotations={"reprieve.dev/checkpoint-hnt": "annotation:"})
    response = await server.ask("/validate", a_review(pod))

    path = "metadata.annotations[reprieve.dev/checkpoint-hnt]"
    assert response["allowed"] is True
    assert response["warnings"] == [f'{path}: unknown; did you mean "checkpoint-hint"?']


async def test_keys_beside_the_template_of_a_cron_jobs_jobs_are_warned_of(server: RunningServer):
    job = {
        "metadata": {"labels": {keys.PREEMPTION_CLASS: "3"}},
        "spec": {"template": {"spec": {"containers": []}}},
    }
    document = {"metadata": {"name": "c"}, "spec": {"jobTemplate": job}}
    kind = {"group": "batch", "version": "v1", "kind": "CronJob"}
    response = await server.ask("/validate", a_review(document, kind=kind))

    path = "spec.jobTemplate.metadata.labels[reprieve.dev/preemption-class]"
    assert response["warnings"] == [f"{path}: unread here; it is a label of pods and templates"]


async def test_a_forbidden_change_is_refused_with_403(server: RunningServer):
    low, high = (
        a_pod(labels={keys.PREEMPTION_CLASS: "2"}),
        a_pod(labels={keys.PREEMPTION_CLASS: "5"}),
    )

    response = await server.ask("/validate", a_review(high, old=low))

    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")


async def test_a_valid_but_harmful_combination_is_a_warning(server: RunningServer):
    annotations = {keys.CHECKPOINT: "none", keys.CHECKPOINT_HINT: "annotation:"}

    response = await server.ask("/validate", a_review(a_pod(annotations=annotations)))

    assert response["allowed"] is True
    assert response["warnings"]


async def test_with_enforcement_warn_violations_are_allowed(server: RunningServer):
    server.source.facts = Facts(namespace=NamespacePolicy(enforcement="warn"))

    response = await server.ask("/validate", a_review(a_pod(labels={keys.PREEMPTION_CLASS: "11"})))

    assert response["allowed"] is True
    assert "must be between 0 and 10, in plain digits" in response["warnings"][0]


@dataclass
class Case:
    """One pod at creation, and the labels that it has afterwards."""

    metadata: Mapping[str, Any]
    want: Mapping[str, str] = field(default_factory=lambda: {keys.PREEMPTION_CLASS: "4"})


CASES = {
    "labels are absent": Case({}),
    "labels are null": Case({"labels": None}),
    "labels are empty": Case({"labels": {}}),
    "labels exist": Case({"labels": {"a~b/c": "d"}}, {"a~b/c": "d", keys.PREEMPTION_CLASS: "4"}),
    "a class of its own": Case(
        {"labels": {keys.PREEMPTION_CLASS: "3"}}, {keys.PREEMPTION_CLASS: "3"}
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_the_patch_applies_to_a_pod_with(server: RunningServer, case: Case):
    pod = a_pod()
    pod["metadata"] |= case.metadata

    response = await server.ask("/mutate", a_review(pod))

    assert jsonpatch.apply_patch(pod, patch_of(response))["metadata"]["labels"] == case.want


async def test_a_replacement_without_annotations_gets_several(server: RunningServer):
    entry = _ledger_entry()
    server.source.facts = Facts(ledger_entry=entry)
    pod = a_pod()
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "1", "controller": True}
    ]

    response = await server.ask("/mutate", a_review(pod))

    annotations = jsonpatch.apply_patch(pod, patch_of(response))["metadata"]["annotations"]
    assert annotations[keys.PREEMPTED_COUNT] == "2"
    assert annotations[keys.RESUME_FROM_CHECKPOINT] == "/data/7"


SAID = ["PREEMPTED_COUNT", "FIRST_SUBMITTED_AT", "RESUME_FROM_CHECKPOINT", "LAST_CHECKPOINT_AT"]
VARIABLES = [f"REPRIEVE_{name}" for name in SAID]
OWN_COUNT = {"name": "REPRIEVE_PREEMPTED_COUNT", "value": "0"}
ENVIRONMENTS = {
    "no env": ({}, VARIABLES),
    "env is null": ({"env": None}, VARIABLES),
    "env is empty": ({"env": []}, VARIABLES),
    "env with other variables": ({"env": [{"name": "A", "value": "b"}]}, ["A", *VARIABLES]),
    "env with a variable of Reprieve, which stays": ({"env": [OWN_COUNT]}, VARIABLES),
}


def a_replacement(**container: Any) -> Document:
    pod = a_pod(annotations={keys.REQUEUE_ENV: "true"})
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "train",
        "uid": "1",
        "controller": True,
    }
    pod["metadata"]["ownerReferences"] = [owner]
    pod["spec"]["containers"] = [
        {"name": "train", "image": "train"},
        {"name": "other", "image": "x", **container},
    ]
    pod["spec"]["initContainers"] = [{"name": "fetch", "image": "x", **copy.deepcopy(container)}]
    return pod


@pytest.mark.parametrize(("container", "names"), ENVIRONMENTS.values(), ids=ENVIRONMENTS)
async def test_the_environment_is_filled_in_for(
    server: RunningServer, container: Document, names: list[str]
):
    server.source.facts = Facts(ledger_entry=_ledger_entry())
    pod = a_replacement(**container)

    filled = jsonpatch.apply_patch(pod, patch_of(await server.ask("/mutate", a_review(pod))))

    spec = filled["spec"]
    shown = [
        [variable["name"] for variable in found["env"]]
        for found in spec["initContainers"] + spec["containers"]
    ]
    assert shown == [names, VARIABLES, names]
    reference = {
        "fieldRef": {"fieldPath": "metadata.annotations['reprieve.dev/resume-from-checkpoint']"}
    }
    assert {"name": VARIABLES[2], "valueFrom": reference} in spec["containers"][0]["env"]


async def test_a_class_gives_the_name_the_value_and_the_policy_of_its_priority_class(
    server: RunningServer,
):
    server.source.facts = Facts(
        settings=PolicySettings(class_priorities="refuse"), priority_classes=class_priorities()
    )
    pod = a_pod(labels={keys.PREEMPTION_CLASS: "6"})
    pod["spec"] |= {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}

    once = jsonpatch.apply_patch(pod, patch_of(await server.ask("/mutate", a_review(pod))))

    assert once["spec"] == pod["spec"] | {
        "priorityClassName": "reprieve-class-6",
        "priority": 6000,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert patch_of(await server.ask("/mutate", a_review(once))) == []
    assert "warnings" not in await server.ask("/validate", a_review(once))


async def test_a_second_review_fills_in_nothing_again(server: RunningServer):
    server.source.facts = Facts(ledger_entry=_ledger_entry())
    pod = a_replacement()
    once = jsonpatch.apply_patch(pod, patch_of(await server.ask("/mutate", a_review(pod))))

    again = jsonpatch.apply_patch(once, patch_of(await server.ask("/mutate", a_review(once))))

    assert again == once


async def test_an_agent_that_may_report_is_the_same_in_repeated_reviews(server: RunningServer):
    server.source.facts = Facts(
        checkpoint_service=CheckpointService("https://x/checkpoints", "Q0E=")
    )
    pod = a_pod(annotations={keys.CHECKPOINT_HINT: "file:///run/app/x", keys.AGENT: "enabled"})

    once = jsonpatch.apply_patch(pod, patch_of(await server.ask("/mutate", a_review(pod))))
    again = jsonpatch.apply_patch(once, patch_of(await server.ask("/mutate", a_review(once))))

    assert again == once
    assert once["spec"]["volumes"][-1]["name"] == "reprieve-agent-report-token"
    (sidecar,) = once["spec"]["initContainers"]
    assert sidecar["env"][1]["value"] == "https://x/checkpoints"


async def test_a_pod_that_requests_the_agent_gets_it_once_in_repeated_reviews(
    server: RunningServer,
):
    pod = a_pod(annotations={keys.CHECKPOINT_HINT: "file:///run/app/x", keys.AGENT: "enabled"})

    once = jsonpatch.apply_patch(pod, patch_of(await server.ask("/mutate", a_review(pod))))
    again = jsonpatch.apply_patch(once, patch_of(await server.ask("/mutate", a_review(once))))

    assert again == once
    assert [container["name"] for container in once["spec"]["initContainers"]] == ["reprieve-agent"]
    assert [volume["name"] for volume in once["spec"]["volumes"]] == [
        "reprieve-agent",
        "reprieve-agent-no-token",
    ]
    assert [mount["mountPath"] for mount in once["spec"]["containers"][0]["volumeMounts"]] == [
        "/run/app"
    ]


UNCONCERNED = {
    "a deletion": a_review(
        None, old=a_pod(labels={keys.PREEMPTION_CLASS: "11"}), operation="DELETE"
    ),
    "a connection": a_review({"kind": "PodExecOptions", "command": ["sh"]}, operation="CONNECT"),
    "an eviction": a_review(
        {"kind": "Eviction", "apiVersion": "policy/v1", "metadata": {"name": "train"}},
        subResource="eviction",
    ),
    "a kind without rules, of any form": a_review(
        {"kind": "Thing", "metadata": {"labels": 7}, "spec": [], "value": "text"}
    ),
    "a foreign Job": a_review(
        {"kind": "Job", "metadata": {"name": "j"}, "spec": {"template": "text"}},
        kind={"group": "batch.volcano.sh", "version": "v1alpha1", "kind": "Job"},
    ),
}


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("review", UNCONCERNED.values(), ids=UNCONCERNED.keys())
async def test_an_object_without_rules_is_allowed(
    server: RunningServer, path: str, review: Document
):
    assert await server.ask(path, review) == {"uid": review["request"]["uid"], "allowed": True}


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
async def test_a_terminating_pod_is_never_changed_or_refused(server: RunningServer, path: str):
    pod = a_pod(labels={keys.PREEMPTION_CLASS: "11"})
    pod["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"

    response = await server.ask(path, a_review(pod, old=a_pod()))

    assert response == {"uid": response["uid"], "allowed": True}


async def test_the_kind_is_that_of_the_request_even_if_the_object_has_none(server: RunningServer):
    pod = a_pod(labels={keys.PREEMPTION_CLASS: "11"})
    review = a_review(pod)
    del pod["kind"]

    assert (await server.ask("/validate", review))["allowed"] is False


async def test_a_uid_of_any_text_is_returned_unchanged(server: RunningServer):
    review = a_review(a_pod(), uid='"\\ü\n')

    assert (await server.ask("/validate", review))["uid"] == '"\\ü\n'


class Raising(Mapping[str, Any]):
    """Facts that a rule trips over: whatever it asks of them, the error is its own."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __getitem__(self, key: str) -> Any:
        raise self.error

    def __iter__(self) -> Iterator[str]:
        raise self.error

    def __len__(self) -> int:
        raise self.error


class Faulty(FixedFacts):
    """A source whose first answer is already an error."""

    @property
    def template_kinds(self) -> TemplateKinds:
        raise RuntimeError("broken")


FAULTS = (
    RuntimeError("broken"),
    RecursionError(),
    MemoryError(),
    KeyError("x"),
    AssertionError(),
    TimeoutError(),
)


@pytest.mark.parametrize("path", ["/mutate", "/validate"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
async def test_a_rule_that_raises_is_answered_with_500_logged_and_counted(
    server: RunningServer, caplog: pytest.LogCaptureFixture, path: str, fault: Exception
):
    review = a_review(a_pod(annotations={keys.PREEMPTION_PRIORITY_CLASS: "high"}))
    server.source.facts = Facts(priority_classes=Raising(fault))
    with caplog.at_level(logging.ERROR):
        async with server.session.post(server.url + path, json=review) as reply:
            assert reply.status == 500
            text = await reply.text()
    server.source.facts = Facts()

    assert text == "internal error at review 705ab4f5-6393-11e8-b7cc-42010a800002; see the log\n"
    told = [
        (vars(record)["uid"], vars(record)["webhook"], record.exc_info is not None)
        for record in caplog.records
    ]
    assert told == [("705ab4f5-6393-11e8-b7cc-42010a800002", path[1:], True)]
    assert (await server.ask(path, a_review(a_pod())))["allowed"] is True
    counted = (
        f'reprieve_admission_reviews_total{{kind="Pod",outcome="error",webhook="{path[1:]}"}} 1.0'
    )
    assert counted in server.shown_metrics()


async def test_an_error_before_the_uid_is_known_is_answered_with_500_and_counted(
    server: RunningServer, caplog: pytest.LogCaptureFixture
):
    immediate = server.webhooks._immediate
    source, immediate._facts = immediate._facts, Faulty()
    with caplog.at_level(logging.ERROR):
        assert await server.send("/validate", b"{}") == (500, "internal error; see the log\n")
    immediate._facts = source

    assert [record.exc_info is not None for record in caplog.records] == [True]
    assert (await server.ask("/validate", a_review(a_pod())))["allowed"] is True
    counted = (
        'reprieve_admission_reviews_total{kind="unknown",outcome="error",webhook="validate"} 1.0'
    )
    assert counted in server.shown_metrics()


async def test_one_failed_review_does_not_fail_others(server: RunningServer):
    server.source.facts = Facts(priority_classes=Raising(RuntimeError("broken")))
    failing, good = (
        a_review(a_pod(annotations={keys.PREEMPTION_PRIORITY_CLASS: "high"})),
        a_review(a_pod()),
    )
    good["request"]["kind"] = {"group": "apps", "version": "v1", "kind": "Deployment"}

    async def status(review: Document) -> int:
        async with server.session.post(server.url + "/validate", json=review) as reply:
            return reply.status

    answers = await asyncio.gather(*(status(review) for review in [failing, good] * 20))
    assert answers == [500, 200] * 20


async def test_facts_that_cannot_be_read_are_answered_with_503_and_not_guessed(
    server: RunningServer, caplog: pytest.LogCaptureFixture
):
    server.source.failure = ApiError(0, "Unreachable", "connection refused")
    reply = await server.session.post(server.url + "/mutate", json=a_review(a_pod()))

    assert reply.status == 503
    assert "could not read the facts for the rules" in await reply.text()
    assert not any(record.exc_info for record in caplog.records)


def _ledger_entry() -> LedgerEntry:
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    saved = Checkpoint(saved_at=now, step=7, path="/data/7")
    return LedgerEntry(
        preempted_count=2, first_submitted_at=now, eviction_ids=("e",), checkpoint=saved
    )
