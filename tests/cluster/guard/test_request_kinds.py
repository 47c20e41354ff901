"""The guard on a real cluster: requests that it refuses, postpones, and never touches.

The callers are an unmodified scheduler and kubectl.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pytest

from realcluster.binaries import build
from realcluster.client.kubectl import Done
from realcluster.programs import OPERATOR, WEBHOOKS
from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.cluster.kubernetes_version import needs_kubernetes
from reprieve_testing.guard import scenarios
from reprieve_testing.guard.guarded_cluster import (
    HINT,
    SCHEDULER,
    GuardedCluster,
    a_pod,
    a_priority_class,
    guarded_cluster,
)

pytestmark = pytest.mark.cluster

HIGH, LOW = "doors-high", "doors-low"
TOLERANT, TOLERANT_FOR_NOW = "doors-tolerant", "doors-tolerant-for-now"
TOLERATION = "preemption-toleration.scheduling.x-k8s.io/"
TOLERATION_SECONDS = 20
ADMIN = "admin"
WAITED_FOR_SECONDS = 3.0
"""By the API server, for the guard: `timeoutSeconds` of its webhooks."""
A_VOLUME_THAT_DOES_NOT_EXIST: Any = (
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "doors"},
        "provisioner": "example.com/nobody",
        "volumeBindingMode": "WaitForFirstConsumer",
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": "doors",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    },
)
LEASE = "reprieve-operator"
OPERATORS = "system:serviceaccount:reprieve-system:reprieve-operator"


@pytest.fixture(scope="module")
def ours() -> Iterator[GuardedCluster]:
    with guarded_cluster("test-guard-doors") as cluster:
        cluster.set_policy(ceiling="60s", checkpointTimeout="30s")
        for node in ("kwok-0", "kwok-1"):
            cluster.set_capacity(node, 2)
        cluster.create(
            "default",
            a_priority_class(HIGH, 1000),
            a_priority_class(LOW, 10),
            a_tolerant_class(TOLERANT, -1),
            a_tolerant_class(TOLERANT_FOR_NOW, TOLERATION_SECONDS),
        )
        yield cluster


def a_tolerant_class(name: str, seconds: int) -> Any:
    toleration = {"minimum-preemptable-priority": "2000", "toleration-seconds": str(seconds)}
    return a_priority_class(
        name, 10, **{f"{TOLERATION}{key}": text for key, text in toleration.items()}
    )


# Schedulers.


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            {"priority_class": TOLERANT, "annotations": HINT},
            "its PriorityClass tolerates the preemptor's priority",
        ),
        ({"priority_class": TOLERANT}, "its PriorityClass tolerates the preemptor's priority"),
        (
            {"priority_class": LOW, "labels": {"reprieve.dev/preemption-class": "6"}},
            "its class is not low enough",
        ),
    ],
    ids=[
        "a PriorityClass with a toleration",
        "a toleration, and no checkpoint",
        "a higher preemption class",
    ],
)
def test_a_victim_that_is_protected_from_its_preemptor_is_refused_and_never_marked(
    ours: GuardedCluster, said: Any, why: str
) -> None:
    with ours.namespace("refused") as team:
        ours.create(team, a_pod("kept", slots=2, node="kwok-0", **said))
        ours.running(team, "kept")
        ours.create(team, a_pod("preemptor", slots=1, priority_class=HIGH, node="kwok-0"))
        wait_for("the scheduler is refused", lambda: ours.calls(team))
        assert why in ours.delete_as_scheduler(team, "kept")
        wait_for("it comes back", lambda: len(ours.calls(team)) > 1)
        assert {call.code for call in ours.calls(team)} == {429}
        assert "reprieve.dev/soft-eviction" not in metadata(ours, team, "kept")["labels"]


def test_a_pod_of_a_service_is_refused_on_a_node_that_is_not_lent(ours: GuardedCluster) -> None:
    with ours.namespace("service") as team:
        ours.kubectl.read("annotate", "namespace", team, "reprieve.dev/workload-type=service")
        lowest = {"labels": {"reprieve.dev/preemption-class": "0"}, "annotations": HINT}
        ours.create(team, a_pod("kept", slots=2, priority_class=LOW, node="kwok-0", **lowest))
        ours.running(team, "kept")
        ours.create(team, a_pod("preemptor", slots=1, priority_class=HIGH, node="kwok-0"))
        wait_for("the scheduler is refused", lambda: ours.calls(team))
        assert "its node is not lent" in ours.delete_as_scheduler(team, "kept")
        assert {call.code for call in ours.calls(team)} == {429}


def test_a_toleration_protects_until_it_ends_and_then_the_pod_is_notified_and_deleted(
    ours: GuardedCluster,
) -> None:
    # Use a node with no recent refusals: each refusal lengthens the times that follow.
    with ours.namespace("tolerates") as team:
        ours.create(
            team,
            a_pod(
                "tolerant",
                slots=2,
                priority_class=TOLERANT_FOR_NOW,
                node="kwok-1",
                annotations=HINT,
            ),
        )
        ours.running(team, "tolerant")
        ours.create(team, a_pod("preemptor", slots=1, priority_class=HIGH, node="kwok-1"))
        ends_at = scheduled_at(ours, team, "tolerant") + timedelta(seconds=TOLERATION_SECONDS)
        wait_for("the scheduler is refused", lambda: ours.calls(team))
        assert ours.calls(team)[0].at < ends_at
        notified = ours.wait_phase(team, "tolerant", "hinted", "checkpointing")
        state = json.loads(notified["metadata"]["annotations"]["reprieve.dev/eviction"])
        asked_at = datetime.fromisoformat(state["requestedAt"])
        assert 0 <= (asked_at - ends_at).total_seconds() < 30
        assert (state["source"], state["initiator"]) == ("koordinator", "kube-scheduler")
        ours.acknowledge_checkpoint(team, "tolerant")
        ours.running(team, "preemptor")
        ours.wait_gone(team, "tolerant")
        assert {call.code for call in ours.calls(team)} <= {429, 404}
        assert scenarios.rate(ours.calls(team)) <= 1


def test_a_system_critical_pod_preempts_a_protected_pod_after_notice(ours: GuardedCluster) -> None:
    with ours.namespace("critical") as team:
        kept = {"quota.scheduling.koordinator.sh/preemptible": "false"}
        ours.create(
            team,
            a_pod(
                "kept", slots=2, priority_class=LOW, node="kwok-0", labels=kept, annotations=HINT
            ),
        )
        ours.running(team, "kept")
        ours.create(
            team, a_pod("preemptor", slots=1, priority_class="system-node-critical", node="kwok-0")
        )
        notified = ours.wait_phase(team, "kept", "hinted", "checkpointing")
        state = json.loads(notified["metadata"]["annotations"]["reprieve.dev/eviction"])
        assert (state.get("source", "label"), state["cause"]) == ("label", "request")
        assert state["reason"].startswith("preempted by pod ")
        ours.acknowledge_checkpoint(team, "kept")
        ours.running(team, "preemptor")
        # The scheduler takes the room of a pod that has ended before that pod is gone.
        ours.wait_gone(team, "kept")
        assert {call.code for call in ours.calls(team)} <= {429, 404}


@needs_kubernetes(35, "nominated node of a pod that is being bound")
def test_a_system_critical_pod_that_is_being_bound_preempts_no_protected_pod(
    ours: GuardedCluster,
) -> None:
    with ours.namespace("binding") as team:
        kept = {"quota.scheduling.koordinator.sh/preemptible": "false"}
        ours.create(
            team,
            a_pod(
                "kept", slots=2, priority_class=LOW, node="kwok-0", labels=kept, annotations=HINT
            ),
        )
        ours.running(team, "kept")
        ours.create(team, *A_VOLUME_THAT_DOES_NOT_EXIST)
        binds = a_pod("binds", priority_class="system-node-critical", node="kwok-0")
        binds["spec"]["volumes"] = [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        ]
        ours.create(team, binds)
        found = ours.wait_until(
            "binds", team, "binds", lambda pod: pod["status"].get("nominatedNodeName") == "kwok-0"
        )
        assert "PodScheduled" not in [one["type"] for one in found["status"].get("conditions", [])]
        assert "this pod is non-preemptible" in ours.delete_as_scheduler(team, "kept")
        assert "reprieve.dev/soft-eviction" not in metadata(ours, team, "kept")["labels"]


def test_a_preemptor_gets_no_second_victim_set_while_its_first_is_unfinished(
    ours: GuardedCluster,
) -> None:
    """The test is the scheduler: a real one might change its mind once more in the meantime."""
    with ours.namespace("second") as team:
        for node in ("kwok-0", "kwok-1"):
            ours.create(
                team, a_pod(f"on-{node}", slots=2, priority_class=LOW, node=node, annotations=HINT)
            )
        ours.running(team, "on-kwok-0", "on-kwok-1")
        preemptor = a_pod("preemptor", slots=1, priority_class=HIGH)
        preemptor["spec"]["schedulerName"] = "nobody"
        ours.create(team, preemptor)
        uid = (ours.pod(team, "preemptor") or {})["metadata"]["uid"]
        nominate(ours, team, "kwok-0")
        ours.delete_as_scheduler(team, "on-kwok-0")
        wait_for("a victim is notified", lambda: names(ours, team, "hinted"))
        nominate(ours, team, "kwok-1")
        answer = ours.delete_as_scheduler(team, "on-kwok-1")
        assert "victims on another node are not gone yet" in answer
        assert uid not in answer
        assert "reprieve.dev/soft-eviction" not in metadata(ours, team, "on-kwok-1")["labels"]


def nominate(ours: GuardedCluster, team: str, node: str) -> None:
    """Nominate the preemptor to a node, as a scheduler that has found no room for it."""
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    status = {"nominatedNodeName": node, "conditions": [unschedulable]}
    ours.kubectl.read(
        "patch",
        "pod",
        "preemptor",
        "-n",
        team,
        "--subresource=status",
        "--type=merge",
        "-p",
        json.dumps({"status": status}),
    )


def test_only_once_the_operator_is_lost_a_victim_is_deleted_at_once(ours: GuardedCluster) -> None:
    """While it is replaced, drains and schedulers end no save; its Lease goes as it is removed."""
    with ours.namespace("nobody") as team:
        ours.create(
            team, a_pod("victim", slots=2, priority_class=LOW, node="kwok-0", annotations=HINT)
        )
        ours.running(team, "victim")
        with ours.installation.without(OPERATOR):
            lease = ours.kubectl.get("lease", LEASE, "-n", "reprieve-system")
            assert not lease["spec"].get("holderIdentity"), "it has given up its Lease"
            assert "asked to save" in try_as_scheduler(ours, team, "victim").stderr
            assert ours.evict(team, "victim") == 429
            ours.kubectl.read("delete", "lease", LEASE, "-n", "reprieve-system")
            gone = "the webhooks know that no operator leads"
            wait_for(gone, lambda: try_as_scheduler(ours, team, "victim").status == 0)
            ours.create(team, a_pod("preemptor", slots=1, priority_class=HIGH, node="kwok-0"))
            ours.running(team, "preemptor")
        assert {call.code for call in ours.calls(team)} == {200}


def test_without_webhooks_a_victim_is_deleted_at_once(ours: GuardedCluster) -> None:
    with ours.namespace("away") as team:
        ours.create(
            team, a_pod("victim", slots=2, priority_class=LOW, node="kwok-0", annotations=HINT)
        )
        ours.running(team, "victim")
        with ours.installation.without(WEBHOOKS):
            ours.create(team, a_pod("preemptor", slots=1, priority_class=HIGH, node="kwok-0"))
            ours.running(team, "preemptor")
        assert {call.code for call in ours.calls(team)} == {200}


def test_if_the_webhooks_hang_a_victim_is_deleted_at_the_api_servers_timeout(
    ours: GuardedCluster,
) -> None:
    with ours.namespace("hanging") as team:
        ours.create(
            team,
            *(
                a_pod(name, slots=1, priority_class=LOW, node="kwok-0", annotations=HINT)
                for name in ("drained", "victim")
            ),
        )
        ours.running(team, "drained", "victim")
        with hanging(ours, WEBHOOKS):
            began = time.monotonic()
            assert ours.evict(team, "drained") == 201
            assert time.monotonic() - began >= WAITED_FOR_SECONDS
            ours.create(
                team,
                a_pod("preemptor", slots=2, priority_class=HIGH, node="kwok-0", annotations=HINT),
            )
            ours.running(team, "preemptor")
        assert {call.code for call in ours.calls(team)} == {200}
        wait_for(
            "they answer again",
            lambda: "asked to save" in try_as_scheduler(ours, team, "preemptor").stderr,
        )


@contextmanager
def hanging(ours: GuardedCluster, program: str) -> Iterator[None]:
    """Have a program's port take connections and answer none for as long as the block runs."""
    pid = ours.installation.programs.pid(program)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def try_as_scheduler(ours: GuardedCluster, team: str, name: str) -> Done:
    """Try to delete a pod, as a scheduler, with nothing done."""
    return ours.kubectl.run(
        "delete", "pod", name, "-n", team, "--dry-run=server", f"--as={SCHEDULER}"
    )


