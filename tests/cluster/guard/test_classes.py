"""`classPriorities` on an unmodified scheduler and API server: classes drive preemption."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.guard.guarded_cluster import (
    GuardedCluster,
    a_pod,
    a_priority_class,
    guarded_cluster,
)
from reprieve_testing.manifests import MANIFESTS

pytestmark = pytest.mark.cluster

SHIPPED = MANIFESTS / "components" / "class-priorities" / "priorityclasses.yaml"
NODE = "kwok-0"


@pytest.fixture(scope="module")
def ours() -> Iterator[GuardedCluster]:
    with guarded_cluster("test-guard-classes") as cluster:
        cluster.set_capacity(NODE, 1)
        cluster.kubectl.read("apply", "-f", str(SHIPPED))
        cluster.set_policy(classPriorities="refuse")
        yield cluster


@pytest.fixture
def team(ours: GuardedCluster) -> Iterator[str]:
    """A Namespace that allows the classes 0 to 9, once the webhooks know that."""
    with ours.namespace("classes") as name:
        ours.kubectl.read("annotate", "namespace", name, f"{keys.ALLOWED_PREEMPTION_CLASSES}=0-9")
        wait_given(ours, name, 9, ("reprieve-class-9", 5000, "PreemptLowerPriority"))
        yield name


def of_class(value: int) -> dict[str, str]:
    return {keys.PREEMPTION_CLASS: str(value)}


def given(pod: Any) -> tuple[Any, Any, Any]:
    spec = pod["spec"]
    return spec.get("priorityClassName"), spec["priority"], spec["preemptionPolicy"]


def wait_given(ours: GuardedCluster, team: str, value: int, wanted: tuple[str, int, str]) -> None:
    """Wait until the API server gives a new pod of a class this priority."""
    pod = json.dumps(a_pod("tried", labels=of_class(value)))

    def is_given() -> bool:
        words = ("create", "--dry-run=server", "-o", "json", "-n", team, "-f", "-")
        done = ours.kubectl.run(*words, stdin=pod)
        return done.status == 0 and given(json.loads(done.stdout)) == wanted

    wait_for(f"class {value} gives {wanted}", is_given)


def a_job(name: str, value: int) -> Any:
    """Return a Job of one pod on the node, which states a class and no PriorityClass."""
    spec = a_pod(name, slots=1, node=NODE)["spec"] | {"restartPolicy": "Never"}
    template = {"metadata": {"labels": of_class(value)}, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": template},
    }


def test_a_job_of_class_9_without_a_priority_displaces_a_pod_of_class_2(
    ours: GuardedCluster, team: str
) -> None:
    ours.create(team, a_pod("sweep", slots=1, node=NODE, labels=of_class(2)))
    ours.running(team, "sweep")
    sweep = ours.pod(team, "sweep")
    assert sweep is not None
    assert given(sweep) == ("reprieve-class-2", -4, "PreemptLowerPriority")
    ours.create(team, a_job("urgent", 9))
    ours.wait_gone(team, "sweep")

    def placed() -> Any | None:
        selector = ("-l", "batch.kubernetes.io/job-name=urgent")
        pods = ours.kubectl.get("pods", "-n", team, *selector)["items"]
        return next((pod for pod in pods if pod["spec"].get("nodeName") == NODE), None)

    pod = wait_for("the job's pod is placed", placed)
    assert given(pod) == ("reprieve-class-9", 5000, "PreemptLowerPriority")


def test_the_api_server_agrees_where_it_has_written_the_global_default_before(
    ours: GuardedCluster, team: str
) -> None:
    default = a_priority_class("standard", 7) | {
        "globalDefault": True,
        "preemptionPolicy": "Never",
    }
    ours.create(team, default)
    try:
        # No webhook is called there.
        wait_given(ours, "kube-system", 8, ("standard", 7, "Never"))
        wait_given(ours, team, 8, ("reprieve-class-8", 4000, "PreemptLowerPriority"))
        ours.create(team, a_pod("given", labels=of_class(8)))
        pod = ours.pod(team, "given")
        assert pod is not None
        assert given(pod) == ("reprieve-class-8", 4000, "PreemptLowerPriority")
    finally:
        ours.kubectl.read("delete", "priorityclass", "standard")


def test_the_api_server_agrees_with_a_priority_class_that_never_preempts(
    ours: GuardedCluster, team: str
) -> None:
    ours.kubectl.read("delete", "priorityclass", "reprieve-class-7")
    ours.create(team, a_priority_class("reprieve-class-7", 3500) | {"preemptionPolicy": "Never"})
    wait_given(ours, team, 7, ("reprieve-class-7", 3500, "Never"))


def test_a_priority_that_contradicts_the_class_is_refused(ours: GuardedCluster, team: str) -> None:
    ours.create(team, a_priority_class("own", 10))
    job = a_job("contradiction", 9)
    job["spec"]["template"]["spec"]["priorityClassName"] = "own"
    refusal = 'priorityClassName: Invalid value: "own": its value 10 does not fit class 9'

    def is_refused() -> bool:
        words = ("create", "--dry-run=server", "-n", team, "-f", "-")
        return refusal in ours.kubectl.run(*words, stdin=json.dumps(job)).stderr

    wait_for("it is refused", is_refused)
