"""`reprieve explain` of a pod whose native PodGroup states what it is defended with."""

import json
from pathlib import Path
from typing import Any

import pytest

from reprieve_cli.commands import explain
from reprieve_policy import keys
from reprieve_testing.servers import deep_json
from reprieve_testing.servers.stub_api import stub_api

PODS = "/api/v1/namespaces/team/pods"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/team/podgroups"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
POD = {
    "metadata": {"name": "a", "namespace": "team", "uid": "a"},
    "spec": {"priority": 10, "schedulingGroup": {"podGroupName": "train"}},
    "status": {"phase": "Running"},
}
LIFTING = {
    "metadata": {"name": "reprieve-policy", "namespace": "reprieve-system"},
    "data": {"maxPreemptionPriorityLift": "5000"},
}
STATED = {keys.PREEMPTION_PRIORITY_CLASS: "urgent", keys.DISRUPTION_MODE: "gang"}


async def explained(folder: Path, capsys: pytest.CaptureFixture[str], **group: Any) -> Any:
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 5000}
    collections = {
        PODS: {"a": POD},
        GROUPS: {"train": {"metadata": {"name": "train", "namespace": "team"} | group}},
        CLASSES: {"urgent": urgent | {"metadata": {"name": "urgent"}}},
        "/api/v1/namespaces": {"team": {"kind": "Namespace", "metadata": {"name": "team"}}},
        "/api/v1/namespaces/reprieve-system/configmaps": {"reprieve-policy": LIFTING},
    }
    async with stub_api(folder, collections=collections) as (stub, api):
        stub.lists_released.set()
        assert await explain._explain(api, namespace="team", subject="a", is_json=True) == 0
    return json.loads(capsys.readouterr().out)


async def test_what_its_native_group_states_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = await explained(tmp_path, capsys, annotations=STATED)
    assert found["preemptionPriority"] == 5000
    assert any("is evicted as a unit" in step for step in found["steps"])


async def test_without_it_the_defaults_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = await explained(tmp_path, capsys)
    assert found["preemptionPriority"] == 0
    assert not any("is evicted as a unit" in step for step in found["steps"])


@pytest.mark.parametrize(
    ("home", "reason"), [("other", None), ("team", "node-not-lent")], ids=["another's", "its own"]
)
async def test_a_service_on_a_node_that_a_taint_lends_may_be_preempted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], home: str, reason: str | None
) -> None:
    pod = {**POD, "spec": {"priority": 10, "nodeName": "n"}}
    services = {"name": "team", "annotations": {keys.WORKLOAD_TYPE: "service"}}
    taint = {"key": keys.HOME_NAMESPACE, "value": home, "effect": "NoSchedule"}
    collections = {
        PODS: {"a": pod},
        CLASSES: {},
        "/api/v1/namespaces": {"team": {"kind": "Namespace", "metadata": services}},
        "/api/v1/namespaces/reprieve-system/configmaps": {},
        "/api/v1/nodes": {"n": {"metadata": {"name": "n"}, "spec": {"taints": [taint]}}},
    }
    async with stub_api(tmp_path, collections=collections) as (stub, api):
        stub.lists_released.set()
        assert await explain._explain(api, namespace="team", subject="a", is_json=True) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found.get("protected") or {}).get("reason") == reason


QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"
KEPT = {keys.QUOTA_NAME: "gpu", keys.PREEMPTIBLE: "false"}


def a_pod_of_quota(name: str, cpu: str, **fields: Any) -> Any:
    containers = [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]
    return {
        "metadata": {"name": name, "namespace": "team", "uid": name, "labels": KEPT},
        "spec": {"priority": 10, "containers": containers, **fields},
        "status": {"phase": "Running" if fields else "Pending"},
    }


async def pending(
    folder: Path, capsys: pytest.CaptureFixture[str], *quotas: Any, is_json: bool
) -> tuple[str, int]:
    """Return the explanation of a pending pod of 2 CPU, and how often all pods were read."""
    pods = {
        "high": a_pod_of_quota("high", "2"),
        "low": a_pod_of_quota("low", "4", nodeName="node"),
    }
    collections = {
        PODS: pods,
        "/api/v1/pods": pods,
        QUOTAS: {quota["metadata"]["name"]: quota for quota in quotas},
        CLASSES: {},
        "/api/v1/namespaces": {"team": {"kind": "Namespace", "metadata": {"name": "team"}}},
        "/api/v1/namespaces/reprieve-system/configmaps": {},
    }
    async with stub_api(folder, collections=collections) as (stub, api):
        stub.lists_released.set()
        if not quotas:
            stub.absent.add(QUOTAS)
        assert await explain._explain(api, namespace="team", subject="high", is_json=is_json) == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        return printed.out, stub.calls["/api/v1/pods"]


