"""What a pod requests, and how many pods a workload has at once."""

from collections import Counter

import pytest

from reprieve_policy.kube import pod_requests
from reprieve_policy.kube.limits import quota
from reprieve_policy.kube.objects import (
    Container,
    JobTemplate,
    NameOnly,
    Quantities,
    Resource,
    ResourceRequirements,
    Spec,
)
from reprieve_policy.kube.values.quantity import NANOS


def a_container(
    cpu: Quantities | str, *, is_sidecar: bool = False, limit: str | None = None
) -> Container:
    requests = {"cpu": cpu} if isinstance(cpu, str) else cpu
    limits = {"cpu": limit} if limit else None
    return Container(
        resources=ResourceRequirements(requests=requests, limits=limits),
        restartPolicy="Always" if is_sidecar else None,
    )


PODS = {
    "nothing": (Spec(), 0),
    "containers without requests": (
        Spec(containers=(Container(), Container(resources=ResourceRequirements()))),
        0,
    ),
    "the sum of the containers": (Spec(containers=(a_container("1"), a_container("500m"))), 1500),
    "an init container that asks for less than they do": (
        Spec(containers=(a_container("2"),), initContainers=(a_container("1"),)),
        2000,
    ),
    "an init container that asks for more": (
        Spec(containers=(a_container("2"),), initContainers=(a_container("3"), a_container("1"))),
        3000,
    ),
    "sidecars beside the containers": (
        Spec(containers=(a_container("2"),), initContainers=(a_container("1", is_sidecar=True),)),
        3000,
    ),
    "sidecars beside later init containers": (
        Spec(
            containers=(a_container("1"),),
            initContainers=(a_container("4"), a_container("1", is_sidecar=True), a_container("4")),
        ),
        5000,
    ),
    "a limit without a request, as a GPU is often written": (
        Spec(containers=(a_container({}, limit="8"),)),
        8000,
    ),
    "a request before a limit": (Spec(containers=(a_container("1", limit="8"),)), 1000),
    "requests of the pod as a whole": (
        Spec(containers=(a_container("1"),), resources=ResourceRequirements(requests={"cpu": "3"})),
        3000,
    ),
    "the pod's overhead is added": (
        Spec(containers=(a_container("1"),), overhead={"cpu": "250m"}),
        1250,
    ),
    "an unreadable request counts as zero": (Spec(containers=(a_container("many"),)), 0),
}


@pytest.mark.parametrize(("spec", "millis"), PODS.values(), ids=PODS)
def test_the_requests_of_a_pod(spec: Spec, millis: int) -> None:
    assert pod_requests.of_pod(spec).get("cpu", 0) == millis * NANOS // 1000


def test_each_resource_is_added_up_by_itself() -> None:
    amounts = pod_requests.of_pod(
        Spec(
            containers=(a_container({"cpu": "1", "nvidia.com/gpu": 2}),),
            initContainers=(a_container({"memory": "1Ki"}),),
        )
    )
    assert amounts == {"cpu": NANOS, "nvidia.com/gpu": 2 * NANOS, "memory": 1024 * NANOS}


WORKLOADS = {
    "a pod is no workload": (Resource(kind="Pod", spec=Spec()), None),
    "a Job is its parallelism": (Resource(kind="Job", spec=Spec(parallelism=4)), 4),
    "a Job creates no more pods than its completions": (
        Resource(kind="Job", spec=Spec(parallelism=4, completions=3)),
        3,
    ),
    "a Job has one by default": (Resource(kind="Job", spec=Spec()), 1),
    "a Job may be held back": (Resource(kind="Job", spec=Spec(parallelism=0)), 0),
    "a CronJob is each of its Jobs": (
        Resource(kind="CronJob", spec=Spec(jobTemplate=JobTemplate(spec=Spec(parallelism=5)))),
        5,
    ),
    "a CronJob without any is one": (Resource(kind="CronJob", spec=Spec()), 1),
    "a CronJob with an empty one is one": (
        Resource(kind="CronJob", spec=Spec(jobTemplate=JobTemplate())),
        1,
    ),
    "a Deployment is its replicas": (Resource(kind="Deployment", spec=Spec(replicas=7)), 7),
    "a Deployment has one by default": (Resource(kind="Deployment", spec=Spec()), 1),
    "a Deployment may be scaled to nothing": (
        Resource(kind="Deployment", spec=Spec(replicas=0)),
        0,
    ),
    "a negative number of replicas counts as zero": (
        Resource(kind="StatefulSet", spec=Spec(replicas=-3)),
        0,
    ),
    "a DaemonSet's number depends on the nodes": (Resource(kind="DaemonSet", spec=Spec()), None),
    "an object without a spec is one": (Resource(kind="Deployment"), 1),
}


VERY_MANY = {f"example.com/{number}": "1" for number in range(quota.MAX_ENTRIES + 1)}
HALF, OTHER_HALF = dict(list(VERY_MANY.items())[:600]), dict(list(VERY_MANY.items())[600:])
READ_WHOLE = {
    "nothing": (Spec(), True),
    "as many as are read": (
        Spec(containers=(a_container(HALF),), initContainers=(a_container(OTHER_HALF),)),
        True,
    ),
    "more in a container": (Spec(containers=(a_container(VERY_MANY),)), False),
    "more in an init container": (Spec(initContainers=(a_container(VERY_MANY),)), False),
    "more in requests and limits together": (
        Spec(
            containers=(
                Container(resources=ResourceRequirements(requests=HALF, limits=OTHER_HALF)),
            )
        ),
        False,
    ),
    "more in the pod as a whole": (Spec(resources=ResourceRequirements(limits=VERY_MANY)), False),
    "more in its overhead": (Spec(overhead=VERY_MANY), False),
    "devices of a ResourceClaim": (Spec(resourceClaims=(NameOnly(name="gpus"),)), False),
}


@pytest.mark.parametrize(("spec", "is_whole"), READ_WHOLE.values(), ids=READ_WHOLE)
def test_whether_the_amounts_are_all_that_a_pod_requests(spec: Spec, *, is_whole: bool) -> None:
    assert pod_requests.is_read_whole(spec) is is_whole


@pytest.mark.parametrize(("resource", "pods"), WORKLOADS.values(), ids=WORKLOADS)
def test_the_number_of_pods_of_a_workload(resource: Resource, pods: int | None) -> None:
    assert pod_requests.pods_of(resource) == pods


def test_the_time_of_many_init_containers_does_not_grow_with_what_sidecars_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without this, one pod of 1.5 MB would take seconds."""
    sums: list[int] = []
    add = pod_requests.Counter.__add__

    def counted(one: Counter[str], other: Counter[str]) -> Counter[str]:
        sums.append(len(one) + len(other))
        return add(one, other)

    monkeypatch.setattr(pod_requests.Counter, "__add__", counted)
    sidecar = a_container({f"a/{number}": "1" for number in range(1000)}, is_sidecar=True)
    spec = Spec(initContainers=(sidecar, *(a_container("1") for _ in range(100))))
    assert len(pod_requests.of_pod(spec)) == 1001
    assert sum(sums) < 5000


def test_entries_are_containers_and_what_they_request() -> None:
    both = Spec(containers=(a_container("1", limit="2"), Container()), overhead={"cpu": "1"})
    assert pod_requests.count_entries(both) == 6
