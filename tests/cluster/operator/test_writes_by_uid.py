"""A pod that its owner changes all the time is written by its uid alone, with our own rights.

Only a real API server shows that these merge lists: finalizers of others stay.
"""

from pathlib import Path

import pytest

from reprieve_operator.cluster.pods import VictimPod, without_version
from reprieve_policy import keys
from reprieve_policy.lifecycle.eviction import CheckpointOutcome
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_testing.cluster.connection import connected
from reprieve_testing.cluster.handle import ClusterHandle
from reprieve_testing.objects.builders import after, an_eviction
from reprieve_testing.operator_parts import writes_of

pytestmark = pytest.mark.cluster
OURS, OTHER = keys.CLEANUP_FINALIZER, "example.com/other"
HINTED = an_eviction().hinted(deadline=after(600)).build()
ENDING = an_eviction().ended(CheckpointOutcome.SKIPPED).build()


@pytest.fixture
def kubeconfig(cluster: ClusterHandle) -> Path:
    return cluster.account_kubeconfig("reprieve-operator")


async def test_a_pod_that_has_changed_is_written_and_deleted_by_its_uid(
    cluster: ClusterHandle, namespace: str, kubeconfig: Path
) -> None:
    cluster.create_pod(namespace, "train", finalizers=[OTHER])
    cluster.mark(namespace, "train")

    def finalizers() -> set[str]:
        # The owner changes the pod before each of our writes.
        cluster.annotate(namespace, "train", f"example.com/written={len(seen)}")
        pod = cluster.pod(namespace, "train")
        assert pod is not None
        seen.append(pod["metadata"]["resourceVersion"])
        return set(pod["metadata"].get("finalizers", ()))

    seen: list[str] = []
    async with connected(kubeconfig) as api:
        writes = writes_of(api)
        old = await api.get(object_path("pods", namespace, "train"), VictimPod)
        assert finalizers() == {OTHER}
        with pytest.raises(ApiError, match="modified"):
            await writes.write_state(old, HINTED, None, begins=True, adds_finalizer=True)
        written = await writes.write_state(
            without_version(old), HINTED, None, begins=True, adds_finalizer=True
        )
        assert finalizers() == {OTHER, OURS}
        await writes.remove_finalizer(written.metadata)
        assert finalizers() == {OTHER}
        assert await writes.delete_pod(without_version(old), ENDING)
    pod = cluster.pod(namespace, "train")
    assert pod is not None
    assert "deletionTimestamp" in pod["metadata"]
    assert pod["metadata"]["labels"][keys.SOFT_EVICTION] == "hinted"
