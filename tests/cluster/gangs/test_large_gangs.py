"""One mark on a gang of a thousand pods: all go within the ceiling, and the Lease is kept."""

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.lifecycle import ledger
from reprieve_testing.cluster.handle import OPERATOR_NAMESPACE, ClusterHandle, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PODS = 1000
CEILING_SECONDS, TIMEOUT_SECONDS = 300, 30
GONE_SECONDS = 900.0
MANAGED_BY_NO_CONTROLLER = "example.com/this-test"


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    cluster.set_policy(ceiling=f"{CEILING_SECONDS}s")
    with cluster.namespace("large") as name:
        yield name
        cluster.stop_programs()


def create_gang(cluster: ClusterHandle, namespace: str) -> None:
    """Create the pods of a Job that the job controller leaves alone; none of them answers."""
    template = {
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none"}]}
    }
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": namespace},
        "spec": {"managedBy": MANAGED_BY_NO_CONTROLLER, "template": template},
    }
    cluster.client.create(job)
    uid = cluster.kubectl.get("job", "train", "-n", namespace)["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid}
    for number in range(PODS):
        metadata = {
            "name": f"train-{number}",
            "namespace": namespace,
            "labels": {keys.POD_GROUP: "train"},
            "annotations": {
                keys.CHECKPOINT_HINT: "annotation:",
                keys.CHECKPOINT_TIMEOUT: f"{TIMEOUT_SECONDS}s",
                keys.COMPLETION_INDEX: str(number),
            },
            "ownerReferences": [owner | {"controller": True}],
        }
        node = f"kwok-{number % cluster.cluster.settings.kwok_nodes}"
        spec = template["spec"] | {"nodeName": node, "tolerations": [{"operator": "Exists"}]}
        cluster.client.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )


def phases(cluster: ClusterHandle, namespace: str) -> Counter[str]:
    items = cluster.kubectl.get("pods", "-n", namespace)["items"]
    return Counter(item["status"].get("phase", "") for item in items)


def lease(cluster: ClusterHandle) -> tuple[str, int]:
    spec = cluster.kubectl.get("lease", "reprieve-operator", "-n", OPERATOR_NAMESPACE)["spec"]
    return spec["holderIdentity"], spec["leaseTransitions"]


def calls(cluster: ClusterHandle, namespace: str) -> Iterator[Any]:
    """Yield the operator's answered calls in the namespace, from the audit log."""
    with cluster.cluster.audit_log.open() as log:
        for line in log:
            if namespace in line and '"stage":"ResponseComplete"' in line:
                entry = json.loads(line)
                if entry["user"]["username"].endswith("reprieve-operator"):
                    yield entry


def test_a_gang_of_a_thousand_pods_goes_within_the_ceiling_and_the_lease_is_kept(
    cluster: ClusterHandle, namespace: str
) -> None:
    operator = cluster.start_operator()
    operator.wait_leading()
    create_gang(cluster, namespace)
    wait_for("all pods run", lambda: phases(cluster, namespace) == {"Running": PODS}, GONE_SECONDS)
    before = lease(cluster)
    cluster.mark(namespace, "train-0")
    wait_for("all pods are gone", lambda: not phases(cluster, namespace), GONE_SECONDS)
    assert lease(cluster) == before
    found = list(calls(cluster, namespace))
    deletions = [entry for entry in found if entry["verb"] == "delete"]
    by_name = Counter(entry["objectRef"]["name"] for entry in deletions)
    assert by_name == {f"train-{number}": 1 for number in range(PODS)}
    begun = min(entry["requestReceivedTimestamp"] for entry in found if entry["verb"] == "patch")
    last = max(entry["requestReceivedTimestamp"] for entry in deletions)
    ceiling = datetime.fromisoformat(begun) + timedelta(seconds=CEILING_SECONDS)
    assert datetime.fromisoformat(last) <= ceiling
    statuses = Counter(entry["responseStatus"]["code"] for entry in found)
    assert statuses[504] <= len(found) / 100, statuses
    # Those that fit; each replacement inherits from its own slot.
    job = cluster.kubectl.get("job", "train", "-n", namespace)["metadata"]
    assert len(ledger.parse(job["annotations"][keys.LEDGER])) > PODS / 3
