"""`reprieve simulate` on dumps: accepted input, refusals, and the same result for every format."""

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from reprieve_cli.main import reprieve
from reprieve_cli.manifests import sources
from reprieve_cli.output import progress
from reprieve_policy.kube.kinds import KINDS
from reprieve_testing.safe_texts import is_showable
from reprieve_testing.servers import deep_json

DOCS = Path(__file__).parents[4] / "docs" / "simulate"
AT = ("--at", "2026-11-21T12:00:00Z")
Json = dict[str, Any]


@dataclass(frozen=True)
class Simulated:
    status: int
    output: str
    stderr: str

    @property
    def document(self) -> Any:
        return json.loads(self.output)

    @property
    def best(self) -> tuple[str, set[str]]:
        choice = self.document["candidates"][0]
        return choice["node"], {victim["name"] for victim in choice["victims"]}


def run(
    preemptor: object, *dumps: object, words: tuple[str, ...] = ("-o", "json"), stdin: str = ""
) -> Simulated:
    files = [word for dump in dumps for word in ("--from", str(dump))]
    command = ["simulate", "--preemptor", str(preemptor), *files, *AT, *words]
    result = CliRunner().invoke(reprieve, command, input=stdin, catch_exceptions=False)
    return Simulated(result.exit_code, result.stdout, result.stderr)


def cluster() -> Json:
    found: Json = yaml.safe_load((DOCS / "cluster.yaml").read_text())
    return found


def write(folder: Path, name: str, *documents: Any) -> Path:
    path = folder / name
    dumped = (
        yaml.safe_dump_all(documents)
        if name.endswith("yaml")
        else "\n".join(map(json.dumps, documents))
    )
    path.write_text(dumped, encoding="utf-8")
    return path


def preemptor(**fields: Any) -> Json:
    spec = {
        "priority": 10000,
        "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "60"}}}],
    }
    metadata = {
        "name": "urgent",
        "namespace": "research",
        "labels": {"reprieve.dev/preemption-class": "7"},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, **fields}


def test_the_result_does_not_depend_on_the_format_of_the_dump_or_on_how_it_is_split(
    tmp_path: Path,
) -> None:
    items = cluster()["items"]
    urgent = DOCS / "urgent.yaml"
    wanted = run(urgent, DOCS / "cluster.yaml")
    assert (wanted.status, wanted.stderr) == (0, "")
    assert wanted.best == ("gpu-1", {"sweep-1"})
    one_list = write(tmp_path, "list.json", cluster())
    several = [write(tmp_path, f"{number}.json", item) for number, item in enumerate(items)]
    pods = [
        {key: item[key] for key in item if key not in ("kind", "apiVersion")}
        for item in items
        if item["kind"] == "Pod"
    ]
    typed = write(tmp_path, "pods.json", {"kind": "PodList", "apiVersion": "v1", "items": pods})
    others = write(tmp_path, "others.yaml", *(item for item in items if item["kind"] != "Pod"))
    assert run(urgent, one_list) == wanted
    assert run(urgent, *several) == wanted
    assert run(urgent, typed, others) == wanted
    assert run(urgent, write(tmp_path, "stream.json", *items)) == wanted
    assert run(urgent, "-", stdin=json.dumps(cluster())) == wanted
    assert run("-", DOCS / "cluster.yaml", stdin=urgent.read_text()) == wanted


def test_the_text_and_the_document_agree() -> None:
    text = run(DOCS / "urgent.yaml", DOCS / "cluster.yaml", words=())
    document = run(DOCS / "urgent.yaml", DOCS / "cluster.yaml").document
    for refused in document["refused"]:
        (line,) = [
            line
            for line in text.output.splitlines()
            if f"/{refused['name']} on {refused['node']} " in line
        ]
        assert refused["reason"] in line.split()
        assert line.endswith(refused["detail"])
    assert {refused["reason"] for refused in document["refused"]} == {
        "non-preemptible",
        "node-not-lent",
        "toleration",
    }
    assert document["nodes"] == {"gpu-3": "too-small"}


def test_node_limits_the_simulation_to_the_named_nodes() -> None:
    done = run(DOCS / "urgent.yaml", DOCS / "cluster.yaml", words=("-o", "json", "--node", "gpu-2"))
    assert done.best == ("gpu-2", {"ddp-0", "ddp-1"})
    assert {refused["name"] for refused in done.document["refused"]} == {"ledger-0"}
    unknown = run(DOCS / "urgent.yaml", DOCS / "cluster.yaml", words=("--node", "gpu-9"))
    assert (unknown.status, unknown.stderr) == (2, "reprieve: node/gpu-9: not found\n")


