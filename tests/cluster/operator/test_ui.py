"""The page `/ui` of a real operator: a victim with its steps, and what its save kept."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any
from urllib.error import HTTPError

import pytest

from reprieve_testing.cluster.handle import ClusterHandle, wait_for
from reprieve_testing.servers.webhook_program import any_certificate
from reprieve_testing.servers.workload import HINT, Workload

pytestmark = pytest.mark.cluster

ROLE = "reprieve:ui-reader"
HTTP = {"reprieve.dev/checkpoint-hint": HINT, "reprieve.dev/checkpoint-timeout": "60s"}
STEPS = ["CheckpointRequested", "CheckpointAcknowledged", "CheckpointSaved", "SoftEvictionDeleting"]

Read = Callable[[], Any]


@pytest.fixture
def read(cluster: ClusterHandle, namespace: str) -> Iterator[Read]:
    """The function returns the page's data, as an account with the right gets it, or the status."""
    operator = cluster.start_operator(ui=True, metrics_authentication="token")
    operator.wait_ready()
    url = operator.metrics_url.replace("http:", "https:").replace("/metrics", "/ui/data")
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer"}}
    cluster.client.create(account, namespace=namespace)
    token = cluster.client.create_token("viewer", namespace)
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})

    def read_data() -> Any:
        try:
            with urllib.request.urlopen(request, timeout=30, context=any_certificate()) as answer:
                return json.load(answer)
        except HTTPError as error:
            return error.code

    assert read_data() == 403
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{namespace}-ui"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": namespace}],
    }
    cluster.client.create(binding)
    try:
        wait_for("the right, and the Lease", lambda: _is_leading(read_data()))
        yield read_data
    finally:
        cluster.client.delete("clusterrolebinding", f"{namespace}-ui")
    assert operator.stop() == 0


def _is_leading(shown: Any) -> bool:
    return isinstance(shown, dict) and bool(shown["is_leading"])


def test_the_page_follows_a_victim_from_its_hint_to_its_end(
    cluster: ClusterHandle, namespace: str, read: Read
) -> None:
    pod = cluster.create_pod(namespace, "seen", annotations=HTTP)
    with Workload(str(pod["status"]["podIP"])) as workload:
        cluster.mark(namespace, "seen")
        cluster.wait_phase(namespace, "seen", "checkpointing")
        shown = wait_for("the victim", lambda: _named(read()["victims"], "seen", "checkpointing"))
        assert shown["begun_at"] < shown["deadline"]
        assert [step["reason"] for step in shown["steps"]] == STEPS[:2]
        workload.state = {"state": "saved", "step": 7, "path": "/data/7"}
        ended = wait_for("its end", lambda: _named(read()["ended"], "seen", "ended"))
    assert [step["reason"] for step in ended["steps"]][:4] == STEPS
    assert "/data/7" in ended["steps"][2]["note"]
    (totals,) = [each for each in read()["namespaces"] if each["namespace"] == namespace]
    assert (totals["victims"], totals["saved"], totals["unsaved"]) == (1, 1, 0)


def _named(victims: Any, name: str, phase: str) -> Any:
    return next((each for each in victims if (each["name"], each["phase"]) == (name, phase)), None)