def a_quota(least: str) -> Any:
    return {
        "metadata": {"name": "gpu", "namespace": "team"},
        "spec": {"min": {"cpu": least}, "max": {"cpu": "40"}},
    }


REFUSED = "quota-exceeded: the preemptor's ElasticQuota would not admit it, whatever its victims"


async def test_a_pending_pod_that_its_quota_would_not_admit_takes_no_victims(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text, _ = await pending(tmp_path, capsys, a_quota("4"), is_json=False)
    assert f"\nas a preemptor:\n  it takes no victims: {REFUSED}\n" in text
    document, _ = await pending(tmp_path, capsys, a_quota("4"), is_json=True)
    reason, _, detail = REFUSED.partition(": ")
    assert json.loads(document)["takesNoVictims"] == {"reason": reason, "detail": detail}
    document, _ = await pending(tmp_path, capsys, a_quota("6"), is_json=True)
    assert "takesNoVictims" not in json.loads(document)


async def test_where_no_quotas_are_served_no_other_pods_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document, lists = await pending(tmp_path, capsys, is_json=True)
    assert ("takesNoVictims" in json.loads(document), lists) == (False, 0)


GANG = {keys.POD_GROUP: "g"}
JOB = {
    "metadata": {"name": "train", "namespace": "team", "uid": "train"},
    "spec": {"selector": {"matchLabels": {"app": "train"}}},
}


def a_gang_pod(name: str) -> Any:
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "train"}
    metadata = {"name": name, "namespace": "team", "uid": name}
    return {
        "metadata": metadata | {"labels": GANG, "ownerReferences": [owner | {"controller": True}]},
        "spec": {"priority": 10, "nodeName": "n"},
        "status": {"phase": "Running"},
    }


OF_THE_CLUSTER: Any = {
    CLASSES: {},
    "/api/v1/namespaces": {"team": {"kind": "Namespace", "metadata": {"name": "team"}}},
    "/api/v1/namespaces/reprieve-system/configmaps": {},
    "/api/v1/nodes": {"n": {"metadata": {"name": "n"}}},
}


async def test_the_pods_of_a_gang_are_listed_once_whatever_their_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collections = {
        PODS: {name: a_gang_pod(name) for name in ("a", "b", "c", "d")},
        "/apis/batch/v1/namespaces/team/jobs": {"train": JOB},
        **OF_THE_CLUSTER,
    }
    async with stub_api(tmp_path, collections=collections) as (stub, api):
        stub.lists_released.set()
        assert await explain._explain(api, namespace="team", subject="job/train", is_json=True) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["pod"] for each in found] == ["a", "b", "c", "d"]
    # The Job's own pods, and all of the namespace for the members of the gang.
    assert stub.calls[PODS] == 2


async def test_only_the_jobs_of_the_gang_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def of_job(pod: Any, job: str) -> Any:
        (owner,) = pod["metadata"]["ownerReferences"]
        metadata = {"labels": GANG, **pod["metadata"], "ownerReferences": [owner | {"name": job}]}
        return {**pod, "metadata": metadata}

    gang = [of_job(a_gang_pod(name), f"train-{name}") for name in ("a", "b")]
    others = [of_job(a_gang_pod(f"other-{n}"), f"other-{n}") for n in range(3)]
    for number, other in enumerate(others):
        other["metadata"]["labels"] = {keys.POD_GROUP: "h"} if number else {}
    jobs = "/apis/batch/v1/namespaces/team/jobs"
    collections = {
        PODS: {pod["metadata"]["name"]: pod for pod in (*gang, *others)},
        jobs: {f"train-{name}": JOB for name in ("a", "b")},
        **OF_THE_CLUSTER,
    }
    async with stub_api(tmp_path, collections=collections) as (stub, api):
        stub.lists_released.set()
        assert await explain._explain(api, namespace="team", subject="a", is_json=True) == 0
    assert json.loads(capsys.readouterr().out)["pod"] == "a"
    assert {path for path in stub.calls if path.startswith(jobs)} == {
        f"{jobs}/train-a",
        f"{jobs}/train-b",
    }


async def test_a_very_deep_quota_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quota = deep_json.deepened(a_quota("4"))
    text, _ = await pending(tmp_path, capsys, quota, is_json=False)
    assert f"it takes no victims: {REFUSED}\n" in text
