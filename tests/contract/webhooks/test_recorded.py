"""Every operation that an API server reviews, as kube-apiserver 1.37.1 sent it, and both responses.

`python -m record` (in hack/) performs the operations on a real cluster and writes the files; the
table states what they mean. No Namespace, no PriorityClass and no ConfigMap is known here: all
responses follow from the defaults. The webhooks' `matchConditions` keep the API server from sending
many of these reviews; the responses must be right where it sends them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from reprieve_policy.facts import Facts
from reprieve_testing.servers.reviews import FixedFacts, patch_of
from reprieve_webhooks.admission import handlers, review
from reprieve_webhooks.admission.handlers import AdmissionResponse
from reprieve_webhooks.admission.review import AdmissionRequest, Malformed

FOLDER = Path(__file__).parents[1] / "reviews" / "recorded"
CLASS = "metadata.labels[reprieve.dev/preemption-class]"
CHECKPOINT = "metadata.annotations[reprieve.dev/checkpoint]"
OUT_OF_RANGE = f'{CLASS}: Invalid value: "11": must be between 0 and 10, in plain digits'
RAISED = f"{CLASS}: Forbidden: may only be lowered after creation"
DEFAULT = {"/metadata/labels": {"reprieve.dev/preemption-class": "4"}}


@dataclass(frozen=True)
class Case:
    """A recording and its response; by default allowed, without warning or patch."""

    recording: str
    refused: str = ""
    """The whole message."""
    code: int = 400
    warned: Sequence[str] = ()
    added: Mapping[str, Any] = field(default_factory=dict)
    """What the patch adds, by path."""


CASES = {
    # Creation.
    "a pod whose name the API server has generated": Case("pod-with-a-generated-name"),
    "a pod that mutation sees before it has a name": Case(
        "pod-with-a-generated-name-before-it-has-one", added=DEFAULT
    ),
    "a dry run is reviewed as the run would be": Case("pod-on-a-dry-run", OUT_OF_RANGE),
    "a server-side apply that creates": Case("pod-applied-server-side"),
    "a CronJob": Case("cronjob"),
    "a Job": Case("job"),
    "a Job that a person makes from a CronJob": Case("job-made-from-a-cronjob"),
    "a DaemonSet of a bad class": Case("daemonset", f"spec.template.{OUT_OF_RANGE}"),
    "a StatefulSet": Case("statefulset"),
    # What controllers make from templates.
    "a CronJob's Job, by its controller": Case("job-of-a-cronjob-by-its-controller"),
    "a Deployment's ReplicaSet, by its controller": Case("replicaset-of-a-deployment"),
    "a ReplicaSet's pod, by its controller": Case("pod-of-a-replicaset"),
    "a Job's pod, by its controller": Case("pod-of-a-job"),
    "a StatefulSet's pod, by its controller": Case("pod-of-a-statefulset"),
    "a pod of a template that was bad before there were rules": Case(
        "pod-of-a-daemonset", warned=[OUT_OF_RANGE]
    ),
    "a StatefulSet's revision": Case("controller-revision-of-a-statefulset"),
    # The ratchet.
    "a bad pod gets a label": Case("bad-pod-is-labelled"),
    "a bad pod is made worse: only the new violation is named": Case(
        "bad-pod-is-made-worse",
        f'{CHECKPOINT}: Unsupported value: "sometimes": supported values: "auto", "manual", "none"',
    ),
    "a bad value is replaced by another bad one": Case(
        "bad-pod-is-made-bad-in-another-way",
        f'{CLASS}: Invalid value: "12": must be between 0 and 10, in plain digits',
    ),
    "a bad Job is resumed": Case("bad-job-is-resumed"),
    "a bad Deployment is scaled by a patch": Case("bad-deployment-scaled-by-a-patch"),
    "a bad PriorityClass gets a label": Case("bad-priorityclass-is-labelled"),
    "a bad Namespace gets a label": Case("bad-namespace-is-labelled"),
    "a good Deployment gets a bad template": Case(
        "deployment-rolled-to-a-bad-class", f"spec.template.{OUT_OF_RANGE}"
    ),
    # Finalizers, the terminating, owners.
    "a bad pod loses a finalizer": Case("bad-pod-loses-a-finalizer"),
    "a Job's finished pod loses its tracking finalizer": Case(
        "finished-pod-of-a-job-loses-its-tracking-finalizer"
    ),
    "a terminating pod is not reviewed any more": Case("terminating-bad-pod-is-made-worse"),
    "a terminating pod loses its last finalizer": Case(
        "terminating-bad-pod-loses-its-last-finalizer"
    ),
    "the garbage collector takes an owner away": Case("pod-orphaned-by-the-garbage-collector"),
    # Status and other subresources.
    "a kubelet's status of a bad pod": Case("pod-status-by-its-node"),
    "a class that is claimed through the status": Case("pod-status-with-a-class", RAISED, 403),
    "a Deployment's status, by its controller": Case("deployment-status-by-its-controller"),
    "a Job's status, by its controller": Case("job-status-by-its-controller"),
    "a Namespace's status, by its controller": Case("namespace-status-by-its-controller"),
    "a bad Namespace is finalized": Case("namespace-finalized-by-its-controller"),
    "a binding": Case("pod-bound-by-the-scheduler"),
    "an eviction": Case("pod-evicted"),
    "an exec": Case("pod-exec"),
    "an ephemeral container": Case("pod-gets-an-ephemeral-container"),
    "a resize": Case("pod-resized"),
    "a Deployment's scale, by the autoscaler": Case("deployment-scaled-by-the-autoscaler"),
    # Ways to patch.
    "a JSON patch": Case("pod-patched-by-json-patch"),
    "a merge patch that lowers a class": Case("pod-patched-by-merge-patch"),
    "a strategic merge patch that takes a class away, for a higher default": Case(
        "pod-patched-strategically", RAISED, 403
    ),
    "a server-side apply that raises a class": Case("pod-applied-server-side-again", RAISED, 403),
    # Deletion.
    "a bad pod is deleted": Case("pod-deleted"),
    "a bad pod is deleted with its collection": Case("pod-deleted-with-its-collection"),
    "a bad PriorityClass is deleted": Case("priorityclass-deleted"),
    "a bad Namespace is deleted": Case("namespace-deleted"),
    # The policy itself.
    "a PriorityClass with an unreadable toleration": Case(
        "priorityclass",
        "metadata.annotations[preemption-toleration.scheduling.x-k8s.io/toleration-seconds]: "
        'Invalid value: "1h": must be whole seconds, like "3600"; "-1" tolerates forever',
    ),
    "a Namespace of an unknown type": Case(
        "namespace",
        'metadata.annotations[reprieve.dev/workload-type]: Unsupported value: "unknown": '
        'supported values: "hpc-batch", "ml-training", "service", "sensitive", "interactive"',
    ),
}
RECORDINGS = sorted(path.stem for path in FOLDER.glob("*.json"))
UPDATES_OF_RULED_KINDS = [
    "bad-pod-is-labelled",
    "deployment-rolled-to-a-bad-class",
    "bad-namespace-is-labelled",
    "bad-priorityclass-is-labelled",
]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_the_response_to_a_recorded_review_of_validate(case: Case):
    response = await answer("validate", load(case.recording))

    status = response.get("status", {})
    assert (response["allowed"], status.get("message", "")) == (not case.refused, case.refused)
    assert status.get("code", case.code) == case.code
    assert response.get("warnings", []) == list(case.warned)
    assert "patch" not in response


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
async def test_the_response_to_a_recorded_review_of_mutate(case: Case):
    response = await answer("mutate", load(case.recording))

    assert response["allowed"]
    assert {step["path"]: step["value"] for step in patch_of(response)} == case.added
    assert "warnings" not in response


def test_the_table_has_every_recording():
    assert sorted(case.recording for case in CASES.values()) == RECORDINGS


@pytest.mark.parametrize("recording", RECORDINGS)
async def test_fields_are_filled_in_at_creation_only_and_once(recording: str):
    sent = load(recording)
    patch = patch_of(await answer("mutate", sent))
    assert not patch or sent["request"]["operation"] == "CREATE"

    sent["request"]["object"] = (
        jsonpatch.apply_patch(sent["request"].get("object") or {}, patch) or None
    )
    assert patch_of(await answer("mutate", sent)) == []


@pytest.mark.parametrize("webhook", ["mutate", "validate"])
@pytest.mark.parametrize("recording", UPDATES_OF_RULED_KINDS)
async def test_an_update_without_the_old_object_is_malformed(recording: str, webhook: str):
    sent = load(recording)
    sent["request"]["oldObject"] = None

    handle = {"mutate": handlers.mutate, "validate": handlers.validate}[webhook]
    response = await handle(parsed(sent), FixedFacts(Facts()))

    assert response == Malformed("request.oldObject must not be null where the operation is UPDATE")


@pytest.mark.parametrize("webhook", ["mutate", "validate"])
@pytest.mark.parametrize("recording", ["pod-deleted", "namespace-deleted", "priorityclass-deleted"])
async def test_a_deletion_of_before_1_15_without_the_old_object_is_allowed(
    recording: str, webhook: str
):
    sent = load(recording)
    sent["request"]["oldObject"] = None

    assert (await answer(webhook, sent))["allowed"] is True


@pytest.mark.parametrize("recording", RECORDINGS)
def test_recordings_hold_nothing_of_the_cluster_that_made_them(recording: str):
    text = (FOLDER / f"{recording}.json").read_text()

    assert "127.0.0.1:" not in text
    assert "JTI=" not in text or "JTI=00000000" in text


def load(recording: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((FOLDER / f"{recording}.json").read_text())
    return document


def parsed(sent: dict[str, Any]) -> AdmissionRequest:
    request = review.parse(json.dumps(sent).encode())
    assert isinstance(request, AdmissionRequest)
    return request


async def answer(webhook: str, sent: dict[str, Any]) -> dict[str, Any]:
    handle = {"mutate": handlers.mutate, "validate": handlers.validate}[webhook]
    response = await handle(parsed(sent), FixedFacts(Facts()))
    assert isinstance(response, AdmissionResponse)
    response: dict[str, Any] = json.loads(response.body)["response"]
    assert response["uid"] == sent["request"]["uid"]
    return response
