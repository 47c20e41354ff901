"""`reprieve evict` and `reprieve watch` against a real API server and a running operator."""

import json
import os
import pty
import select
import signal
import subprocess
import threading
import time
from typing import Any

import pytest

from reprieve_testing.cluster.handle import ClusterHandle, wait_for
from reprieve_testing.servers.workload import HINT, Workload

pytestmark = pytest.mark.cluster

HTTP = {"reprieve.dev/checkpoint-hint": HINT, "reprieve.dev/checkpoint-timeout": "60s"}
WITH_INITIATOR = {
    "scheduling.koordinator.sh/soft-eviction": (
        '{"initiator":"koord-descheduler","reason":"the node is hot"}'
    ),
}
CYAN = "\x1b[36m"


@pytest.mark.usefixtures("operator")
def test_a_user_evicts_a_pod_and_sees_that_it_saved_and_is_gone(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = cluster.create_pod(namespace, "train", annotations=HTTP)
    with Workload(str(pod["status"]["podIP"])) as workload:
        workload.on_post = {"state": "saved", "step": 7}
        done = cluster.reprieve("evict", "train", "-n", namespace, "--wait")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "pod/train soft eviction requested"
    assert done.stdout.splitlines()[-1].endswith(f"{namespace}/train  gone  saved at step 7")


@pytest.mark.usefixtures("operator")
def test_all_pods_of_a_workload_are_evicted_and_no_others(
    cluster: ClusterHandle, namespace: str
) -> None:
    pods = two_pods_of(cluster, namespace, "ReplicaSet")
    cluster.create_pod(namespace, "other", labels={"app": "three"})
    done = cluster.reprieve("evict", "daemonset/two", "-n", namespace)
    assert done.returncode == 2
    assert "must be the name of a pod, or one of pod/NAME, job/NAME" in done.stderr
    done = cluster.reprieve("evict", "-l", "app in (two)", "-n", namespace)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
    for pod in pods:
        cluster.wait_gone(namespace, pod["metadata"]["name"])
    assert cluster.pod(namespace, "other") is not None


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    "kind",
    [
        "Deployment",
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ReplicaSet", "StatefulSet")),
    ],
)
def test_a_workload_of_any_kind_is_named_with_its_name(
    cluster: ClusterHandle, namespace: str, kind: str
) -> None:
    pods = two_pods_of(cluster, namespace, kind)
    cluster.create_pod(namespace, "other", labels={"app": "three"})
    done = cluster.reprieve("evict", f"{kind.lower()}/two", "-n", namespace, "--dry-run")
    wanted = sorted(
        f"pod/{pod['metadata']['name']} soft eviction requested (dry run)" for pod in pods
    )
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, wanted)


def two_pods_of(cluster: ClusterHandle, namespace: str, kind: str) -> list[Any]:
    """Make a workload `two`, whose pods have the label `app: two`, and return them."""
    spec = {
        "replicas": 2,
        "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["two"]}]},
        "template": {
            "metadata": {"labels": {"app": "two"}},
            "spec": {
                "containers": [{"name": "main", "image": "none"}],
                "tolerations": [{"operator": "Exists"}],
            },
        },
        **(
            {"serviceName": "two", "podManagementPolicy": "Parallel"}
            if kind == "StatefulSet"
            else {}
        ),
    }
    metadata = {"name": "two", "namespace": namespace}
    cluster.kubectl.apply(
        {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}
    )

    def found() -> Any:
        return cluster.kubectl.get("pods", "-n", namespace, "-l", "app=two")["items"]

    return list(wait_for("two pods", lambda: len(pods := found()) == 2 and pods))


def test_a_selector_finds_pods_of_all_namespaces_if_requested(
    cluster: ClusterHandle, namespace: str
) -> None:
    with cluster.namespace("cli") as other:
        for place in (namespace, other):
            cluster.create_pod(place, f"of-{place}", labels={"app": namespace})
        cluster.create_pod(other, "another")
        done = cluster.reprieve("evict", "-A", "-l", f"app={namespace}", "--dry-run")
    wanted = {f"pod/of-{place} soft eviction requested (dry run)" for place in (namespace, other)}
    assert (done.returncode, set(done.stdout.splitlines())) == (0, wanted)
    done = cluster.reprieve("evict", f"of-{namespace}", "-A")
    assert (done.returncode, done.stdout) == (2, "")
    assert "-A needs a selector (-l)" in done.stderr