@pytest.fixture
def deleting(ours: GuardedCluster) -> Iterator[None]:
    ours.set_policy(podShouldBeDeletedWhenPreempted="true")
    yield
    ours.set_policy(podShouldBeDeletedWhenPreempted="false")


@pytest.mark.usefixtures("deleting")
def test_if_the_policy_lets_preempted_pods_be_deleted_only_an_eviction_gives_notice(
    ours: GuardedCluster,
) -> None:
    with ours.namespace("deleted") as team:
        kept = {"quota.scheduling.koordinator.sh/preemptible": "false"}
        ours.create(
            team,
            a_pod(
                "kept", slots=1, priority_class=LOW, node="kwok-1", labels=kept, annotations=HINT
            ),
        )
        ours.create(
            team, a_pod("victim", slots=2, priority_class=LOW, node="kwok-0", annotations=HINT)
        )
        ours.running(team, "kept", "victim")
        wait_for("the policy holds", lambda: try_as_scheduler(ours, team, "victim").status == 0)
        assert "this pod is non-preemptible" in ours.delete_as_scheduler(team, "kept")
        ours.create(
            team, a_pod("preemptor", slots=2, priority_class=HIGH, node="kwok-0", annotations=HINT)
        )
        ours.running(team, "preemptor")
        assert {call.code for call in ours.calls(team) if call.name == "victim"} == {200}
        assert ours.evict(team, "preemptor") == 429
        ours.acknowledge_checkpoint(team, "preemptor")
        ours.wait_gone(team, "preemptor")


