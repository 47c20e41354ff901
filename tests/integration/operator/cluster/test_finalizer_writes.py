"""Reprieve's finalizer goes on with calls that are made anyway, as the API server merges them.

A merge patch replaces a list; a strategic merge patch adds to it.
"""

from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.leader_election import LeaderElection
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.uninstall import Uninstall, release_pods
from reprieve_policy import keys
from reprieve_policy.lifecycle.eviction import CheckpointOutcome
from reprieve_runtime.client.api import Api
from reprieve_testing.objects.builders import after, an_eviction
from reprieve_testing.servers.stub_api import StubApi, stub_api

OURS, OTHER = keys.CLEANUP_FINALIZER, "example.com/disk"
PATH = "/api/v1/namespaces/team/pods/p"
HINTED = an_eviction().hinted(deadline=after(600)).build()
ENDING = an_eviction().ended(CheckpointOutcome.SKIPPED).build()
DEPLOYMENTS = "/apis/apps/v1/namespaces/reprieve-system/deployments"


class LeadingReplica:
    """An election that this replica has won."""

    def require_leadership(self) -> float:
        return 60.0


def writes(api: Api) -> Writes:
    election = cast("LeaderElection", LeadingReplica())
    return Writes(api, CallLimiter(4), election, OperatorMetrics(), Clock())


def a_pod(*finalizers: str) -> VictimPod:
    metadata = {"namespace": "team", "name": "p", "uid": "u", "resourceVersion": "7"}
    return msgspec.convert({"metadata": {**metadata, "finalizers": finalizers}}, VictimPod)


def written(stub: StubApi) -> tuple[str, Any]:
    ((path, body),) = stub.patches
    return path, body["metadata"].get("finalizers")


@pytest.mark.parametrize("begins", [True, False])
async def test_the_first_state_and_the_finalizer_are_one_call(
    tmp_path: Path, *, begins: bool
) -> None:
    async with stub_api(tmp_path) as (stub, api):
        await writes(api).write_state(
            a_pod(OTHER), HINTED, None, begins=begins, adds_finalizer=True
        )
        assert written(stub) == (PATH, [OTHER, OURS])


async def test_the_condition_and_the_finalizer_are_one_call(tmp_path: Path) -> None:
    async with stub_api(tmp_path) as (stub, api):
        await writes(api).write_disruption_target(a_pod(OTHER), ENDING, adds_finalizer=True)
        assert written(stub) == (f"{PATH}/status", [OURS])


async def test_a_pod_that_has_the_finalizer_does_not_get_it_again(tmp_path: Path) -> None:
    async with stub_api(tmp_path) as (stub, api):
        await writes(api).write_disruption_target(a_pod(OURS), ENDING, adds_finalizer=True)
        assert written(stub) == (f"{PATH}/status", None)


def a_deployment(**spec: Any) -> Any:
    return {"metadata": {"name": "reprieve-operator"}, "spec": {"replicas": 2, **spec}}


UNINSTALLS: dict[str, tuple[Any, Any, bool]] = {
    "an upgrade": (a_deployment(), a_deployment(), False),
    "scaled to 0": (a_deployment(), a_deployment(replicas=0), True),
    "deleted": (a_deployment(), None, True),
    "being deleted": (
        a_deployment(),
        a_deployment() | {"metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z"}},
        True,
    ),
    "an operator that was started by hand": (None, None, False),
}


@pytest.mark.parametrize(("before", "after_", "is_over"), UNINSTALLS.values(), ids=UNINSTALLS)
async def test_an_operator_knows_whether_another_follows(
    tmp_path: Path, before: Any, after_: Any, *, is_over: bool
) -> None:
    async with stub_api(tmp_path, collections={DEPLOYMENTS: {}}) as (stub, api):
        uninstall = Uninstall(api, "reprieve-system", "reprieve-operator")
        stub.collections[DEPLOYMENTS] = {} if before is None else {"reprieve-operator": before}
        await uninstall.remember_deployment()
        stub.collections[DEPLOYMENTS] = {} if after_ is None else {"reprieve-operator": after_}
        assert await uninstall.is_in_progress() is is_over


async def test_an_operator_that_may_not_read_its_deployment_releases_nothing(
    tmp_path: Path,
) -> None:
    found = {DEPLOYMENTS: {"reprieve-operator": a_deployment()}}
    async with stub_api(tmp_path, collections=found) as (stub, api):
        uninstall = Uninstall(api, "reprieve-system", "reprieve-operator")
        await uninstall.remember_deployment()
        stub.barred.add(f"{DEPLOYMENTS}/reprieve-operator")
        assert not await uninstall.is_in_progress()


async def test_the_last_operator_releases_each_victim_by_one_call(tmp_path: Path) -> None:
    async with stub_api(tmp_path) as (stub, api):
        await release_pods(writes(api), [a_pod(OTHER, OURS).metadata])
        assert written(stub) == (PATH, [OTHER])


async def test_a_victim_that_changed_meanwhile_is_read_again(tmp_path: Path) -> None:
    changed = {"metadata": {"name": "p", "namespace": "team", "uid": "u", "finalizers": []}}
    found = {"/api/v1/namespaces/team/pods": {"p": changed}}
    async with stub_api(tmp_path, collections=found) as (stub, api):
        stub.refuses[PATH] = 409
        await release_pods(writes(api), [a_pod(OURS).metadata])
        assert len(stub.patches) == 1
