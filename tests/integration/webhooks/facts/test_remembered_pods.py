"""What a watch learns ends what was remembered of pods, for each kind that rules read."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.kube.objects import ObjectMeta, OwnerReference, Resource
from reprieve_policy.lifecycle import ledger
from reprieve_policy.lifecycle.ledger import LedgerEntry
from reprieve_testing.objects.builders import NOW
from reprieve_testing.servers.reviews import a_pod, a_review
from reprieve_testing.servers.stub_api import StubApi, stub_api, until
from reprieve_webhooks.admission import handlers, review
from reprieve_webhooks.admission.handlers import ALLOWED, DENIED, WARNED, AdmissionResponse
from reprieve_webhooks.admission.remembered_pods import RememberedPods
from reprieve_webhooks.admission.review import AdmissionRequest
from reprieve_webhooks.facts.cluster_facts import ClusterFacts

NAMESPACES, CLASSES = "/api/v1/namespaces", "/apis/scheduling.k8s.io/v1/priorityclasses"
POLICY = "/api/v1/namespaces/reprieve-system/configmaps"
JOBS = "/apis/batch/v1/jobs"
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"


def named(kind: str, name: str, namespace: str = "", **fields: Any) -> Any:
    annotations = {keys.PREFIX + key: value for key, value in fields.pop("annotations", {}).items()}
    metadata = {"name": name, "annotations": annotations, "resourceVersion": "9"}
    return {
        "kind": kind,
        "metadata": metadata | ({"namespace": namespace} if namespace else {}),
        **fields,
    }


ENTRY = LedgerEntry(preempted_count=1, first_submitted_at=NOW, eviction_ids=("one",))
TEAM, TRAINING = named("Namespace", "team-a"), named("PriorityClass", "training", value=1000)


class Server:
    """The facts that watches of a stub tell, and the pods that were admitted by them."""

    def __init__(self, stub: StubApi, facts: ClusterFacts) -> None:
        self.stub, self.facts, self.remembered = stub, facts, RememberedPods(facts)

    async def outcome(self) -> str:
        """Return the outcome of the same new pod."""
        pod = a_pod(labels={keys.PREEMPTION_CLASS: "6"})
        pod["spec"]["priorityClassName"] = "training"
        request = review.parse(json.dumps(a_review(pod)).encode())
        assert isinstance(request, AdmissionRequest)
        answered = await handlers.validate(request, self.facts, self.remembered)
        assert isinstance(answered, AdmissionResponse)
        assert answered == await handlers.validate(request, self.facts)
        return answered.outcome

    async def learns(self, kind: str, document: Any, path: str) -> None:
        before = self.facts.version
        self.stub.send(kind, document, only=path)
        await until(lambda: self.facts.version > before)


@asynccontextmanager
async def server(directory: Path) -> AsyncIterator[Server]:
    known = {NAMESPACES: {"team-a": TEAM}, CLASSES: {"training": TRAINING}}
    async with stub_api(directory, collections=known) as (stub, api):
        facts = ClusterFacts(api, "reprieve-system", "reprieve-policy", lookup_timeout_seconds=60.0)
        running = asyncio.create_task(facts.run())
        try:
            stub.lists_released.set()
            await until(lambda: stub.open_watches == len(facts.watches()))
            yield Server(stub, facts)
        finally:
            running.cancel()
            await asyncio.wait([running])


LEARNT = {
    "that the Namespace allows less": (
        *("MODIFIED", NAMESPACES, DENIED),
        named("Namespace", "team-a", annotations={"allowed-preemption-classes": "0-2"}),
    ),
    "that the Namespace only warns": (
        *("MODIFIED", NAMESPACES, WARNED),
        named(
            "Namespace",
            "team-a",
            annotations={"allowed-preemption-classes": "0-2", "enforcement": "warn"},
        ),
    ),
    "another value of the pod's PriorityClass": (
        *("MODIFIED", CLASSES, ALLOWED),
        named("PriorityClass", "training", value=7),
    ),
    "another policy": (
        *("ADDED", POLICY, ALLOWED),
        named("ConfigMap", "reprieve-policy", "reprieve-system", data={"defaultRequeue": "never"}),
    ),
    "a quota": (
        *("ADDED", QUOTAS, ALLOWED),
        named("ElasticQuota", "team-a", "team-a", spec={"max": {"cpu": "4"}}),
    ),
}


@pytest.mark.parametrize(
    ("event", "path", "outcome", "document"), LEARNT.values(), ids=LEARNT.keys()
)
async def test_the_next_pod_is_reviewed_once_a_watch_has_learnt(
    tmp_path: Path, event: str, path: str, outcome: str, document: Any
):
    async with server(tmp_path) as running:
        assert [await running.outcome() for _ in range(2)] == [ALLOWED, ALLOWED]
        assert len(running.remembered) == 1
        known = list(running.remembered._verdicts)

        await running.learns(event, document, path)

        assert not any(map(running.remembered.verdict_of, known))
        assert await running.outcome() == outcome


def a_job_with_a_ledger() -> tuple[Resource, Any]:
    """Return a pod of the Job, and the Job as the API server sends it."""
    owner = OwnerReference(kind="Job", name="train", uid="1", controller=True)
    pod = Resource(kind="Pod", metadata=ObjectMeta(name="p", ownerReferences=(owner,)))
    job = named("Job", "train", "team-a", annotations={"ledger": ledger.render({"": ENTRY})})
    job["metadata"] |= {"uid": "1", "labels": {keys.LEDGER: "true"}}
    return pod, job


async def test_a_ledger_ends_what_was_remembered_and_nothing_follows_from_it(tmp_path: Path):
    pod, job = a_job_with_a_ledger()
    async with server(tmp_path) as running:
        assert running.facts.inherits_nothing(pod, "team-a")

        await running.learns("ADDED", job, JOBS)

        assert not running.facts.inherits_nothing(pod, "team-a")


async def test_nothing_follows_from_a_ledger_that_was_taken_back(tmp_path: Path):
    """The operator removes it with its label, so that the watch shows a deletion."""
    pod, job = a_job_with_a_ledger()
    async with server(tmp_path) as running:
        await running.learns("ADDED", job, JOBS)
        await running.learns("DELETED", job, JOBS)

        assert running.facts.inherits_nothing(pod, "team-a")


async def test_a_pod_of_a_namespace_that_no_watch_has_seen_is_reviewed_each_time(tmp_path: Path):
    async with server(tmp_path) as running:
        await running.learns("DELETED", TEAM, NAMESPACES)

        assert [await running.outcome() for _ in range(2)] == [ALLOWED, ALLOWED]
        assert len(running.remembered) == 0


async def test_a_pod_of_a_priority_class_that_no_watch_has_seen_is_reviewed_each_time(
    tmp_path: Path,
):
    async with server(tmp_path) as running:
        await running.learns("DELETED", TRAINING, CLASSES)

        assert [await running.outcome() for _ in range(2)] == [ALLOWED, ALLOWED]
        assert len(running.remembered) == 0
