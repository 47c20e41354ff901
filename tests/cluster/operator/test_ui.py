"""The page `/ui` of a real operator: a victim with its steps, and what its save kept.

A second operator, which leads next, has the steps from Events.
"""

import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.error import HTTPError

import pytest

from reprieve_testing.cluster.handle import ClusterHandle, wait_for
from reprieve_testing.manifests import MANIFESTS
from reprieve_testing.servers.webhook_program import any_certificate
from reprieve_testing.servers.workload import HINT, Workload

pytestmark = pytest.mark.cluster

ROLE = "reprieve:ui-reader"
RIGHTS = MANIFESTS / "components" / "ui" / "rbac.yaml"
HTTP = {"reprieve.dev/checkpoint-hint": HINT, "reprieve.dev/checkpoint-timeout": "60s"}
STEPS = ["CheckpointRequested", "CheckpointAcknowledged", "CheckpointSaved", "SoftEvictionDeleting"]

Read = Callable[[], Any]


@pytest.fixture
def token(cluster: ClusterHandle, namespace: str) -> Iterator[str]:
    """A token of an account with the right; its operator's account has that of the component."""
    cluster.kubectl.read("apply", "-f", RIGHTS)
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer"}}
    cluster.client.create(account, namespace=namespace)
    made = cluster.client.create_token("viewer", namespace)
    with page(cluster, made, is_granted=False) as read:
        assert read() == 403
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{namespace}-ui"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": "viewer", "namespace": namespace}],
    }
    cluster.client.create(binding)
    yield made
    cluster.client.delete("clusterrolebinding", f"{namespace}-ui")
    cluster.kubectl.read("delete", "-f", RIGHTS)


@contextmanager
def page(cluster: ClusterHandle, token: str, *, is_granted: bool = True) -> Iterator[Read]:
    """Run an operator; yield what returns the page's data, or the status, once it leads."""
    operator = cluster.start_operator(ui=True, metrics_authentication="token")
    operator.wait_ready()
    url = operator.metrics_url.replace("http:", "https:").replace("/metrics", "/ui/data")
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})

    def read_data() -> Any:
        try:
            with urllib.request.urlopen(request, timeout=30, context=any_certificate()) as answer:
                return json.load(answer)
        except HTTPError as error:
            return error.code

    if is_granted:
        wait_for("the right, and the Lease", lambda: _is_leading(read_data()))
    yield read_data
    assert operator.stop() == 0


def _is_leading(shown: Any) -> bool:
    return isinstance(shown, dict) and bool(shown["is_leading"])


def test_the_page_follows_a_victim_to_its_end_and_the_next_leader_knows_its_steps(
    cluster: ClusterHandle, namespace: str, token: str
) -> None:
    pod = cluster.create_pod(namespace, "seen", annotations=HTTP)
    with page(cluster, token) as read, Workload(str(pod["status"]["podIP"])) as workload:
        cluster.mark(namespace, "seen")
        cluster.wait_phase(namespace, "seen", "checkpointing")
        shown = wait_for("the victim", lambda: _named(read()["victims"], "seen", "checkpointing"))
        assert shown["begun_at"] < shown["deadline"]
        assert [step["reason"] for step in shown["steps"]] == STEPS[:2]
        workload.state = {"state": "saved", "step": 7, "path": "/data/7"}
        ended = wait_for("its end", lambda: _named(read()["ended"], "seen", "ended"))
        assert [step["reason"] for step in ended["steps"]][:4] == STEPS
        assert not any(step["is_from_event"] for step in ended["steps"])
        assert "/data/7" in ended["steps"][2]["note"]
        (totals,) = [each for each in read()["namespaces"] if each["namespace"] == namespace]
        assert (totals["victims"], totals["saved"], totals["unsaved"]) == (1, 1, 0)
        last = ended["steps"][-1]["reason"]
        wait_for("its last Event", lambda: last in cluster.event_reasons(namespace, "seen"))

    with page(cluster, token) as read:
        after = wait_for("its steps", lambda: _named(read()["ended"], "seen", "ended"))
        shown = read()
    assert [step["reason"] for step in after["steps"]][:4] == STEPS
    assert all(step["is_from_event"] for step in after["steps"])
    assert (shown["past_steps"], shown["steps_since"] < shown["since"]) == ("read", True)
    # The totals are those of this leader.
    assert namespace not in [each["namespace"] for each in shown["namespaces"]]


def _named(victims: Any, name: str, phase: str) -> Any:
    return next((each for each in victims if (each["name"], each["phase"]) == (name, phase)), None)
