"""Native PodGroups, which the API server begins to serve while everything runs.

They count from then on, also for an operator and webhooks that were started before.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from realcluster.client.kubectl import Done
from realcluster.programs import WEBHOOKS
from reprieve_policy import keys
from reprieve_testing.cluster.hack_cluster import NAMESPACE, OwnCluster, own_cluster
from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.cluster.impersonated_users import until_answered
from reprieve_testing.cluster.kubernetes_version import needs_native_groups

pytestmark = [pytest.mark.cluster, needs_native_groups]

GATES, SERVED = "GenericWorkload=true", "scheduling.k8s.io/v1beta1=true"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/podgroups"
POLLS = {keys.CHECKPOINT_HINT: "annotation:", keys.CHECKPOINT_TIMEOUT: "60s"}


@dataclass
class UpgradedCluster:
    """A cluster with all of Reprieve, and its state before its API server served the type."""

    cluster: OwnCluster
    groups_before: str
    """The API server's answer about PodGroups at that time."""
    log_before: str
    """The operator's log until then."""

    def save(self, pod: Any) -> None:
        """Answer in the place of the workload."""
        request = json.loads(pod["metadata"]["annotations"][keys.CHECKPOINT_REQUEST])
        answer = json.dumps({"state": "saved", "id": request["id"], "step": 7})
        self.cluster.annotate(
            NAMESPACE, pod["metadata"]["name"], f"{keys.CHECKPOINT_ANSWER}={answer}"
        )


@pytest.fixture(scope="module")
def upgraded() -> Iterator[UpgradedCluster]:
    with own_cluster("test-native-groups", "--kwok-nodes", 2) as cluster:
        programs = cluster.install_webhooks()
        programs.start(WEBHOOKS)
        operator = cluster.start_operator()
        try:
            programs.wait_until_ready(WEBHOOKS)
            until_answered("denied", lambda: refused(cluster))
            operator.wait_leading()
            groups_before = cluster.kubectl.run("get", "--raw", GROUPS).stderr
            log_before = operator.log.read_text()
            serve_groups(cluster)
            yield UpgradedCluster(cluster, groups_before, log_before)
            assert cluster.programs[-1].stop() == 0
        finally:
            programs.stop(WEBHOOKS)
            cluster.stop_programs()


def refused(cluster: OwnCluster) -> Done:
    metadata = {"name": "refused", "labels": {keys.PREEMPTION_CLASS: "x"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    return cluster.kubectl.run("create", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(pod))


def serve_groups(cluster: OwnCluster) -> None:
    """Upgrade the API server under all that runs; return once it serves PodGroups and calls the
    webhooks.
    """
    settings = replace(cluster.cluster.settings, feature_gates=GATES, runtime_config=SERVED)
    cluster.cluster = replace(cluster.cluster, settings=settings)
    cluster.kill_component("kube-apiserver")
    cluster.start_component("kube-apiserver")
    wait_for(
        "PodGroups are served", lambda: cluster.kubectl.run("get", "--raw", GROUPS).status == 0
    )
    until_answered("denied", lambda: refused(cluster))


def test_before_they_are_served_nothing_complains(upgraded: UpgradedCluster) -> None:
    assert "could not find the requested resource" in upgraded.groups_before
    assert "podgroups" not in upgraded.log_before


def a_group(upgraded: UpgradedCluster, name: str, *members: str, **metadata: Any) -> None:
    """Create a native PodGroup whose pods go together, and its pods; return once they run."""
    spec = {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"all": {}}}
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": spec,
    }
    upgraded.cluster.kubectl.read("create", "-n", NAMESPACE, "-f", "-", stdin=json.dumps(group))
    for member in members:
        in_group = {"schedulingGroup": {"podGroupName": name}}
        upgraded.cluster.create_pod(
            NAMESPACE, member, spec=in_group, **{"annotations": POLLS, **metadata}
        )


def test_a_mark_on_one_of_a_native_group_reaches_the_others(upgraded: UpgradedCluster) -> None:
    """By programs that were started before there were such groups."""
    a_group(upgraded, "together", "together-0", "together-1")
    upgraded.cluster.mark(NAMESPACE, "together-0")
    told = [
        upgraded.cluster.wait_phase(NAMESPACE, name, "hinted")
        for name in ("together-0", "together-1")
    ]
    states = [json.loads(pod["metadata"]["annotations"][keys.EVICTION]) for pod in told]
    assert [(state.get("source", "label"), state["gang"]) for state in states] == [
        ("label", "together"),
        ("gang", "together"),
    ]
    for pod in told:
        upgraded.save(pod)
    for name in ("together-0", "together-1"):
        upgraded.cluster.wait_gone(NAMESPACE, name)


def test_a_scheduler_gets_no_part_of_a_native_group_before_the_others_are_asked(
    upgraded: UpgradedCluster,
) -> None:
    a_group(upgraded, "torn", "torn-0", "torn-1", annotations={})
    tried = (
        "delete",
        "pod",
        "torn-0",
        "-n",
        NAMESPACE,
        "--dry-run=server",
        "--as=system:kube-scheduler",
    )
    done = wait_for("the guard answers", lambda: is_refused(upgraded.cluster.kubectl.run(*tried)))
    assert "its whole gang is marked for eviction first" in done.stderr


def is_refused(done: Done) -> Done | None:
    return done if done.status else None