@pytest.mark.parametrize(
    ("home", "is_lent"), [("web", False), ("other", True)], ids=["its own", "another's"]
)
def test_a_service_on_a_node_that_a_taint_lends_is_no_more_protected_than_by_a_label(
    tmp_path: Path, home: str, *, is_lent: bool
) -> None:
    key = "reprieve.dev/home-namespace"
    found = cluster()
    (node,) = (item for item in found["items"] if item["metadata"]["name"] == "gpu-3")
    del node["metadata"]["labels"]
    node["spec"] = {"taints": [{"key": key, "value": home, "effect": "NoSchedule"}]}
    asking = preemptor()
    asking["spec"]["tolerations"] = [{"key": key, "operator": "Exists"}]
    done = run(write(tmp_path, "p.json", asking), write(tmp_path, "c.json", found))
    reasons = {refused["name"]: refused["reason"] for refused in done.document["refused"]}
    assert (reasons.get("front-0") != "node-not-lent") is is_lent


def test_a_pod_for_which_a_node_has_room_needs_no_victims(tmp_path: Path) -> None:
    small = preemptor(spec={"priority": 10000, "containers": []})
    done = run(write(tmp_path, "p.json", small), DOCS / "cluster.yaml", words=())
    assert done.status == 0
    assert "\nno victims are needed: node/gpu-1: it has room\n" in done.output


def test_a_pod_with_the_preemption_policy_never_has_no_victims(tmp_path: Path) -> None:
    never = preemptor()
    never["spec"]["preemptionPolicy"] = "Never"
    done = run(write(tmp_path, "p.json", never), DOCS / "cluster.yaml", words=())
    assert done.status == 1
    assert "\nno victims: never-preempts: " in done.output


def test_a_pod_that_its_quota_would_not_admit_has_no_victims(tmp_path: Path) -> None:
    """With min 4, used 4, a non-preemptible pod of 2 CPU evicts no pod."""
    of_quota = {
        "quota.scheduling.koordinator.sh/name": "gpu",
        "quota.scheduling.koordinator.sh/preemptible": "false",
    }

    def made(name: str, cpu: str, node: str | None, **labels: str) -> Json:
        requests = {"requests": {"cpu": cpu}}
        spec = {"priority": 0, "containers": [{"name": "main", "resources": requests}]}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "research", "uid": name, "labels": labels},
            "spec": {**spec, "nodeName": node} if node else {**spec, "priority": 10000},
            "status": {"phase": "Running" if node else "Pending"},
        }

    def quota(least: str, **status: Any) -> Json:
        return {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": "gpu", "namespace": "research"},
            "spec": {"min": {"cpu": least}, "max": {"cpu": "40"}},
            "status": status,
        }

    def node(name: str, cpu: str) -> Json:
        status = {"allocatable": {"cpu": cpu, "pods": "110"}}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": status,
        }

    def simulated(*objects: Json) -> Simulated:
        others = [node("one", "4"), node("two", "2"), made("kept", "4", "one", **of_quota)]
        others.append(made("low", "2", "two", **{"quota.scheduling.koordinator.sh/name": "gpu"}))
        dump = write(tmp_path, "c.json", *others, *objects)
        preempting = write(tmp_path, "p.json", made("urgent", "2", None, **of_quota))
        return run(preempting, dump, words=())

    refused = simulated(quota("4"))
    assert refused.status == 1
    assert (
        "\nno victims: quota-exceeded: the preemptor's ElasticQuota would not admit it, "
        "whatever its victims\n"
    ) in refused.output
    assert simulated(quota("6")).status == 0
    # Koordinator knows of more: the higher figure counts.
    assert simulated(quota("6", used={"cpu": "39"})).status == 0
    assert simulated(quota("6", used={"cpu": "41"})).status == 1


def test_the_rest_of_a_long_section_is_counted(tmp_path: Path) -> None:
    items = [item for item in cluster()["items"] if item["kind"] != "Pod"]
    pod = next(item for item in cluster()["items"] if item["metadata"]["name"] == "ledger-0")
    pods = [
        {**pod, "metadata": {**pod["metadata"], "name": f"p-{number}", "uid": str(number)}}
        for number in range(60)
    ]
    dump = write(tmp_path, "c.json", {"kind": "List", "apiVersion": "v1", "items": [*items, *pods]})
    done = run(DOCS / "urgent.yaml", dump, words=("--node", "gpu-2"))
    assert "  and 40 non-preemptible: --node selects nodes, -o json lists all" in done.output
    assert len(run(DOCS / "urgent.yaml", dump).document["refused"]) == 60