@pytest.mark.usefixtures("operator")
def test_all_pods_of_a_job_are_evicted_and_no_others(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "none"}],
        "tolerations": [{"operator": "Exists"}],
    }
    for name in ("two", "other"):
        spec = {"parallelism": 2, "completions": 2, "template": {"spec": pod}}
        metadata = {"name": name, "namespace": namespace}
        cluster.kubectl.apply(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        )

    def pods_of(job: str) -> set[str]:
        found = cluster.kubectl.get("pods", "-n", namespace, "-l", f"job-name={job}")["items"]
        return {pod["metadata"]["name"] for pod in found if pod["status"]["phase"] == "Running"}

    first, others = (
        wait_for("two pods", lambda job=job: len(p := pods_of(job)) == 2 and p)
        for job in ("two", "other")
    )
    done = cluster.reprieve("evict", "job/two", "-n", namespace)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.splitlines()) == {
        f"pod/{name} soft eviction requested" for name in first
    }
    for name in first:
        cluster.wait_gone(namespace, name)
    assert pods_of("other") == others
    done = cluster.reprieve("evict", "job/three", "-n", namespace)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"reprieve: job/three: not found in namespace {namespace}\n"


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize(
    "words",
    [("--timeout", "2s"), pytest.param(("--timeout", "2s", "--wait"), marks=pytest.mark.slow)],
)
def test_a_wait_that_times_out_reports_how_many_pods_are_left(
    cluster: ClusterHandle, namespace: str, words: tuple[str, ...]
) -> None:
    pod = cluster.create_pod(namespace, "slow", annotations=HTTP)
    with Workload(str(pod["status"]["podIP"])):
        done = cluster.reprieve("evict", "slow", "-n", namespace, *words)
        assert (done.returncode, done.stderr) == (1, "reprieve: timed out: 1 of 1 pods remain\n")
        assert done.stdout.splitlines()[0] == "pod/slow soft eviction requested"
        # It stops waiting, and nothing else.
        assert (
            cluster.wait_phase(namespace, "slow", "checkpointing")["metadata"].get(
                "deletionTimestamp"
            )
            is None
        )