# Drains and evictions.


def test_a_drain_waits_until_the_pod_has_saved(ours: GuardedCluster) -> None:
    with ours.namespace("drained") as team:
        ours.create(
            team, a_pod("trains", slots=1, priority_class=LOW, node="kwok-0", annotations=HINT)
        )
        ours.create(team, a_pod("plain", slots=1, priority_class=LOW, node="kwok-0"))
        ours.running(team, "trains", "plain")
        try:
            with ThreadPoolExecutor() as threads:
                drain = threads.submit(drained, ours, team)
                ours.wait_gone(team, "plain")
                notified = ours.wait_phase(team, "trains", "hinted", "checkpointing")
                state = json.loads(notified["metadata"]["annotations"]["reprieve.dev/eviction"])
                assert state.get("source", "label") == "label"
                ours.acknowledge_checkpoint(team, "trains")
                done = drain.result(timeout=60)
        finally:
            ours.kubectl.read("uncordon", "kwok-0")
        assert done.returncode == 0, done.stderr
        assert "will retry after 5s" in done.stderr
        assert "asked to save a checkpoint" in done.stderr
        assert ours.pod(team, "trains") is None
        evictions = [
            call
            for call in ours.calls(team, ADMIN, "create")
            if call.name == "trains" and call.code != 201
        ]
        assert {call.code for call in evictions} <= {429, 404}
        assert evictions[0].code == 429