GANG = {"scheduling.x-k8s.io/pod-group": "g"}


def spec_requesting(cpu: str) -> Json:
    return {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]}


def mate(name: str, **labels: str) -> Json:
    return preemptor(metadata={"name": name, "namespace": "research", "labels": labels})


AS_A_UNIT = {"reprieve.dev/disruption-mode": "gang"}


def workload(
    kind: str, group: str, spec: Json, *, annotations: Json | None = None, **labels: str
) -> Json:
    template = {
        "metadata": {
            "labels": {"reprieve.dev/preemption-class": "7", **labels},
            "annotations": annotations or {},
        },
        "spec": preemptor()["spec"],
    }
    metadata = {"name": "w", "namespace": "research"}
    return {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": metadata,
        "spec": {**spec, "template": template},
    }


REQUESTED = {
    "a single pod": ([preemptor()], None, 0),
    "a gang's pods": ([mate("a", **GANG), mate("b", **GANG), mate("c", **GANG)], "g", 2),
    "a Job's pods preempt one by one": (
        [workload("Job", "batch", {"parallelism": 3, "activeDeadlineSeconds": 60})],
        None,
        0,
    ),
    "a Job that is evicted as a unit is a gang": (
        [workload("Job", "batch", {"parallelism": 3}, annotations=AS_A_UNIT)],
        "job/w",
        2,
    ),
    "a Job of one": ([workload("Job", "batch", {})], None, 0),
    "a Deployment's pods preempt one by one": (
        [workload("Deployment", "apps", {"replicas": 5})],
        None,
        0,
    ),
    "two pods of a gang": ([workload("StatefulSet", "apps", {"replicas": 5}, **GANG)], "g", 4),
    "a DaemonSet's pod": ([workload("DaemonSet", "apps", {})], None, 0),
    "a document that makes no pods is ignored": (
        [{"apiVersion": "v1", "kind": "Service"}, preemptor()],
        None,
        0,
    ),
}


@pytest.mark.parametrize(("documents", "gang", "rest"), REQUESTED.values(), ids=REQUESTED)
def test_the_preemptor_is_one_pod_or_one_gang(
    documents: list[Json], gang: str | None, rest: int, tmp_path: Path
) -> None:
    done = run(write(tmp_path, "p.yaml", *documents), DOCS / "cluster.yaml")
    found = done.document["preemptor"]
    assert (found["gang"], found["restOfGang"], found["priority"]) == (gang, rest, 10000)


def dump(*more: Any) -> Json:
    """Return the cluster of the docs with more objects."""
    return {"kind": "List", "apiVersion": "v1", "items": [*cluster()["items"], *more]}


def test_of_an_object_in_several_dumps_the_last_counts(tmp_path: Path) -> None:
    urgent, whole = DOCS / "urgent.yaml", DOCS / "cluster.yaml"
    pods = [item for item in cluster()["items"] if item["kind"] == "Pod"]
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "research"},
        "spec": {
            "selector": {
                "matchExpressions": [{"key": "reprieve.dev/preemption-class", "operator": "Exists"}]
            }
        },
        "status": {"disruptionsAllowed": 0},
    }
    once, again = (
        write(tmp_path, "once.json", budget, *pods),
        write(tmp_path, "again.json", *pods, budget),
    )
    assert run(urgent, whole, once, again) == run(urgent, whole, once)
    assert run(urgent, whole, whole) == run(urgent, whole)
    for pod in pods:
        del pod["metadata"]["uid"]
    unnamed = write(tmp_path, "unnamed.json", *pods)
    assert run(urgent, whole, unnamed).best == ("gpu-1", {"sweep-1"})
    later = [
        {**pod, "status": {"phase": "Succeeded"}}
        for pod in pods
        if pod["metadata"]["name"] == "sweep-0"
    ]
    done = run(urgent, whole, write(tmp_path, "later.json", *later))
    assert done.document["nodes"]["gpu-1"] == "has-room"


