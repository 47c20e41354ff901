"""Which owner holds the ledger that a replacement inherits."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from reprieve_policy.kube import owners
from reprieve_policy.kube.objects import ObjectMeta, OwnerReference
from reprieve_runtime import lineage

GROUPS = {
    "Job": "batch/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "Deployment": "apps/v1",
    "CronJob": "batch/v1",
    "Pod": "v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
}


def a_reference(kind: str, name: str = "it", api_version: str | None = None) -> OwnerReference:
    group = GROUPS[kind] if api_version is None else api_version
    return OwnerReference(
        apiVersion=group, kind=kind, name=name, uid=f"{kind}-{name}", controller=True
    )


LEDGER_OWNERS = {
    "a Job": (a_reference("Job"), "jobs"),
    "a Job of another version": (a_reference("Job", api_version="batch/v2"), "jobs"),
    "Volcano's Job": (a_reference("Job", api_version="batch.volcano.sh/v1alpha1"), None),
    "a Job of the core group": (a_reference("Job", api_version="v1"), None),
    "a StatefulSet": (a_reference("StatefulSet"), "statefulsets"),
    "a JobSet": (a_reference("JobSet"), "jobsets"),
    "a pod": (a_reference("Pod"), None),
    "a Deployment": (a_reference("Deployment"), None),
    "no owner": (None, None),
    "a uid of any length": (replace(a_reference("Job"), uid="x" * 129), None),
    "a version of any length": (a_reference("Job", api_version="batch/" + "x" * 400), None),
    "a name of any length": (a_reference("Job", "x" * 254), None),
}


@pytest.mark.parametrize(("reference", "resource"), LEDGER_OWNERS.values(), ids=LEDGER_OWNERS)
def test_which_kinds_have_a_ledger(reference: OwnerReference | None, resource: str | None) -> None:
    row = owners.ledger_kind_of(reference)
    assert (row.resource if row else None) == resource


@dataclass
class Cluster:
    """Objects by resource and name, and the requests for them."""

    controllers: Mapping[tuple[str, str], OwnerReference | None]
    uids: Mapping[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def look_up(self, resource: str, name: str) -> ObjectMeta | None:
        self.asked.append(f"{resource}/{name}")
        if (resource, name) not in self.controllers:
            return None
        controller = self.controllers[resource, name]
        kinds = {"jobs": "Job", "statefulsets": "StatefulSet", "pods": "Pod"}
        uid = self.uids.get(name, f"{kinds[resource]}-{name}")
        return ObjectMeta(name=name, uid=uid, ownerReferences=(controller,) if controller else None)

    def whole_of(self, reference: OwnerReference) -> OwnerReference | None:
        return asyncio.run(lineage.find_root_owner(reference, self.look_up))


LWS = a_reference("LeaderWorkerSet", "lws")
LEADERS = a_reference("StatefulSet", "lws")
WORKERS = a_reference("StatefulSet", "lws-0")
OF_A_LEADER_WORKER_SET: Mapping[tuple[str, str], OwnerReference | None] = {
    ("statefulsets", "lws-0"): a_reference("Pod", "lws-0"),
    ("pods", "lws-0"): LEADERS,
    ("statefulsets", "lws"): LWS,
}
JOB, JOB_SET = a_reference("Job", "set-a-0"), a_reference("JobSet", "set")


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pod's controller, the objects above it, and the workload it is a part of."""

    of: OwnerReference
    among: Mapping[tuple[str, str], OwnerReference | None]
    want: OwnerReference | None = None
    looks: int = 1


WHOLES = {
    "a Job of a JobSet is a part of it": Case(
        of=JOB, among={("jobs", "set-a-0"): JOB_SET}, want=JOB_SET
    ),
    "a Job without an owner stands for itself": Case(of=JOB, among={("jobs", "set-a-0"): None}),
    "a CronJob does not recreate a Job": Case(
        of=JOB, among={("jobs", "set-a-0"): a_reference("CronJob")}
    ),
    "a JobSet of another API group does not count": Case(
        of=JOB, among={("jobs", "set-a-0"): a_reference("JobSet", api_version="example.com/v1")}
    ),
    "a JobSet makes no StatefulSet": Case(of=LEADERS, among={("statefulsets", "lws"): JOB_SET}),
    "leaders of a LeaderWorkerSet are a part of it": Case(
        of=LEADERS, among=OF_A_LEADER_WORKER_SET, want=LWS
    ),
    "workers of a LeaderWorkerSet, whose StatefulSet is the leader's": Case(
        of=WORKERS, among=OF_A_LEADER_WORKER_SET, want=LWS, looks=3
    ),
    "a StatefulSet without its leader pod is its own root": Case(
        of=WORKERS, among={**OF_A_LEADER_WORKER_SET, ("pods", "lws-0"): None}, looks=2
    ),
    "a JobSet with a uid of any length is none": Case(
        of=JOB, among={("jobs", "set-a-0"): replace(JOB_SET, uid="x" * 129)}
    ),
    "of a Job with a uid of any length none is looked for": Case(
        of=replace(JOB, uid="x" * 129), among={("jobs", "set-a-0"): JOB_SET}, looks=0
    ),
    "a Job that is gone is a part of nothing": Case(of=JOB, among={}),
    "a ReplicaSet is not even looked at": Case(of=a_reference("ReplicaSet"), among={}, looks=0),
    "a Job of another API group is not read": Case(
        of=a_reference("Job", api_version="batch.volcano.sh/v1"), among={}, looks=0
    ),
    "pods that own each other are followed to a limit": Case(
        of=WORKERS,
        among={("statefulsets", "lws-0"): a_reference("Pod", "lws-0"), ("pods", "lws-0"): WORKERS},
        looks=owners.MAX_OWNER_DEPTH,
    ),
}


@pytest.mark.parametrize("case", WHOLES.values(), ids=WHOLES)
def test_the_root_owner_of_a_controller(case: Case) -> None:
    cluster = Cluster(case.among)
    assert cluster.whole_of(case.of) == case.want
    assert len(cluster.asked) == case.looks


def test_an_object_recreated_under_its_name_is_another() -> None:
    assert Cluster({("jobs", "set-a-0"): JOB_SET}, {"set-a-0": "another"}).whole_of(JOB) is None


@pytest.mark.parametrize("field", ["apiVersion", "kind", "name", "uid"])
def test_little_is_kept_of_a_reference_that_can_name_no_object(field: str) -> None:
    long = replace(JOB, **{field: "x" * 100_000})  # type: ignore[arg-type]  # a text
    clipped = owners.clip(long)
    assert len(getattr(clipped, field)) < 400
    assert owners.clip(clipped) == clipped
    assert owners.ledger_kind_of(clipped) is None
    assert owners.clip(JOB) is JOB
