"""A large gang on an API server with little capacity: all go within the ceiling, and the lease is
kept.
"""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reprieve_operator.settings import OperatorSettings
from reprieve_policy import keys
from reprieve_policy.lifecycle import ledger
from reprieve_testing.operator_parts import leading
from reprieve_testing.servers.busy_api import BusyApi, busy_api

PODS, JOB = "/api/v1/namespaces/team/pods", "/apis/batch/v1/namespaces/team/jobs/train"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/reprieve-system/leases/reprieve-operator"
SETTINGS = OperatorSettings(identity="a", sweep_interval_seconds=1000.0)
GONE_SECONDS = 300.0
"""For a machine that is busy: no test here decides by time."""
MARK = {keys.SOFT_EVICTION: "requested"}


def add_gang(stub: BusyApi, pods: int, *, owned: bool = True, name: str = "train") -> None:
    """Add the running pods of one gang, which one Job owns."""
    job = {"name": "train", "namespace": "team", "uid": "uid-of-train"}
    stub.add(JOB, metadata=dict(job), spec={}, status={})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True} | {
        key: job[key] for key in ("name", "uid")
    }
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for number in range(pods):
        metadata: dict[str, Any] = {
            "name": f"{name}-{number}",
            "namespace": "team",
            "uid": f"uid-{name}-{number}",
            "creationTimestamp": now,
            "labels": {keys.POD_GROUP: name},
            "annotations": {
                keys.COMPLETION_INDEX: str(number),
                keys.CHECKPOINT_HINT: "annotation:",
                keys.CHECKPOINT_TIMEOUT: "30s",
            },
            "ownerReferences": [owner] if owned else [],
        }
        status = {"phase": "Running", "podIP": "10.0.0.1", "startTime": now}
        stub.add(
            f"{PODS}/{name}-{number}", metadata=metadata, spec={"nodeName": "n"}, status=status
        )


def mark(stub: BusyApi, name: str) -> None:
    """Mark one pod, as a user does."""
    pod = stub.objects[f"{PODS}/{name}"]
    labels = pod["metadata"]["labels"] | MARK
    stub.add(f"{PODS}/{name}", **(pod | {"metadata": pod["metadata"] | {"labels": labels}}))


async def evict_gang(directory: Path, pods: int, *, owned: bool = True, **settings: Any) -> BusyApi:
    """Mark one pod of a gang, and wait until all are gone; no other operator led meanwhile."""
    async with busy_api(directory, **settings) as (stub, api, lease_api):
        add_gang(stub, pods, owned=owned)
        async with leading(api, lease_api, SETTINGS) as leader:
            mark(stub, "train-0")
            async with asyncio.timeout(GONE_SECONDS):
                while len(stub.deleted_at) < pods:  # noqa: ASYNC110 - no event to wait for
                    await asyncio.sleep(0.05)
            assert leader.election.is_leading
            assert stub.objects[LEASE]["spec"]["leaseTransitions"] == 0
        assert all(len(times) == 1 for times in stub.deleted_at.values())
        return stub


async def test_the_pods_of_one_owner_are_recorded_together(tmp_path: Path) -> None:
    pods = 60
    stub = await evict_gang(tmp_path, pods)
    recorded = ledger.parse(stub.objects[JOB]["metadata"]["annotations"][keys.LEDGER])
    assert len(recorded) == pods
    assert stub.count(resource="jobs", status=409) == 0
    assert stub.count(resource="jobs") < pods


@pytest.mark.heavy  # many pods, and calls that wait for each other
async def test_an_api_server_with_little_capacity_is_not_flooded(tmp_path: Path) -> None:
    pods, capacity = 200, 8
    stub = await evict_gang(tmp_path, pods, owned=False, capacity=capacity)
    refused, made = stub.count(status=504), stub.count()
    assert refused < made / 4, (refused, made)


@pytest.mark.slow
async def test_a_thousand_pods_of_one_owner_go_and_the_lease_is_kept(tmp_path: Path) -> None:
    stub = await evict_gang(tmp_path, 1000, capacity=8)
    refused, made = stub.count(status=504), stub.count()
    assert refused < made / 4, (refused, made)
    assert stub.count(resource="jobs", status=409) == 0