def made(
    name: str,
    kind: str = "Job",
    owner: str = "w",
    node: str = "",
    nominated: str = "",
    api_version: str = "",
    **metadata: Any,
) -> Json:
    """Return a pod that a workload has in the cluster: placed, nominated or pending."""
    found = preemptor(
        status={"phase": "Running"}
        if node
        else {"phase": "Pending", "nominatedNodeName": nominated}
    )
    reference = {
        "apiVersion": api_version or f"{KINDS[kind].group}/v1",
        "kind": kind,
        "name": owner,
        "uid": "its",
        "controller": True,
    }
    labels = {**found["metadata"]["labels"], **metadata.pop("labels", {})}
    if kind == "Job":
        labels["batch.kubernetes.io/job-name"] = owner
        metadata.setdefault("annotations", AS_A_UNIT)
    named = {"name": name, "uid": f"{name}-uid", "labels": labels, "ownerReferences": [reference]}
    found["metadata"] = {**found["metadata"], **named, **metadata}
    found["spec"] = {**found["spec"], **({"nodeName": node} if node else {})}
    return found


def three(kind: str, **labels: str) -> Json:
    group, field = ("batch", "parallelism") if kind == "Job" else ("apps", "replicas")
    return workload(kind, group, {field: 3}, annotations=AS_A_UNIT, **labels)


def replica(name: str, **labels: str) -> Json:
    return made(name, "ReplicaSet", "w-5d8", labels={**labels, "pod-template-hash": "5d8"})


THERE = {
    "none": ([three("Job")], [], "w-0", 2),
    "all are pending": ([three("Job")], [made("w-x"), made("w-y"), made("w-z")], "w-x", 2),
    "more are pending than the file has": (
        [three("Job")],
        [made(f"w-{number}") for number in "stuvwxyz"],
        "w-s",
        2,
    ),
    "a pod is scheduled already": (
        [three("Job")],
        [made("w-x", node="gpu-9"), made("w-y"), made("w-z")],
        "w-y",
        1,
    ),
    "a pod was evicted and is not replaced yet": (
        [three("Job")],
        [
            made("w-x", node="gpu-9", deletionTimestamp="2026-11-21T12:00:10Z"),
            made("w-y"),
            made("w-z"),
        ],
        "w-y",
        2,
    ),
    "a pod is nominated already": (
        [three("Job")],
        [made("w-x", nominated="gpu-1"), made("w-y"), made("w-z")],
        "w-y",
        1,
    ),
    "pods of another Job are pending": ([three("Job")], [made("v-x", owner="v")], "w-0", 2),
    "pods of another Job in its gang are pending": (
        [three("Job", **GANG)],
        [made("v-x", owner="v", labels=GANG)],
        "w-0",
        3,
    ),
    "pods of a Job of another project, of this name and in its gang, are pending": (
        [three("Job", **GANG)],
        [made("v-x", api_version="batch.volcano.sh/v1alpha1", labels=GANG)],
        "w-0",
        3,
    ),
    "pods of a Deployment are pending": (
        [three("Deployment", **GANG)],
        [replica("w-5d8-x", **GANG)],
        "w-5d8-x",
        2,
    ),
    "pods of a Deployment without a gang": ([three("Deployment")], [replica("w-5d8-x")], "w-0", 0),
    "pods of these names are pending": (
        [mate("a", **GANG), mate("b", **GANG)],
        [mate("a", **GANG), mate("c", **GANG)],
        "a",
        2,
    ),
}


@pytest.mark.parametrize(("requested", "there", "name", "rest"), THERE.values(), ids=THERE)
def test_pods_that_are_in_the_cluster_already_are_not_counted_twice(
    requested: list[Json], there: list[Json], name: str, rest: int, tmp_path: Path
) -> None:
    done = run(
        write(tmp_path, "p.json", *requested),
        DOCS / "cluster.yaml",
        write(tmp_path, "c.json", dump(*there)),
    )
    found = done.document["preemptor"]
    assert (found["name"], found["restOfGang"]) == (name, rest)


def grouped(own: int, **spec: Any) -> list[Json]:
    pod = preemptor()
    pod["spec"] = {**pod["spec"], "priority": own, "schedulingGroup": {"podGroupName": "g"}}
    metadata = {"name": "g", "namespace": "research"}
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": metadata,
            "spec": spec,
        },
        pod,
    ]