def test_a_drain_as_a_dry_run_marks_no_pod_and_ends(ours: GuardedCluster) -> None:
    with ours.namespace("tried") as team:
        ours.create(
            team, a_pod("trains", slots=1, priority_class=LOW, node="kwok-0", annotations=HINT)
        )
        ours.running(team, "trains")
        done = drained(ours, team, "--dry-run=server")
        assert done.returncode == 0, done.stderr
        assert "asked to save a checkpoint first" in done.stderr
        assert "reprieve.dev/soft-eviction" not in metadata(ours, team, "trains")["labels"]


@pytest.fixture
def low_ceiling(ours: GuardedCluster) -> Iterator[None]:
    ours.set_policy(ceiling="15s", checkpointTimeout="12s", maxDeferral="5s", nearCompletion="5s")
    yield
    ours.set_policy(ceiling="60s", checkpointTimeout="30s", maxDeferral="30s", nearCompletion="30s")


@pytest.mark.slow
@pytest.mark.usefixtures("low_ceiling")
def test_a_drain_does_not_delete_a_pod_that_a_budget_holds(ours: GuardedCluster) -> None:
    with ours.namespace("held") as team:
        ours.create(
            team,
            a_pod(
                "held",
                slots=1,
                priority_class=LOW,
                node="kwok-0",
                labels={"app": "db"},
                annotations=HINT,
            ),
        )
        ours.running(team, "held")
        uid = metadata(ours, team, "held")["uid"]
        budget(ours, team, at_least=0)
        try:
            with ThreadPoolExecutor() as threads:
                drain = threads.submit(drained, ours, team, "--timeout=30s")
                ours.wait_phase(team, "held", "hinted", "checkpointing")
                budget(ours, team, at_least=1)
                ours.acknowledge_checkpoint(team, "held")
                done = drain.result(timeout=60)
        finally:
            ours.kubectl.read("uncordon", "kwok-0")
        assert done.returncode != 0
        assert "its PodDisruptionBudget allows no eviction now" in done.stderr
        kept = metadata(ours, team, "held")
        assert kept["uid"] == uid
        assert "deletionTimestamp" not in kept
        state = json.loads(kept["annotations"]["reprieve.dev/eviction"])
        assert (state["phase"], state["outcome"], state["attempt"]) == (
            "cancelled",
            "held-by-budget",
            1,
        )
        reasons = [
            event["reason"]
            for event in ours.kubectl.get("events.v1.events.k8s.io", "-n", team)["items"]
        ]
        assert reasons.count("CheckpointRequested") == 1
        assert reasons.count("WaitingForBudget") == 1
        assert ours.calls(team, OPERATORS) == []
        assert {call.code for call in ours.calls(team, OPERATORS, "create")} == {429}
        budget(ours, team, at_least=0)
        wait_for(
            "it is notified again",
            lambda: ours.evict(team, "held") == 429 and names(ours, team, "hinted"),
        )
        ours.acknowledge_checkpoint(team, "held")
        ours.wait_gone(team, "held")
        assert ours.calls(team, OPERATORS) == []


