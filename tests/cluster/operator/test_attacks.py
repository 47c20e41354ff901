"""While clients hold as many connections as they can, victims are still told, and still save."""

import asyncio

import pytest

from reprieve_testing.cluster.handle import ClusterHandle, wait_for
from reprieve_testing.servers.attackers import Attackers, many_files
from reprieve_testing.servers.workload import HINT, Workload

pytestmark = [
    pytest.mark.cluster,
    # `integration/operator/test_attacks.py` shows that the descriptors stay free.
    pytest.mark.slow,
]
FILES = 1024
PRELUDE = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES}))"
VICTIMS = ("first", "second", "third")
ANNOTATIONS = {"reprieve.dev/checkpoint-hint": HINT, "reprieve.dev/checkpoint-timeout": "60s"}


async def test_half_open_requests_keep_no_victim_from_being_told(
    cluster: ClusterHandle, namespace: str
) -> None:
    operator = await asyncio.to_thread(cluster.prepare_operator, PRELUDE)
    operator.release()
    await asyncio.to_thread(operator.wait_leading)
    try:
        port = int(operator.url.rpartition(":")[2])
        with many_files():
            async with Attackers(port, addresses=20) as attackers:
                await attackers.send_half_a_head(1100)
                await asyncio.to_thread(evict_all, cluster, namespace)
    finally:
        await asyncio.to_thread(operator.stop)


def evict_all(cluster: ClusterHandle, namespace: str) -> None:
    """Mark the victims, one after another; each is asked once, and saves."""
    for name in VICTIMS:
        pod = cluster.create_pod(
            namespace, name, annotations=ANNOTATIONS, finalizers=["example.com/other"]
        )
        saved = {"state": "saved", "step": 1, "path": "/data/1"}
        with Workload(str(pod["status"]["podIP"]), state=saved) as workload:
            cluster.mark(namespace, name)
            wait_for("DELETE", lambda name=name: is_deleted(cluster, namespace, name))
        assert len(workload.posts) == 1
        assert "CheckpointSaved" in wait_for(
            "Events", lambda name=name: events_once_deleted(cluster, namespace, name)
        )


def is_deleted(cluster: ClusterHandle, namespace: str, name: str) -> bool:
    return "deletionTimestamp" in (cluster.pod(namespace, name) or {})["metadata"]


def events_once_deleted(cluster: ClusterHandle, namespace: str, name: str) -> list[str] | None:
    reasons: list[str] = cluster.event_reasons(namespace, name)
    return reasons if "SoftEvictionDeleting" in reasons else None