GROUPED = {
    "the priority of its group": (grouped(10000, priority=10000), ""),
    "the priority of its group's PriorityClass": (grouped(10000, priorityClassName="urgent"), ""),
    "another": (grouped(0, priority=10000), "Invalid value: 0: must be 10000, as in its PodGroup"),
    "a priority, in a group without one": (
        grouped(10000),
        "Invalid value: 10000: must be 0, as in its PodGroup",
    ),
}


@pytest.mark.parametrize(("documents", "message"), GROUPED.values(), ids=GROUPED)
def test_a_pod_whose_priority_is_not_its_native_groups_is_reported(
    documents: list[Json], message: str, tmp_path: Path
) -> None:
    done = run(write(tmp_path, "p.json", *documents), DOCS / "cluster.yaml")
    assert done.document["preemptor"]["priority"] == documents[1]["spec"]["priority"]
    rest = ": kube-scheduler places no pod of such a group\n"
    assert done.stderr == (
        f"pod research/urgent: spec.priority: {message}{rest}" if message else ""
    )


@pytest.mark.parametrize(
    ("defended_as", "lift", "has_victims"),
    [("", "10000", True), ("urgent", "10000", False), ("urgent", "0", True)],
)
def test_the_preemption_priority_of_a_native_group_protects_its_pods_where_that_is_allowed(
    defended_as: str, lift: str, tmp_path: Path, *, has_victims: bool
) -> None:
    annotations = {"reprieve.dev/preemption-priority-class": defended_as} if defended_as else {}
    found = cluster()
    pods = [item for item in found["items"] if item["kind"] == "Pod"]
    groups = [
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": namespace, "annotations": annotations},
            "spec": {},
        }
        for namespace in {pod["metadata"]["namespace"] for pod in pods}
    ]
    for pod in pods:
        pod["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    policy = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "reprieve-policy", "namespace": "reprieve-system"},
        "data": {"maxPreemptionPriorityLift": lift},
    }
    found["items"] += [*groups, policy]
    done = run(DOCS / "urgent.yaml", write(tmp_path, "c.json", found))
    assert bool(done.document["candidates"]) is has_victims


PLACED = preemptor(status={"phase": "Running"})
PLACED["spec"] = {**PLACED["spec"], "nodeName": "gpu-1"}
UNKNOWN_CLASS = preemptor(spec={"priorityClassName": "missing"})
REFUSED = {
    "two pods without a gang": (
        [preemptor(), mate("b")],
        "2 preemptors, the first is Pod research/urgent: must be one pod, or the pods of one gang",
    ),
    "two gangs": (
        [mate("a", **GANG), workload("Job", "batch", {})],
        "2 preemptors, the first is Pod research/a",
    ),
    "a pod that has a node": (
        [PLACED],
        "pod research/urgent: is already placed on a node, or has ended",
    ),
    "an object that creates no pods": (
        [{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}],
        "Service default/s makes no pods: must be a Pod, or",
    ),
    "an empty file": (
        [],
        "must be a Pod, or a workload that makes pods, like ReplicationController, Deployment",
    ),
    "a namesake's Job": ([workload("Job", "batch.volcano.sh", {})], "Job research/w makes no pods"),
    "a Job that is paused": (
        [workload("Job", "batch", {"parallelism": 0})],
        "Job research/w: makes 0 pods at once: must be between 1 and 5000",
    ),
    "more pods than a gang may have": (
        [workload("Job", "batch", {"parallelism": 10**9})],
        "makes 1000000000 pods at once",
    ),
    "a PriorityClass that does not exist": (
        [UNKNOWN_CLASS],
        'pod research/urgent: spec.priorityClassName: Not found: "missing"',
    ),
    "a Job whose pods are placed": (
        [three("Job")],
        "Job research/w: all its pods are already placed on nodes",
    ),
    "a priority that is not a number": (
        [preemptor(spec={"priority": "high"})],
        "Pod research/urgent: Expected `int | null`, got `str` - at `$.spec.priority`",
    ),
    "a request that is no quantity": (
        [preemptor(spec=spec_requesting("60x"))],
        (
            "pod research/urgent: spec.containers[0].resources.requests[cpu]: "
            'Invalid value: "60x": must be a quantity, like "2", "500m" or "1.5Gi"'
        ),
    ),
    "a class that is none": (
        [mate("urgent", **{"reprieve.dev/preemption-class": "six"})],
        (
            "pod research/urgent: metadata.labels[reprieve.dev/preemption-class]: "
            'Invalid value: "six": must be between 0 and 10, in plain digits'
        ),
    ),
    "a workload without a template": (
        [{**workload("Job", "batch", {}), "spec": {"parallelism": 2}}],
        "Job research/w: spec.template: Required value",
    ),
    "not an object": ([["a"]], "not a Kubernetes object: needs apiVersion and kind"),
}


