"""What a new pod gets from the JobSet or PodGroup of its gang, and what reading it costs."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.admission.defaults import decide_defaults
from reprieve_policy.facts import Facts, GangStatement
from reprieve_policy.kube.objects import Resource
from reprieve_policy.verdict import MetadataChange
from reprieve_testing.objects.builders import PodBuilder, a_pod, a_pod_group
from reprieve_testing.servers.stub_api import StubApi, stub_api
from reprieve_webhooks.facts.gang_statements import GangStatements
from reprieve_webhooks.lookups import limits

JOBSETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/team/jobsets"
LEADER_WORKER_SETS = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/team/leaderworkersets"
POD_GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/team/podgroups"
KOORDINATORS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/team/podgroups"

BY_POD = {keys.DISRUPTION_MODE: "pod"}


@dataclass
class Replica:
    """One replica, and the API server that it asks."""

    stub: StubApi
    statements: GangStatements

    async def written(self, pod: PodBuilder) -> dict[str, str]:
        """Return the annotations that a new pod of a class gets."""
        resource = pod.in_class(4).build()
        statement = await self.statements.find(resource, "team")
        changes = decide_defaults(resource, None, Facts(gang_statement=statement))
        return {one.key: one.value for one in changes if isinstance(one, MetadataChange)}

    @property
    def calls(self) -> int:
        return self.stub.calls.total()


@asynccontextmanager
async def replica(directory: Path, **objects: Any) -> AsyncIterator[Replica]:
    paths = (JOBSETS, LEADER_WORKER_SETS, POD_GROUPS, KOORDINATORS)
    known = {path: {"train": objects[path]} if path in objects else {} for path in paths}
    async with stub_api(directory, collections=known) as (stub, api):
        yield Replica(stub, GangStatements(api, lookup_timeout_seconds=60.0))


def stating(mode: str, **spec: Any) -> Any:
    return {"metadata": {"annotations": {keys.DISRUPTION_MODE: mode}}, "spec": spec}


JOBSETS_POD = a_pod().labelled(keys.JOBSET, "train").labelled(keys.JOB, "train-workers-0")
REPLICA = a_pod().labelled(keys.LEADER_WORKER_SET, "train").labelled(keys.LEADER_WORKER_GROUP, "1")
GANGS = {
    "a JobSet": (JOBSETS, JOBSETS_POD),
    "a LeaderWorkerSet": (LEADER_WORKER_SETS, REPLICA),
    "a PodGroup of scheduler-plugins": (POD_GROUPS, a_pod().in_gang("train")),
    "a PodGroup of Koordinator": (
        KOORDINATORS,
        a_pod().labelled(keys.KOORDINATOR_POD_GROUP, "train"),
    ),
}


@pytest.mark.parametrize(("path", "pod"), GANGS.values(), ids=GANGS)
async def test_a_new_pod_gets_the_disruption_mode_of(tmp_path: Path, path: str, pod: PodBuilder):
    async with replica(tmp_path, **{path: stating("pod")}) as one:
        assert await one.written(pod) == BY_POD
        assert one.stub.calls == {f"{path}/train": 1}


async def test_a_new_pod_gets_the_number_of_pods_that_its_pod_group_needs(tmp_path: Path):
    async with replica(tmp_path, **{POD_GROUPS: stating("pod", minMember=3)}) as one:
        assert await one.written(a_pod().in_gang("train")) == BY_POD | {keys.MIN_MEMBER: "3"}


async def test_the_mode_that_a_pod_states_stays_and_costs_no_call(tmp_path: Path):
    async with replica(tmp_path, **{JOBSETS: stating("pod")}) as one:
        assert await one.written(JOBSETS_POD.annotated(keys.DISRUPTION_MODE, "gang")) == {}
        assert one.calls == 0


NO_GANG: dict[str, Resource] = {
    "a pod in no gang": a_pod().build(),
    "a pod of a Job": a_pod().labelled(keys.JOB, "train").build(),
    "a pod of a native PodGroup": JOBSETS_POD.in_native_gang("train").build(),
    "a pod whose label names no object": a_pod().labelled(keys.JOBSET, "").build(),
    "a label that is no name": a_pod().labelled(keys.JOBSET, "A_b").build(),
    "an object that is no pod": a_pod_group().build(),
}


@pytest.mark.parametrize("resource", NO_GANG.values(), ids=NO_GANG)
async def test_an_object_that_names_none_costs_no_call(tmp_path: Path, resource: Resource):
    async with replica(tmp_path) as one:
        assert await one.statements.find(resource, "team") is None
        assert one.calls == 0


async def test_the_pods_of_a_gang_that_are_created_together_cost_one_call(tmp_path: Path):
    async with replica(tmp_path, **{JOBSETS: stating("gang")}) as one:
        found = await asyncio.gather(*(one.written(JOBSETS_POD) for _ in range(200)))
        assert found == [{keys.DISRUPTION_MODE: "gang"}] * 200
        assert one.calls == 1


@pytest.mark.parametrize("failure", ["absent", "barred"])
async def test_where_the_kind_is_not_served_or_may_not_be_read_a_pod_gets_nothing(
    tmp_path: Path, failure: str
):
    async with replica(tmp_path) as one:
        getattr(one.stub, failure).add(f"{JOBSETS}/train")
        assert await one.written(JOBSETS_POD) == {}
        assert one.calls == 1


async def test_a_pod_is_created_without_it_while_the_api_server_fails_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with replica(tmp_path, **{JOBSETS: stating("pod")}) as one:
        one.stub.is_failing = True
        assert await one.written(JOBSETS_POD) == {}
        # Unknown, and not "states nothing": no pod is refused by it.
        unknown = await one.statements.find(JOBSETS_POD.build(), "team")
        assert unknown == GangStatement(is_known=False)
        assert "could not read an object of the gang" in caplog.text
        one.stub.is_failing = False
        assert await one.written(JOBSETS_POD) == BY_POD


async def test_an_object_that_is_larger_than_any_usual_one_gives_its_pods_nothing(
    tmp_path: Path,
):
    """Without this, pods of a hundred such gangs at once would take the memory of the webhooks."""
    large = stating("pod", note="x" * 1024 * 1024)
    async with replica(tmp_path, **{JOBSETS: large}) as one:
        assert await one.written(JOBSETS_POD) == {}


UNREADABLE: dict[str, Any] = {
    "a mode that is none": stating("single"),
    "no annotations": {"metadata": {"annotations": None}, "spec": None},
    "a number of another form": stating("pod", minMember="three"),
    "no metadata": {"spec": {}},
}


@pytest.mark.parametrize("document", UNREADABLE.values(), ids=UNREADABLE)
async def test_an_object_of_another_form_states_nothing(tmp_path: Path, document: Any):
    async with replica(tmp_path, **{POD_GROUPS: document}) as one:
        assert await one.written(a_pod().in_gang("train")) == {}


async def test_a_flood_of_names_is_not_passed_on_and_keeps_no_other_namespace_waiting(
    tmp_path: Path,
):
    async with replica(tmp_path) as one:
        others = JOBSETS.replace("team", "other")
        one.stub.collections[others] = {"train": stating("pod")}
        started = asyncio.get_running_loop().time()
        pods = (a_pod().labelled(keys.JOBSET, f"new-{number}").build() for number in range(500))
        found = await asyncio.gather(*(one.statements.find(pod, "team") for pod in pods))
        seconds = asyncio.get_running_loop().time() - started
        assert set(found) == {None, GangStatement(is_known=False)}
        allowed = (limits.BURST_CALLS + seconds * limits.CALLS_PER_SECOND) / 2
        assert one.calls <= allowed + 1
        found_elsewhere = await one.statements.find(JOBSETS_POD.build(), "other")
        assert found_elsewhere == GangStatement("pod")


async def test_a_pod_group_comes_before_the_jobset_of_its_pods(tmp_path: Path):
    both = {JOBSETS: stating("gang"), POD_GROUPS: stating("pod", minMember=2)}
    async with replica(tmp_path, **both) as one:
        statement = await one.statements.find(JOBSETS_POD.in_gang("train").build(), "team")
        assert statement == GangStatement("pod", 2)


@pytest.mark.parametrize(
    ("annotations", "mode"),
    [
        (BY_POD | {"example.com/a": "x" * 200_000}, "pod"),
        ({keys.DISRUPTION_MODE: "x" * 200_000}, ""),
    ],
    ids=["another annotation", "a mode that cannot be read"],
)
async def test_annotations_that_are_not_read_do_not_stay_in_memory(
    tmp_path: Path, annotations: dict[str, str], mode: str
):
    large = {"metadata": {"annotations": annotations}}
    async with replica(tmp_path) as one:
        one.stub.collections[JOBSETS] = {f"a{number}": large for number in range(40)}
        await one.statements.find(a_pod().labelled(keys.JOBSET, "a0").build(), "team")
        tracemalloc.start()
        try:
            for number in range(1, 40):
                pod = a_pod().labelled(keys.JOBSET, f"a{number}").build()
                assert await one.statements.find(pod, "team") == GangStatement(mode)
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert kept < 2_000_000  # With these annotations: 8 MB.
