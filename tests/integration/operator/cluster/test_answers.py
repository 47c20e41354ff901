"""The API server sends back only what the operator reads: a pod has many managed fields."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reprieve_operator.cluster.pods import VersionedObject, VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_policy import keys
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_policy.lifecycle.eviction import CheckpointOutcome
from reprieve_testing.objects.builders import after, an_eviction
from reprieve_testing.operator_parts import writes_of
from reprieve_testing.servers.stub_api import stub_api

POD, JOBS = "/api/v1/namespaces/team/pods/p", "/apis/batch/v1/namespaces/team/jobs"
TABLE, METADATA = "application/json;as=Table;", "application/json;as=PartialObjectMetadata;"
HINTED = an_eviction().hinted(deadline=after(600)).build()
ENDING = an_eviction().ended(CheckpointOutcome.SKIPPED).build()
VICTIM = msgspec.convert(
    {
        "metadata": {
            "namespace": "team",
            "name": "p",
            "uid": "u",
            "resourceVersion": "7",
            "labels": {"app": "training", keys.SOFT_EVICTION: "requested"},
            "annotations": {keys.CHECKPOINT_ANSWER: "{}"},
            "finalizers": ["example.com/disk", keys.CLEANUP_FINALIZER],
        }
    },
    VictimPod,
)


WRITES: dict[str, Callable[[Writes], Awaitable[Any]]] = {
    "the notice": lambda writes: writes.write_state(VICTIM, HINTED, None, begins=True),
    "the end": lambda writes: writes.write_disruption_target(VICTIM, ENDING),
    "the DELETE": lambda writes: writes.delete_pod(VICTIM, ENDING),
    "the finalizer's removal": lambda writes: writes.remove_finalizer(VICTIM.metadata),
    "the ledger": lambda writes: writes.patch_owner(f"{JOBS}/j", VICTIM.metadata, {}),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_of_a_write_only_the_new_version_comes_back(
    tmp_path: Path, write: Callable[[Writes], Awaitable[Any]]
) -> None:
    pods, _, name = POD.rpartition("/")
    async with stub_api(tmp_path, collections={pods: {name: {"metadata": {}}}}) as (stub, api):
        await write(writes_of(api))
        ((_, path, accept),) = stub.accepts
        assert accept.startswith(TABLE)
        assert path.endswith("?includeObject=None")


async def test_a_written_pod_is_known_as_it_is_then(tmp_path: Path) -> None:
    async with stub_api(tmp_path, patched_version="8") as (_, api):
        writes = writes_of(api)
        hinted = (await writes.write_state(VICTIM, HINTED, None, begins=True)).metadata
        assert (hinted.uid, hinted.version) == ("u", 8)
        assert labels_of(hinted) == {"app": "training", keys.SOFT_EVICTION: "hinted"}
        assert annotations_of(hinted).keys() == {keys.EVICTION}
        released = await writes.remove_finalizer(hinted)
        assert released.finalizers == ("example.com/disk",)
        ending = VictimPod(metadata=released)
        ending = await writes.write_disruption_target(ending, ENDING, adds_finalizer=True)
        assert ending.metadata.finalizers == ("example.com/disk", keys.CLEANUP_FINALIZER)


async def test_of_a_victims_owner_only_the_metadata_are_read(tmp_path: Path) -> None:
    owner = {"metadata": {"name": "j", "uid": "o"}}
    async with stub_api(tmp_path, collections={JOBS: {"j": owner}}) as (stub, api):
        await writes_of(api).get(f"{JOBS}/j", VersionedObject)
        ((_, _, accept),) = stub.accepts
        assert accept.startswith(METADATA)