@pytest.mark.usefixtures("operator")
def test_a_spared_pod_is_reported_as_a_failure_to_evict(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = cluster.create_pod(namespace, "spared", annotations=HTTP)
    with Workload(str(pod["status"]["podIP"])):
        words = cluster.reprieve_command("evict", "pod/spared", "-n", namespace, "--wait")
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as asking:
            cluster.wait_phase(namespace, "spared", "checkpointing")
            again = cluster.reprieve("evict", "spared", "-n", namespace)
            assert "pod/spared is already being evicted (" in again.stdout
            done = cluster.reprieve("cancel", "spared", "-n", namespace)
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.startswith("pod/spared soft eviction cancelled; it was: ")
            out, _ = asking.communicate(timeout=30)
    assert asking.returncode == 1
    # The label is gone before the operator has written what came of it.
    assert "spared  cancelled" in out.splitlines()[-1]


def test_a_user_who_may_not_delete_a_pod_may_not_evict_it(
    cluster: ClusterHandle, namespace: str
) -> None:
    cluster.create_pod(namespace, "kept")
    cluster.kubectl.read(
        "create", "role", "label", "-n", namespace, "--verb=get,list,patch", "--resource=pods"
    )
    cluster.kubectl.read(
        "create",
        "rolebinding",
        "label",
        "-n",
        namespace,
        "--role=label",
        f"--serviceaccount={namespace}:default",
    )
    kubeconfig = cluster.account_kubeconfig("default", namespace)
    done = cluster.reprieve("evict", "kept", "-n", namespace, kubeconfig=kubeconfig)
    assert done.returncode == 1
    assert "setting a soft-eviction mark needs the right to delete the pod" in done.stderr


@pytest.mark.usefixtures("operator")
def test_each_change_is_a_line_of_json_without_a_terminal(
    cluster: ClusterHandle, namespace: str
) -> None:
    pod = cluster.create_pod(namespace, "told", annotations=HTTP)
    words = cluster.reprieve_command("watch", "-n", namespace, "-o", "json")
    with (
        Workload(str(pod["status"]["podIP"])) as workload,
        subprocess.Popen(words, stdout=subprocess.PIPE) as watching,
    ):
        # Without this, a test that waits for a line could wait without end.
        alarm = threading.Timer(60, watching.kill)
        alarm.start()
        assert watching.stdout is not None
        cluster.mark(namespace, "told")
        lines = [json.loads(watching.stdout.readline())]
        workload.state = {"state": "saved", "step": 3, "path": "/data/3"}
        while lines[-1]["phase"] != "gone":
            lines.append(json.loads(watching.stdout.readline()))
        watching.terminate()
        assert watching.wait(10) == 143
        alarm.cancel()
    phases = [line["phase"] for line in lines]
    assert phases[-2:] == ["terminating", "gone"]
    assert {line["pod"] for line in lines} == {"told"}
    assert lines[-1]["checkpoint"]["step"] == 3
    assert lines[-1]["outcome"] == "saved"


@pytest.mark.usefixtures("operator")
def test_on_a_terminal_there_is_a_table_with_a_bar(cluster: ClusterHandle, namespace: str) -> None:
    pod = cluster.create_pod(
        namespace, "seen", annotations=HTTP, labels={"reprieve.dev/preemption-class": "3"}
    )
    with Workload(str(pod["status"]["podIP"])):
        cluster.mark(namespace, "seen")
        cluster.wait_phase(namespace, "seen", "checkpointing")
        shown = watch_on_a_terminal(cluster, namespace, ("checkpointing", "━", "s left"))
    assert "seen" in shown
    once = cluster.reprieve("watch", "--once", "-n", namespace)
    assert "\x1b" not in once.stdout
    assert f"{namespace}/seen  checkpointing" in once.stdout


@pytest.mark.usefixtures("operator")
def test_the_initiator_is_in_the_table_in_each_line_and_in_json(
    cluster: ClusterHandle, namespace: str
) -> None:
    # A scheduler's mark lets the pod finish: this phase is shown in colour.
    cluster.create_pod(
        namespace, "asked", annotations=HTTP | WITH_INITIATOR, spec={"activeDeadlineSeconds": 200}
    )
    cluster.wait_phase(namespace, "asked", "reprieved")
    watch_on_a_terminal(
        cluster,
        namespace,
        (f"{CYAN}reprieved", "INITIATOR", "by koord-descheduler", "near-completion"),
    )
    line = cluster.reprieve("watch", "--once", "-n", namespace).stdout
    assert "\x1b" not in line
    assert line.rstrip().endswith("left  by koord-descheduler  near-completion")
    shown = json.loads(cluster.reprieve("watch", "--once", "-o", "json", "-n", namespace).stdout)
    assert (shown["initiator"], shown["reason"], shown["cause"]) == (
        "koord-descheduler",
        "the node is hot",
        "priority",
    )


def watch_on_a_terminal(cluster: ClusterHandle, namespace: str, wanted: tuple[str, ...]) -> str:
    """Run `reprieve watch` on a terminal until all of that is there; return all that it showed."""
    ours, theirs = pty.openpty()
    environ = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "20"}
    watching = subprocess.Popen(
        cluster.reprieve_command("watch", "-n", namespace),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environ,
    )
    os.close(theirs)
    try:
        return read_until(ours, wanted)
    finally:
        watching.send_signal(signal.SIGINT)
        assert watching.wait(10) == 130
        os.close(ours)


def read_until(terminal: int, wanted: tuple[str, ...], seconds: float = 20.0) -> str:
    deadline, shown = time.monotonic() + seconds, b""
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 65536)
        text = shown.decode("utf-8", "replace")
        if all(part in text for part in wanted):
            return text
    raise AssertionError(f"not shown: {wanted}; but {shown!r}")