@pytest.mark.parametrize(("documents", "message"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_preemptor_is_refused_in_one_sentence(
    documents: list[Any], message: str, tmp_path: Path
) -> None:
    there = write(tmp_path, "c.json", *(made(f"w-{number}", node="gpu-9") for number in range(3)))
    done = run(write(tmp_path, "p.yaml", *documents), DOCS / "cluster.yaml", there)
    assert (done.status, done.output) == (2, "")
    assert done.stderr.startswith("reprieve: ")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    ["{", '{"a":', "a: [", "\x00", "- b\n- a: {", "[" * 100_000, '{"kind":"List","items":5}'],
)
def test_a_file_that_cannot_be_read_is_refused_in_one_sentence(text: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text(text)
    done = run(broken, DOCS / "cluster.yaml")
    assert (done.status, len(done.stderr.splitlines())) == (2, 1)
    done = run(DOCS / "urgent.yaml", broken)
    assert (done.status, done.output) == (2, "")
    assert done.stderr.startswith(f"unreadable: {broken}")
    assert done.stderr.splitlines()[-1] == (
        "reprieve: no nodes: the cluster or the dump has none, or they could not be read"
    )
    done = run(DOCS / "urgent.yaml", tmp_path / "nowhere")
    assert f"unreadable: {tmp_path}/nowhere: no such file or directory" in done.stderr


def test_unreadable_objects_of_a_dump_are_reported_and_the_rest_is_evaluated(
    tmp_path: Path,
) -> None:
    whole = cluster()
    whole["items"] += [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 5}},
        "a word",
        {"apiVersion": "v1", "kind": "Secret", "metadata": "anything"},
    ]
    done = run(DOCS / "urgent.yaml", write(tmp_path, "c.json", whole))
    assert done.status == 2
    assert done.best == ("gpu-1", {"sweep-1"})
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(
        f"unreadable: {tmp_path}/c.json: items.17: Expected `object`, got `str`"
    )
    assert lines[1].startswith(
        f"unreadable: {tmp_path}/c.json: items.16: Pod: Expected `str | null`, got `int`"
    )


def test_very_deep_objects_of_a_dump_are_read(tmp_path: Path) -> None:
    whole = cluster()
    wanted = run(DOCS / "urgent.yaml", write(tmp_path, "shallow.json", whole))
    whole["items"] = [deep_json.deepened(each) for each in whole["items"]]
    dumped = tmp_path / "deep.json"
    dumped.write_text(deep_json.dumps(whole))
    assert run(DOCS / "urgent.yaml", dumped) == wanted
    alone = [tmp_path / f"{number}.json" for number in range(len(whole["items"]))]
    for file, item in zip(alone, whole["items"], strict=True):
        file.write_text(deep_json.dumps(item))
    assert run(DOCS / "urgent.yaml", *alone) == wanted


@pytest.mark.parametrize("levels", [600, 100_000])
def test_a_very_deep_preemptor_is_simulated_or_refused_in_one_sentence(
    levels: int, tmp_path: Path
) -> None:
    pod = preemptor()
    pod["metadata"]["managedFields"] = "DEEP"
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod).replace('"DEEP"', "[" * levels + "]" * levels))
    done = run(file, DOCS / "cluster.yaml")
    if levels == 600:
        assert (done.status, done.stderr) == (0, "")
    else:
        assert (done.status, done.stderr) == (2, f"reprieve: {file}: line 1: nested too deeply\n")


def test_required_kinds_that_a_dump_lacks_are_reported(tmp_path: Path) -> None:
    bare = [item for item in cluster()["items"] if item["kind"] in ("Node", "Pod")]
    done = run(write(tmp_path, "p.json", preemptor()), write(tmp_path, "c.yaml", *bare))
    assert done.status in (0, 1)
    assert [line.split(" in ")[0] for line in done.stderr.splitlines()] == [
        "no Namespace",
        "no PriorityClass",
    ]