def test_while_a_budget_allows_no_disruption_a_drain_waits_and_no_pod_is_notified(
    ours: GuardedCluster,
) -> None:
    with ours.namespace("unasked") as team:
        ours.create(
            team,
            a_pod(
                "held",
                slots=1,
                priority_class=LOW,
                node="kwok-0",
                labels={"app": "db"},
                annotations=HINT,
            ),
        )
        ours.running(team, "held")
        budget(ours, team, at_least=1)
        try:
            done = drained(ours, team, "--timeout=8s")
        finally:
            ours.kubectl.read("uncordon", "kwok-0")
        assert done.returncode != 0
        assert "its PodDisruptionBudget allows no eviction now" in done.stderr
        made, *evictions = [call.code for call in ours.calls(team, ADMIN, "create")]
        assert (made, set(evictions)) == (201, {429})
        kept = metadata(ours, team, "held")
        assert not {"reprieve.dev/soft-eviction", "reprieve.dev/checkpoint-request"} & {
            *kept["labels"],
            *kept["annotations"],
        }
        budget(ours, team, at_least=0)
        wait_for(
            "it is notified",
            lambda: ours.evict(team, "held") == 429 and names(ours, team, "hinted"),
        )
        ours.acknowledge_checkpoint(team, "held")
        ours.wait_gone(team, "held")


def test_an_eviction_is_performed_after_notice_for_every_class(ours: GuardedCluster) -> None:
    with ours.namespace("evicted") as team:
        kept = {"quota.scheduling.koordinator.sh/preemptible": "false"}
        ours.create(team, a_pod("kept", slots=1, node="kwok-0", labels=kept, annotations=HINT))
        ours.running(team, "kept")
        assert ours.evict(team, "kept") == 429
        ours.acknowledge_checkpoint(team, "kept")
        ours.wait_gone(team, "kept")
        assert ours.evict(team, "kept") == 404


def test_deletions_by_users_and_by_the_namespace_controller_are_not_delayed(
    ours: GuardedCluster,
) -> None:
    with ours.namespace("own") as team:
        ours.create(
            team, *(a_pod(name, node="kwok-0", annotations=HINT) for name in ("mine", "left"))
        )
        ours.running(team, "mine", "left")
        ours.kubectl.read("delete", "pod", "mine", "-n", team, "--wait=false")
        ours.wait_gone(team, "mine")
        ours.kubectl.read("delete", "namespace", team, "--wait=false")
        ours.wait_gone(team, "left")
        assert {call.code for call in ours.calls(team, ADMIN)} == {200}


