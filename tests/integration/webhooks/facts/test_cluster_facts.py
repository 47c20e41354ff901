"""Facts: complete before the first answer, of known age, and no way to load the API server."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client import generate_latest

from reprieve_policy import keys
from reprieve_policy.checkpointing.agent import CheckpointService
from reprieve_policy.facts import Facts, GangStatement
from reprieve_policy.gangs import pod_group
from reprieve_policy.kube.objects import ObjectMeta, Resource, Spec, WorkloadReference
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects import builders
from reprieve_testing.objects.builders import a_pod, a_pod_group, a_workload
from reprieve_testing.servers.stub_api import DEADLINE_SECONDS, StubApi, stub_api, until
from reprieve_webhooks.admission.review import AdmissionRequest, GroupVersionKind
from reprieve_webhooks.facts import cluster_facts, priority_classes
from reprieve_webhooks.facts.cluster_facts import ClusterFacts
from reprieve_webhooks.lookups import limits
from reprieve_webhooks.metrics import WebhookMetrics

NAMESPACES, CLASSES = "/api/v1/namespaces", "/apis/scheduling.k8s.io/v1/priorityclasses"
POLICY = "/api/v1/namespaces/reprieve-system/configmaps"
PATIENCE_SECONDS = 60.0
"""With one lookup, where an answer comes. A busy machine needs a second for it."""
IMPATIENCE_SECONDS = 0.3
"""Where none comes."""


class Cluster:
    """The stub, and the facts that are read from it."""

    def __init__(self, stub: StubApi, facts: ClusterFacts, metrics: WebhookMetrics) -> None:
        self.stub, self.facts, self.metrics = stub, facts, metrics

    async def facts_of(self, namespace: str, **annotations: str) -> Facts:
        said = {key.replace("_", "-"): value for key, value in annotations.items()}
        prefixed = {f"{keys.PREFIX}{key}": value for key, value in said.items()}
        pod = Resource(kind="Pod", metadata=ObjectMeta(name="p", annotations=prefixed), spec=Spec())
        return await self.facts_for(pod, namespace)

    async def facts_for(
        self, resource: Resource, namespace: str = "team", operation: str = "CREATE"
    ) -> Facts:
        kind = GroupVersionKind(resource.kind)
        request = AdmissionRequest(uid="1", operation=operation, kind=kind, namespace=namespace)
        return await self.facts.facts_for(request, resource)

    until = staticmethod(until)


@asynccontextmanager
async def cluster(
    directory: Path,
    *,
    released: bool = True,
    patience_seconds: float = PATIENCE_SECONDS,
    own_image: str = "reprieve",
    **collections: Any,
) -> AsyncIterator[Cluster]:
    known = {NAMESPACES: {"team": a_namespace("team")}, CLASSES: {}, **collections}
    async with stub_api(directory, collections=known) as (stub, api):
        metrics = WebhookMetrics()
        facts = ClusterFacts(
            api,
            "reprieve-system",
            "reprieve-policy",
            lookup_timeout_seconds=patience_seconds,
            show_policy=metrics.observe_policy,
            own_image=own_image,
        )
        metrics.register_watches(facts.watches)
        running = asyncio.create_task(facts.run())
        made = Cluster(stub, facts, metrics)
        try:
            if released:
                stub.lists_released.set()
                await made.until(lambda: stub.open_watches == len(facts.watches()))
            yield made
        finally:
            running.cancel()
            await asyncio.wait([running])


def a_namespace(name: str, **annotations: str) -> Any:
    said = {f"{keys.PREFIX}{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "kind": "Namespace",
        "metadata": {"name": name, "resourceVersion": "7", "annotations": said},
    }


def metric_lines(metrics: WebhookMetrics) -> list[str]:
    """Return the lines of `/metrics`."""
    return generate_latest(metrics.registry).decode().splitlines()


def a_policy(**data: str) -> Mapping[str, Any]:
    metadata = {
        "name": "reprieve-policy",
        "namespace": "reprieve-system",
        "uid": "of-policy",
        "resourceVersion": "8",
    }
    return {"kind": "ConfigMap", "metadata": metadata, "data": data}


async def test_before_the_lists_are_complete_no_fact_is_guessed(tmp_path: Path):
    impatient = cluster(tmp_path, released=False, patience_seconds=IMPATIENCE_SECONDS)
    async with impatient as waiting:
        with pytest.raises(ApiError, match="not listed yet: namespaces, priorityclasses, policy"):
            await waiting.facts_of("team")


async def test_a_review_shortly_before_the_lists_are_complete_waits(tmp_path: Path):
    policy = {POLICY: {"reprieve-policy": a_policy(defaultPreemptionClass="2")}}
    async with cluster(tmp_path, released=False, **policy) as waiting:
        early = asyncio.create_task(waiting.facts_of("team"))
        await waiting.until(lambda: waiting.stub.calls[NAMESPACES] > 0)
        waiting.stub.lists_released.set()

        assert (await early).settings.default_class == 2


async def test_once_ready_the_first_answer_is_the_right_one(tmp_path: Path):
    known = {
        NAMESPACES: {"team": a_namespace("team", workload_type="sensitive")},
        CLASSES: {
            "high": {
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 7,
                "globalDefault": True,
            }
        },
        POLICY: {"reprieve-policy": a_policy(defaultPreemptionClass="2")},
    }
    async with cluster(tmp_path, **known) as ready:
        facts = await ready.facts_of("team")

        assert facts.namespace.is_sensitive
        assert facts.priority_classes["high"].value == 7
        assert facts.settings.default_class == 2
        assert ready.stub.calls[f"{NAMESPACES}/team"] == 0


HOSTILE = [
    "..",
    ".",
    "../../apis/x",
    "a/b",
    "a?b=c",
    "a#b",
    "%2e%2e",
    "A",
    "ü",
    "a" * 300,
    " ",
    "-a",
    "a\n",
    "a\0b",
]


@pytest.mark.parametrize("name", HOSTILE)
async def test_no_name_can_change_the_path_of_a_call(tmp_path: Path, name: str):
    async with cluster(tmp_path) as ready:
        before = ready.stub.calls.copy()
        facts = await ready.facts_of(name, preemption_priority_class=name)

        assert facts.namespace == (await ready.facts_of("")).namespace
        assert facts.priority_classes.get(name) is None
        assert ready.stub.calls == before


async def test_concurrent_reads_of_one_name_cost_one_call(tmp_path: Path):
    async with cluster(tmp_path) as ready:
        ready.stub.collections[NAMESPACES]["new"] = a_namespace("new", workload_type="sensitive")
        found = await asyncio.gather(*(ready.facts_of("new") for _ in range(200)))

        assert all(facts.namespace.is_sensitive for facts in found)
        assert ready.stub.calls[f"{NAMESPACES}/new"] == 1


async def test_a_flood_of_new_names_is_not_passed_on_to_the_api_server(tmp_path: Path):
    async with cluster(tmp_path) as ready:
        started = asyncio.get_running_loop().time()
        floods = (ready.facts_of(f"new-{number}") for number in range(1000))
        answers = await asyncio.gather(*floods, return_exceptions=True)
        seconds = asyncio.get_running_loop().time() - started
        asked = sum(
            count
            for path, count in ready.stub.calls.items()
            if path.startswith(f"{NAMESPACES}/new-")
        )

        assert asked <= limits.BURST_CALLS + seconds * limits.CALLS_PER_SECOND + 1
        refused = [answer for answer in answers if isinstance(answer, ApiError)]
        assert len(answers) - len(refused) <= asked
        assert {refusal.reason for refusal in refused} >= {"TooManyLookups"}
        # What is known is answered all the while: it costs no call.
        assert isinstance(await ready.facts_of("team"), Facts)


def a_priority_class(name: str, value: int, defended_as: str = "") -> Any:
    annotations = {f"{keys.PREFIX}preemption-priority-class": defended_as} if defended_as else {}
    metadata = {"name": name, "annotations": annotations}
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata,
        "value": value,
    }


NAMING: dict[str, Resource] = {
    "a pod's": a_pod().in_priority_class("new").build(),
    "a pod's defence": a_pod().defended_as("new").build(),
    "a template's": a_pod().in_priority_class("new").in_template_of("CronJob"),
    "a native group's": a_pod_group().in_priority_class("new").build(),
    "a native group's defence": a_pod_group().defended_as("new").build(),
    "a native workload's": a_workload().with_templates("new").build(),
    "another PriorityClass's defence": builders.a_priority_class().defended_as("new").build(),
}


@pytest.mark.parametrize("resource", NAMING.values(), ids=NAMING)
async def test_an_unknown_priority_class_is_read_with_the_one_of_its_preemption_priority(
    tmp_path: Path, resource: Resource
):
    async with cluster(tmp_path) as ready:
        made = [a_priority_class("new", 7, "above"), a_priority_class("above", 9)]
        ready.stub.collections[CLASSES] |= {found["metadata"]["name"]: found for found in made}
        facts = await ready.facts_for(resource)

        assert (facts.priority_classes["new"].value, facts.priority_classes["above"].value) == (
            7,
            9,
        )


async def test_an_object_with_many_unknown_priority_classes_is_decided_after_a_few_calls(
    tmp_path: Path,
):
    async with cluster(tmp_path) as ready:
        for _ in range(3):
            many = a_workload().with_templates(*(f"new-{number}" for number in range(250))).build()
            assert not (await ready.facts_for(many)).priority_classes

        asked = sum(
            count for path, count in ready.stub.calls.items() if path.startswith(f"{CLASSES}/new-")
        )
        assert asked <= priority_classes._MAX_PRIORITY_CLASS_READS


async def test_a_flood_of_unknown_priority_classes_leaves_no_object_undecided(tmp_path: Path):
    async with cluster(tmp_path) as ready:
        for number in range(3 * limits.BURST_CALLS):
            assert not (
                await ready.facts_for(a_pod().defended_as(f"new-{number}").build())
            ).priority_classes
        ready.stub.collections[NAMESPACES]["new"] = a_namespace("new", workload_type="sensitive")

        assert (await ready.facts_of("new")).namespace.is_sensitive


async def test_the_unknown_class_of_a_known_ones_preemption_priority_is_read(
    tmp_path: Path,
):
    known = {CLASSES: {"old": a_priority_class("old", 7, "above")}}
    async with cluster(tmp_path, **known) as ready:
        assert "above" not in (await ready.facts_of("team")).priority_classes
        ready.stub.collections[CLASSES]["above"] = a_priority_class("above", 9)
        facts = await ready.facts_for(a_pod().in_priority_class("old").build())

        assert facts.priority_classes["above"].value == 9


async def test_a_priority_class_that_names_itself_is_read_once(tmp_path: Path):
    async with cluster(tmp_path) as ready:
        ready.stub.collections[CLASSES]["new"] = a_priority_class("new", 7, "new")
        await ready.facts_for(a_pod().in_priority_class("new").build())

        assert ready.stub.calls[f"{CLASSES}/new"] == 1


WORKLOADS = "/apis/scheduling.k8s.io/v1beta1/namespaces/team/workloads"
STATED = {keys.PREEMPTION_PRIORITY_CLASS: "urgent"}
FROM_A_WORKLOAD = {
    "its Workload states it": ("train", STATED, 1),
    "its Workload does not exist": ("other", {}, 1),
    "it names none": (None, {}, 0),
}


@pytest.mark.parametrize(
    ("name", "annotations", "calls"), FROM_A_WORKLOAD.values(), ids=FROM_A_WORKLOAD
)
async def test_what_the_workload_of_a_new_pod_group_states_is_read(
    tmp_path: Path, name: str | None, annotations: Mapping[str, str], calls: int
):
    stated = STATED | {keys.DISRUPTION_MODE: "x" * 1000}  # too long to be kept
    train = {"metadata": {"name": "train", "annotations": stated}}
    async with cluster(tmp_path, **{WORKLOADS: {"train": train}}) as ready:
        named = None if name is None else WorkloadReference(workloadName=name)
        group = replace(a_pod_group().build(), spec=Spec(workloadRef=named))
        assert (await ready.facts_for(group)).workload_annotations == annotations
        assert ready.stub.calls[f"{WORKLOADS}/{name}"] == calls
        without = replace(a_pod_group().build(), spec=None)
        assert (await ready.facts_for(without)).workload_annotations == {}


@pytest.mark.parametrize("why", ["it is too large", "it cannot be read"])
async def test_a_pod_group_whose_workload_is_not_read_is_checked_all_the_same(
    tmp_path: Path, why: str
):
    large = {f"a{number}": "" for number in range(60_000)} if why == "it is too large" else {}
    stated: Any = [] if why == "it cannot be read" else STATED | large
    train = {"metadata": {"name": "train", "annotations": stated}}
    async with cluster(tmp_path, **{WORKLOADS: {"train": train}}) as ready:
        assert await inherits(ready, "train") == {}


def test_of_a_workload_the_annotations_that_its_pod_groups_take_over_are_decoded() -> None:
    decoded = msgspec.structs.fields(cluster_facts._WorkloadAnnotations)
    assert {field.encode_name for field in decoded} == set(pod_group.WORKLOAD_KEYS)


async def test_a_flood_of_workloads_is_not_passed_on_and_fails_no_review(tmp_path: Path):
    async with cluster(tmp_path) as ready:
        started = asyncio.get_running_loop().time()
        await asyncio.gather(*(inherits(ready, f"other-{number}") for number in range(500)))
        seconds = asyncio.get_running_loop().time() - started
        calls = sum(count for path, count in ready.stub.calls.items() if path.startswith(WORKLOADS))
        assert calls <= (limits.BURST_CALLS + seconds * limits.CALLS_PER_SECOND) / 2 + 1


async def inherits(ready: Cluster, workload: str) -> Mapping[str, str]:
    named = WorkloadReference(workloadName=workload)
    group = replace(a_pod_group().build(), spec=Spec(workloadRef=named))
    return (await ready.facts_for(group)).workload_annotations


JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets"


async def test_what_the_jobset_of_a_new_pod_states_is_read(tmp_path: Path):
    stated = {"metadata": {"annotations": {keys.DISRUPTION_MODE: "pod"}}}
    async with cluster(tmp_path, **{JOBSETS: {"train": stated}}) as ready:
        pod = a_pod().labelled(keys.JOBSET, "train").build()
        assert (await ready.facts_for(pod)).gang_statement == GangStatement("pod")
        assert ready.stub.calls[f"{JOBSETS}/train"] == 1
        changed = await ready.facts_for(pod, operation="UPDATE")
        assert changed.gang_statement is None
        assert (await ready.facts_of("team")).gang_statement is None


async def test_a_watch_takes_precedence_over_a_read(tmp_path: Path):
    async with cluster(tmp_path) as ready:
        assert not (await ready.facts_of("late")).namespace.is_sensitive
        ready.stub.send("ADDED", a_namespace("late", workload_type="sensitive"))

        await ready.until(lambda: ("", "late") in ready.facts._namespaces.reflector.items)
        assert (await ready.facts_of("late")).namespace.is_sensitive


async def test_a_call_that_failed_is_tried_again_at_the_next_review(tmp_path: Path):
    async with cluster(tmp_path) as ready:
        ready.stub.collections[NAMESPACES]["new"] = a_namespace("new", workload_type="sensitive")
        ready.stub.is_failing = True
        with pytest.raises(ApiError):
            await ready.facts_of("new")
        ready.stub.is_failing = False

        assert (await ready.facts_of("new")).namespace.is_sensitive


async def test_during_an_outage_of_the_api_server_known_facts_apply_and_their_age_is_a_metric(
    tmp_path: Path,
):
    async with cluster(tmp_path) as ready:
        ready.stub.is_failing = True
        ready.stub.end_watches()
        before = {name: watch.age_seconds for name, watch in ready.facts.watches().items()}

        assert isinstance(await ready.facts_of("team"), Facts)
        with pytest.raises(ApiError):
            await ready.facts_of("new")
        assert ready.facts.is_synced
        await ready.until(
            lambda: all(
                ready.facts.watches()[name].age_seconds > age for name, age in before.items()
            )
        )


async def test_the_age_of_facts_is_a_metric_that_names_no_object(tmp_path: Path):
    async with cluster(tmp_path) as ready:
        lines = metric_lines(ready.metrics)
        shown = [
            line.rpartition(" ") for line in lines if line.startswith("reprieve_facts_age_seconds{")
        ]

        collections = [
            "namespaces",
            "priorityclasses",
            "policy",
            "lease",
            "elasticquotas",
            "jobs",
            "statefulsets",
            "replicasets",
            "jobsets",
            "leaderworkersets",
        ]
        assert [name for name, _, _ in shown] == [
            f'reprieve_facts_age_seconds{{collection="{name}"}}' for name in collections
        ]
        assert all(0 <= float(seconds) < DEADLINE_SECONDS for _, _, seconds in shown)


async def test_objects_deleted_between_two_watches_are_forgotten_with_the_next_list(tmp_path: Path):
    policy = {POLICY: {"reprieve-policy": a_policy(defaultPreemptionClass="2")}}
    async with cluster(tmp_path, **policy) as ready:
        assert (await ready.facts_of("team")).settings.default_class == 2
        ready.stub.collections[POLICY].clear()
        ready.stub.collections[NAMESPACES]["team"] = a_namespace("team", workload_type="sensitive")
        # "Too old": the API server has forgotten what came after the last list.
        ready.stub.send(
            "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
        )
        ready.stub.end_watches()

        await ready.until(lambda: ready.stub.calls[POLICY] == ready.stub.calls[NAMESPACES] == 2)
        await ready.until(lambda: ready.stub.open_watches == len(ready.facts.watches()))
        facts = await ready.facts_of("team")
        assert (facts.settings.default_class, facts.namespace.is_sensitive) == (4, True)


async def test_an_invalid_policy_is_reported_and_the_last_valid_one_applies_until_its_deletion(
    tmp_path: Path,
):
    async with cluster(tmp_path) as ready:

        async def holds(default_class: int, is_good: int, *, errors: int) -> None:
            want = {
                f"reprieve_policy_is_good {is_good}.0",
                f"reprieve_policy_config_errors_total {errors}.0",
            }
            await ready.until(lambda: want <= set(metric_lines(ready.metrics)))
            assert (await ready.facts_of("team")).settings.default_class == default_class

        await holds(4, 1, errors=0)
        ready.stub.send("ADDED", a_policy(defaultPreemptionClass="2"))
        ready.stub.send("MODIFIED", a_policy(defaultPreemptionClass="11"))
        await holds(2, 0, errors=1)
        ready.stub.send("DELETED", a_policy(defaultPreemptionClass="11"))
        await holds(4, 1, errors=1)
        ready.stub.send("ADDED", a_policy(defaultPreemptionClass="12"))
        await holds(4, 0, errors=2)


async def test_agents_run_the_image_of_the_webhooks_themselves(tmp_path: Path):
    async with cluster(tmp_path, own_image="registry.example.com/reprieve:3") as made:
        assert (await made.facts_of("team")).own_image == "registry.example.com/reprieve:3"


async def test_agents_are_told_where_to_report_once_the_ca_is_known(tmp_path: Path):
    service = CheckpointService("https://x/checkpoints", "Q0E=")
    known: list[CheckpointService] = []
    async with stub_api(tmp_path, collections={NAMESPACES: {"team": a_namespace("team")}}) as (
        stub,
        api,
    ):
        facts = ClusterFacts(
            api,
            "reprieve-system",
            "reprieve-policy",
            lookup_timeout_seconds=PATIENCE_SECONDS,
            checkpoint_service=lambda: next(iter(known), None),
        )
        running = asyncio.create_task(facts.run())
        try:
            stub.lists_released.set()
            made = Cluster(stub, facts, WebhookMetrics())
            assert (await made.facts_of("team")).checkpoint_service is None
            known.append(service)
            assert (await made.facts_of("team")).checkpoint_service == service
        finally:
            running.cancel()
            await asyncio.wait([running])
