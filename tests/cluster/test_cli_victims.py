"""`reprieve evict` and `reprieve watch` against a real API server and a running operator."""

import json
import os
import pty
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest

from reprieve_testing.cluster import ClusterHandle, Program, wait_for
from reprieve_testing.workload import HINT, Workload

pytestmark = pytest.mark.cluster

HTTP = {"reprieve.dev/checkpoint-hint": HINT, "reprieve.dev/checkpoint-timeout": "60s"}


@pytest.fixture(scope="module")
def operator(cluster: ClusterHandle) -> Iterator[Program]:
    cluster.set_policy()
    program = cluster.start_operator()
    program.wait_leading()
    yield program
    assert program.stop() == 0


@pytest.fixture
def namespace(cluster: ClusterHandle) -> Iterator[str]:
    with cluster.namespace("cli") as name:
        yield name


@pytest.mark.usefixtures("operator")
def test_a_person_evicts_a_pod_and_sees_it_saved_and_gone(cluster: ClusterHandle, namespace: str) -> None:
    pod = cluster.create_pod(namespace, "train", annotations=HTTP)
    with Workload(str(pod["status"]["podIP"])) as workload:
        workload.on_post = {"state": "saved", "step": 7}
        done = cluster.reprieve("evict", "train", "-n", namespace, "--wait", "--timeout", "1m")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == "pod/train soft eviction requested"
    assert done.stdout.splitlines()[-1].endswith(f"{namespace}/train  gone  saved at step 7")


@pytest.mark.usefixtures("operator")
def test_all_pods_of_a_workload_go_and_no_others(cluster: ClusterHandle, namespace: str) -> None:
    workload = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": "two", "namespace": namespace},
        "spec": {
            "replicas": 2,
            "selector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["two"]}]},
            "template": {
                "metadata": {"labels": {"app": "two"}},
                "spec": {"containers": [{"name": "main", "image": "none"}], "tolerations": [{"operator": "Exists"}]},
            },
        },
    }
    cluster.kubectl.apply(workload)
    cluster.create_pod(namespace, "other", labels={"app": "three"})
    pods = wait_for(
        "two pods",
        lambda: len(found := cluster.kubectl.get("pods", "-n", namespace, "-l", "app=two")["items"]) == 2 and found,
    )
    done = cluster.reprieve("evict", "replicaset/two", "-n", namespace, "--dry-run")
    wanted = sorted(f"pod/{pod['metadata']['name']} soft eviction requested (dry run)" for pod in pods)
    assert sorted(done.stdout.splitlines()) == wanted
    done = cluster.reprieve("evict", "rs/two", "-n", namespace)
    assert done.returncode == 2
    assert "not a pod's name, nor one of pod/NAME, job/NAME" in done.stderr
    done = cluster.reprieve("evict", "-l", "app in (two)", "-n", namespace)
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 2)
    for pod in pods:
        cluster.wait_gone(namespace, pod["metadata"]["name"])
    assert cluster.pod(namespace, "other") is not None


@pytest.mark.usefixtures("operator")
def test_one_that_was_spared_is_told_and_is_a_failure_to_evict(cluster: ClusterHandle, namespace: str) -> None:
    pod = cluster.create_pod(namespace, "spared", annotations=HTTP)
    with Workload(str(pod["status"]["podIP"])):
        words = cluster.reprieve_command("evict", "pod/spared", "-n", namespace, "--wait")
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as asking:
            cluster.wait_phase(namespace, "spared", "checkpointing")
            again = cluster.reprieve("evict", "spared", "-n", namespace)
            assert "pod/spared is already on its way (" in again.stdout
            cluster.kubectl.read("label", "pod", "spared", "-n", namespace, "reprieve.dev/soft-eviction-")
            out, _ = asking.communicate(timeout=30)
    assert asking.returncode == 1
    # The label is gone before the operator has written what came of it.
    assert "spared  cancelled" in out.splitlines()[-1]


def test_who_may_not_delete_a_pod_may_not_evict_it(cluster: ClusterHandle, namespace: str) -> None:
    cluster.create_pod(namespace, "kept")
    cluster.kubectl.read("create", "role", "label", "-n", namespace, "--verb=get,list,patch", "--resource=pods")
    cluster.kubectl.read(
        "create", "rolebinding", "label", "-n", namespace, "--role=label", f"--serviceaccount={namespace}:default"
    )
    kubeconfig = cluster.account_kubeconfig("default", namespace)
    done = cluster.reprieve("evict", "kept", "-n", namespace, kubeconfig=kubeconfig)
    assert done.returncode == 1
    assert "setting a soft-eviction mark needs the right to delete the pod" in done.stderr


@pytest.mark.usefixtures("operator")
def test_each_change_is_a_line_of_json_where_nobody_watches(cluster: ClusterHandle, namespace: str) -> None:
    pod = cluster.create_pod(namespace, "told", annotations=HTTP)
    words = cluster.reprieve_command("watch", "-n", namespace, "-o", "json")
    with Workload(str(pod["status"]["podIP"])) as workload, subprocess.Popen(words, stdout=subprocess.PIPE) as watching:
        # A test that waits for a line must not wait for ever.
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
    pod = cluster.create_pod(namespace, "seen", annotations=HTTP, labels={"reprieve.dev/preemption-class": "3"})
    with Workload(str(pod["status"]["podIP"])):
        cluster.mark(namespace, "seen")
        cluster.wait_phase(namespace, "seen", "checkpointing")
        ours, theirs = pty.openpty()
        environ = os.environ | {"TERM": "xterm", "COLUMNS": "120", "LINES": "20"}
        watching = subprocess.Popen(
            cluster.reprieve_command("watch", "-n", namespace), stdin=theirs, stdout=theirs, stderr=theirs, env=environ
        )
        os.close(theirs)
        try:
            shown = read_until(ours, ("checkpointing", "━", "s left"))
        finally:
            watching.send_signal(signal.SIGINT)
            assert watching.wait(10) == 130
            os.close(ours)
    assert "seen" in shown
    once = cluster.reprieve("watch", "--once", "-n", namespace)
    assert "\x1b" not in once.stdout
    assert f"{namespace}/seen  checkpointing" in once.stdout


def read_until(terminal: int, wanted: tuple[str, ...], seconds: float = 20.0) -> str:
    deadline, shown = time.monotonic() + seconds, b""
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 65536)
        text = shown.decode("utf-8", "replace")
        if all(part in text for part in wanted):
            return text
    raise AssertionError(f"not shown: {wanted}; but {shown!r}")
