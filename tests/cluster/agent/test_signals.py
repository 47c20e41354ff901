"""Checkpoint signals to real containers.

The operator sends a signal once, where the namespace grants it and the container declares it;
otherwise the annotation carries the request.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from realcluster.real_nodes import node
from realcluster.real_nodes.config import LABEL, PAUSE_IMAGE
from realcluster.real_nodes.image import PYTHON_IMAGE
from reprieve_policy import keys
from reprieve_testing.cluster.hack_cluster import OwnCluster, own_cluster
from reprieve_testing.cluster.handle import Program, wait_for
from reprieve_testing.manifests import EXAMPLES

pytestmark = [pytest.mark.cluster, pytest.mark.real_node]

SECONDS = 60.0
HINT = "signal://USR1?container=main"
SAVED = f'{keys.CHECKPOINT_ANSWER}={{"state":"saved","step":7,"path":"/data/7"}}'
# This program counts its signals. A container beside it with the same program declares no signal.
COUNTS = """
import signal, sys
signal.signal(signal.SIGUSR1, lambda *_: print("signalled", flush=True))
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("ready", flush=True)
while True:
    signal.pause()
"""


@pytest.fixture(scope="module")
def ours() -> Iterator[OwnCluster]:
    if obstacle := node.can_run():
        pytest.skip(f"no real node can run here: {obstacle}")
    with own_cluster("test-signals", "--kwok-nodes", 0, "--real-nodes", 1) as cluster:
        cluster.install_operator_rights()
        try:
            yield cluster
        finally:
            cluster.stop_programs()


@pytest.fixture(scope="module")
def operator(ours: OwnCluster) -> Program:
    program = ours.start_operator()
    program.wait_leading()
    return program


@pytest.fixture
def granted(ours: OwnCluster) -> Iterator[str]:
    with ours.namespace("signals") as name:
        ours.kubectl.read("apply", "-n", name, "-f", EXAMPLES / "signal" / "rolebinding.yaml")
        yield name


@pytest.fixture
def ungranted(ours: OwnCluster) -> Iterator[str]:
    with ours.namespace("quiet") as name:
        yield name


def a_container(name: str, *command: str, image: str = PYTHON_IMAGE) -> Any:
    return {"name": name, "image": image, "imagePullPolicy": "Never", "command": command}


def start(ours: OwnCluster, namespace: str, *containers: Any, **spec: Any) -> None:
    """Start a pod whose container `main` declares the signal; wait until all its programs are
    ready.
    """
    annotations = {keys.CHECKPOINT_HINT: HINT, keys.CHECKPOINT_TIMEOUT: "60s"}
    metadata = {"name": "victim", "namespace": namespace, "annotations": annotations}
    spec = {
        "containers": containers,
        "nodeSelector": dict([LABEL]),
        "terminationGracePeriodSeconds": 2,
        **spec,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    ours.kubectl.read("create", "-f", "-", stdin=json.dumps(pod))
    ours.kubectl.read(
        "wait", "pod/victim", "-n", namespace, "--for=condition=Ready", f"--timeout={SECONDS:g}s"
    )
    for container in containers:
        if COUNTS in container["command"]:
            wait_for(
                "readiness",
                lambda name=container["name"]: "ready" in log(ours, namespace, name),
                SECONDS,
            )


def log(ours: OwnCluster, namespace: str, container: str = "main") -> str:
    return ours.kubectl.run("logs", "victim", "-c", container, "-n", namespace).stdout


def notes(ours: OwnCluster, namespace: str, reason: str) -> list[str]:
    items = ours.kubectl.get("events.v1.events.k8s.io", "-n", namespace)["items"]
    return [item["note"] for item in items if item["reason"] == reason]


def request_of(pod: Any) -> Any:
    return json.loads(pod["metadata"]["annotations"][keys.CHECKPOINT_REQUEST])


@pytest.mark.usefixtures("operator")
def test_a_declared_signal_arrives_once_and_its_answer_is_honoured(
    ours: OwnCluster, granted: str
) -> None:
    start(
        ours, granted, *(a_container(name, "python3", "-c", COUNTS) for name in ("main", "beside"))
    )
    ours.mark(granted, "victim")
    wait_for("the signal", lambda: "signalled" in log(ours, granted), SECONDS)
    request = request_of(ours.wait_phase(granted, "victim", "hinted"))
    assert request["attempt"] == 1
    assert log(ours, granted).count("signalled") == 1
    assert "signalled" not in log(ours, granted, "beside")
    ours.annotate(granted, "victim", SAVED)
    ours.wait_gone(granted, "victim", SECONDS)
    assert notes(ours, granted, "CheckpointSaved")
    assert not notes(ours, granted, "CheckpointHintByAnnotation")


@pytest.mark.usefixtures("operator")
def test_without_the_permission_in_the_namespace_the_annotation_carries_the_request(
    ours: OwnCluster, ungranted: str
) -> None:
    start(ours, ungranted, a_container("main", "python3", "-c", COUNTS))
    ours.mark(ungranted, "victim")
    events = wait_for(
        "an Event", lambda: notes(ours, ungranted, "CheckpointHintByAnnotation"), SECONDS
    )
    where = f"so the hint is in annotation {keys.CHECKPOINT_REQUEST} instead"
    assert events == [f"the operator may not use pods/exec in this namespace, {where}"]
    assert request_of(ours.pod(ungranted, "victim"))["attempt"] == 1
    assert "signalled" not in log(ours, ungranted)
    ours.annotate(ungranted, "victim", SAVED)
    ours.wait_gone(ungranted, "victim", SECONDS)
    assert notes(ours, ungranted, "CheckpointSaved")


@pytest.mark.usefixtures("operator")
def test_a_container_without_a_program_that_can_send_the_signal_is_reported(
    ours: OwnCluster, granted: str
) -> None:
    start(ours, granted, a_container("main", "/pause", image=PAUSE_IMAGE))
    ours.mark(granted, "victim")
    (event,) = wait_for(
        "an Event", lambda: notes(ours, granted, "CheckpointHintByAnnotation"), SECONDS
    )
    assert event.startswith("the container has neither kill nor /bin/sh, ")


@pytest.mark.usefixtures("operator")
def test_a_container_without_kill_is_signalled_by_its_shell(ours: OwnCluster, granted: str) -> None:
    start(ours, granted, a_container("main", "/usr/bin/python3", "-c", COUNTS) | NO_PATH)
    ours.mark(granted, "victim")
    wait_for("the signal", lambda: "signalled" in log(ours, granted), SECONDS)
    assert log(ours, granted).count("signalled") == 1


NO_PATH = {"env": [{"name": "PATH", "value": "/nowhere"}]}


@pytest.mark.usefixtures("operator")
def test_the_pods_own_first_process_is_never_signalled(ours: OwnCluster, granted: str) -> None:
    start(ours, granted, a_container("main", "python3", "-c", COUNTS), shareProcessNamespace=True)
    ours.mark(granted, "victim")
    (event,) = wait_for(
        "an Event", lambda: notes(ours, granted, "CheckpointHintByAnnotation"), SECONDS
    )
    assert event.startswith("process 1 of the container is not its own (shareProcessNamespace), ")
    assert request_of(ours.wait_phase(granted, "victim", "hinted"))["attempt"] == 1


def test_a_signal_is_sent_again_only_as_another_attempt(
    ours: OwnCluster, operator: Program, granted: str
) -> None:
    start(ours, granted, a_container("main", "python3", "-c", COUNTS))
    ours.mark(granted, "victim")
    wait_for("the signal", lambda: "signalled" in log(ours, granted), SECONDS)
    operator.kill()
    ours.start_operator().wait_leading()
    attempt = wait_for("another attempt", lambda: _attempt_after_first(ours, granted), SECONDS)
    wait_for("its signal", lambda: log(ours, granted).count("signalled") == attempt, SECONDS)


def _attempt_after_first(ours: OwnCluster, namespace: str) -> int:
    attempt = int(request_of(ours.pod(namespace, "victim"))["attempt"])
    return attempt if attempt > 1 else 0