def test_objects_that_pods_name_and_a_dump_lacks_are_reported_once_for_each_kind(
    tmp_path: Path,
) -> None:
    def missing(requested: Json, *more: Json) -> list[str]:
        lines = run(
            write(tmp_path, "p.json", requested), write(tmp_path, "c.json", dump(*more))
        ).stderr.splitlines()
        return [line.replace(f"{tmp_path}/", "") for line in lines]

    def naming(name: str, group: str, quota: str) -> Json:
        found = made(name, node="gpu-1", labels={"quota.scheduling.koordinator.sh/name": quota})
        return {**found, "spec": {**found["spec"], "schedulingGroup": {"podGroupName": group}}}

    metadata = {"name": "g", "namespace": "research"}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata}
    quota = {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": metadata,
    }
    no_quota = "no ElasticQuota like q in c.json: pods that name one are evaluated without it"
    no_group = (
        "no PodGroup like research/h in c.json: pods that name one are evicted one by one, "
        "by their own priority"
    )
    known, unknown = naming("a", "g", "g"), [naming("b", "h", "q"), naming("c", "i", "r")]
    assert missing(preemptor()) == []
    assert missing(preemptor(), known, group, quota) == []
    assert missing(preemptor(), known, *unknown, group, quota) == [no_quota, no_group]
    of_group = preemptor(spec={**preemptor()["spec"], "schedulingGroup": {"podGroupName": "h"}})
    assert missing(of_group, group) == [no_group]


def test_large_yaml_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_BYTES", 1024)
    done = run(DOCS / "urgent.yaml", DOCS / "cluster.yaml")
    assert (
        "cluster.yaml: larger than 0 MiB, and not a single list in JSON: use kubectl's -o json"
        in done.stderr
    )
    assert (
        run(write(tmp_path, "p.json", preemptor()), write(tmp_path, "c.json", cluster())).status
        == 0
    )


def test_an_invalid_time_is_bad_usage() -> None:
    done = run(DOCS / "urgent.yaml", DOCS / "cluster.yaml", words=("--at", "yesterday"))
    assert done.status == 2
    assert "must be RFC 3339, like 2026-11-21T12:00:00Z" in done.stderr


def test_control_characters_in_names_of_a_dump_are_escaped(tmp_path: Path) -> None:
    hostile = json.loads(
        json.dumps(cluster()).replace("gpu-3", "\\u001b[2Jgpu").replace("ledger-0", "\\u202eledger")
    )
    text = run(DOCS / "gang.yaml", write(tmp_path, "c.json", hostile), words=()).output
    assert is_showable(text.replace("\n", " "))
    assert "ledger" in text


def test_a_long_read_shows_its_progress_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(progress, "_QUIET_SECONDS", -1.0)
    monkeypatch.setenv("TERM", "xterm")
    for stream, is_shown in ((Terminal(), True), (io.StringIO(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.ProgressCounter("objects read") as counter:
            counter.count(99)
            counter.count(2)
            counter.count(100)
        assert ("201 objects read" in stream.getvalue()) == is_shown


def with_class_priorities(setting: str, *more: Json) -> Json:
    """Return the cluster's dump with the PriorityClasses of classes 4 and 7, 204 and 207."""
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"reprieve-class-{value}"},
            "value": 200 + value,
        }
        for value in (4, 7)
    ]
    policy = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "reprieve-policy", "namespace": "reprieve-system"},
        "data": {"classPriorities": setting},
    }
    return {**cluster(), "items": [*cluster()["items"], *classes, policy, *more]}


OFF_IN_RESEARCH = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "research", "labels": {"reprieve.dev/enforcement": "off"}},
}
GIVEN_PRIORITIES: dict[str, tuple[str, list[Json], str, int]] = {
    "the class gives the priority": ("warn", [], "", 0),
    "the PriorityClass that the pod names counts": ("warn", [], "low", 1),
    "a class gives nothing where the setting is off": ("off", [], "", 1),
    "a class gives nothing where enforcement is off": ("warn", [OFF_IN_RESEARCH], "", 1),
}


@pytest.mark.parametrize("sentence", GIVEN_PRIORITIES)
def test_a_pod_of_a_manifest_has_the_priority_that_admission_would_give(
    sentence: str, tmp_path: Path
) -> None:
    setting, more, named, status = GIVEN_PRIORITIES[sentence]
    requested = preemptor()
    del requested["spec"]["priority"]
    if named:
        requested["spec"]["priorityClassName"] = named
    dump = write(tmp_path, "c.json", with_class_priorities(setting, *more))
    assert run(write(tmp_path, "p.json", requested), dump).status == status
