"""A pod's owner who renews what protects it holds a preemptor for one ceiling, counted once.

The owner makes the pod the pod of one decoy Job after another, each of which ends in a minute.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.guard.guarded_cluster import (
    HINT,
    GuardedCluster,
    a_pod,
    a_priority_class,
    guarded_cluster,
    phase_of,
)

pytestmark = pytest.mark.cluster

LOW, URGENT = "renew-low", "renew-urgent"
OWNED = {"app": "decoy"}
CEILING_SECONDS, DECOYS_EVERY_SECONDS = 30, 5.0
SLACK_SECONDS = 30.0
"""A refused scheduler comes back within seconds, or when a pod ends."""


@pytest.fixture(scope="module")
def ours() -> Iterator[GuardedCluster]:
    with guarded_cluster("test-guard-renewable", nodes=1) as made:
        made.set_capacity("kwok-0", 1)
        made.kubectl.apply(a_priority_class(LOW, 1000), a_priority_class(URGENT, 5000))
        # Every Job of a minute is near its completion from its start.
        made.set_policy(
            ceiling=f"{CEILING_SECONDS}s",
            checkpointTimeout=f"{CEILING_SECONDS}s",
            maxDeferral="10s",
            nearCompletion=f"{CEILING_SECONDS}s",
        )
        yield made


def a_decoy(name: str) -> Any:
    """Return a Job that ends within seconds, and takes a pod with its label for its own."""
    template = a_pod("unused", slots=1000)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "activeDeadlineSeconds": CEILING_SECONDS - 5,
            "manualSelector": True,
            "selector": {"matchLabels": OWNED},
            "template": {
                "metadata": {"labels": OWNED},
                "spec": template["spec"] | {"restartPolicy": "Never"},
            },
        },
    }


@contextmanager
def renewed(ours: GuardedCluster, namespace: str, pod: str) -> Iterator[None]:
    """Make the pod the pod of a new Job every few seconds, for the block."""
    ends = threading.Event()

    def begun(name: str) -> Any:
        job = ours.kubectl.get("job", name, "-n", namespace)
        return job if job.get("status", {}).get("startTime") else None

    def renew() -> None:
        for number in range(1000):
            name = f"decoy-{number}"
            ours.create(namespace, a_decoy(name))
            job = wait_for(f"{name} has begun", partial(begun, name))
            owner = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "name": name,
                "uid": job["metadata"]["uid"],
                "controller": True,
            }
            patch = {"metadata": {"ownerReferences": [owner]}}
            if ours.pod(namespace, pod) is None:
                return
            ours.kubectl.client.patch("pod", pod, patch, namespace=namespace)
            if ends.wait(DECOYS_EVERY_SECONDS):
                return

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def test_ever_new_jobs_hold_a_preemptor_for_one_ceiling(ours: GuardedCluster) -> None:
    with ours.namespace("renewable") as namespace:
        victim = a_pod("victim", slots=1, priority_class=LOW, annotations=HINT, labels=OWNED)
        ours.create(namespace, victim)
        ours.running(namespace, "victim")
        with renewed(ours, namespace, "victim"):
            wait_for(
                "the victim has an owner",
                lambda: (ours.pod(namespace, "victim") or {})["metadata"].get("ownerReferences"),
            )
            ours.create(namespace, a_pod("urgent", slots=1, priority_class=URGENT))
            refused = ours.wait_until(
                "was refused",
                namespace,
                "victim",
                lambda pod: keys.REFUSED_SINCE in pod["metadata"]["annotations"],
            )
            began = time.monotonic()
            since = refused["metadata"]["annotations"][keys.REFUSED_SINCE]
            assert since.endswith(refused["metadata"]["uid"])
            asked = ours.wait_until(
                "is asked to save",
                namespace,
                "victim",
                lambda pod: phase_of(pod) == "hinted",
                CEILING_SECONDS + SLACK_SECONDS,
            )
            assert time.monotonic() - began >= CEILING_SECONDS - 5
            # It was written once.
            assert asked["metadata"]["annotations"][keys.REFUSED_SINCE] == since
            ours.acknowledge_checkpoint(namespace, "victim")
            ours.running(namespace, "urgent")