# Rights.


def test_the_webhooks_may_write_the_mark_of_a_pod_and_nothing_else(ours: GuardedCluster) -> None:
    with ours.namespace("rights") as team:
        ours.create(team, a_pod("pod", node="kwok-0", labels={"a": "b"}))
        ours.running(team, "pod")
        for preemptor in ("uid-of-high", ""):
            said = {"metadata": {"annotations": {"reprieve.dev/preemptor": preemptor}}}
            assert "patched" in as_webhooks(ours, team, said)
        other: list[Any] = [
            {"metadata": {"annotations": {"reprieve.dev/preemptor": None}}},
            {"metadata": {"labels": {"a": "c"}}},
            {"metadata": {"labels": {"a": None}}},
            {"metadata": {"annotations": {"new": "one"}}},
            {"metadata": {"finalizers": ["example.com/held"]}},
            {"metadata": {"labels": {"reprieve.dev/soft-eviction": "hinted"}}},
            {"metadata": {"annotations": {"reprieve.dev/eviction": "{}"}}},
            {"spec": {"containers": [{"name": "main", "image": "another"}]}},
        ]
        for patch in other:
            assert "Forbidden" in as_webhooks(ours, team, patch) or "forbidden" in as_webhooks(
                ours, team, patch
            ), patch
        assert "patched" in as_webhooks(
            ours, team, {"metadata": {"labels": {"reprieve.dev/soft-eviction": "requested"}}}
        )
        assert "cannot delete" in as_webhooks(ours, team, None)


def as_webhooks(ours: GuardedCluster, team: str, patch: Any) -> str:
    """Return kubectl's output for a patch or a deletion with the webhooks' own identity."""
    who = "--as=system:serviceaccount:reprieve-system:reprieve-webhooks"
    words = (
        ["delete", "pod", "pod"] if patch is None else ["patch", "pod", "pod", "--type=strategic"]
    )
    done = ours.kubectl.run(
        *words, "-n", team, who, *([] if patch is None else ["-p", json.dumps(patch)])
    )
    return done.stdout + done.stderr


def drained(ours: GuardedCluster, team: str, *words: str) -> "subprocess.CompletedProcess[str]":
    kubectl = [str(build.bin_directory() / "kubectl"), f"--kubeconfig={ours.cluster.kubeconfig}"]
    selection = [
        "drain",
        "kwok-0",
        "--force",
        "--ignore-daemonsets",
        f"--pod-selector=drained-in={team}",
        *words,
    ]
    names_ = [item["metadata"]["name"] for item in ours.kubectl.get("pods", "-n", team)["items"]]
    ours.kubectl.read("label", "pods", "-n", team, *names_, f"drained-in={team}")
    return subprocess.run(
        kubectl + selection, capture_output=True, text=True, timeout=90, check=False
    )


def budget(ours: GuardedCluster, team: str, at_least: int) -> None:
    """Forbid any disruption of the pods of app `db`; wait until the disruption controller counted
    them.
    """
    spec = {"minAvailable": at_least, "selector": {"matchLabels": {"app": "db"}}}
    found = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "db"},
        "spec": spec,
    }
    ours.kubectl.read("-n", team, "apply", "-f", "-", stdin=json.dumps(found))

    def is_counted() -> bool:
        seen = ours.kubectl.get("pdb", "db", "-n", team)
        status = seen.get("status", {})
        is_seen = status.get("observedGeneration") == seen["metadata"]["generation"]
        return is_seen and status.get("currentHealthy", 0) > 0

    wait_for("the budget is counted", is_counted)


def scheduled_at(ours: GuardedCluster, team: str, name: str) -> datetime:
    conditions = (ours.pod(team, name) or {})["status"]["conditions"]
    (found,) = (one for one in conditions if one["type"] == "PodScheduled")
    return datetime.fromisoformat(found["lastTransitionTime"])


def names(ours: GuardedCluster, team: str, phase: str) -> list[str]:
    pods = ours.kubectl.get("pods", "-n", team, "-l", f"reprieve.dev/soft-eviction={phase}")[
        "items"
    ]
    return [pod["metadata"]["name"] for pod in pods]


def metadata(ours: GuardedCluster, team: str, name: str) -> Any:
    pod = ours.pod(team, name)
    assert pod is not None
    return {"labels": {}, "annotations": {}} | pod["metadata"]
