"""The main job on an unmodified scheduler: a preemption or a drain of the node loses no work."""

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from mainjob import installation, workload
from mainjob.installation import Installation, Nodes
from mainjob.narrator import Narrator
from mainjob.session import Session
from realcluster.binaries import build
from realcluster.local_processes.container import ANNOTATION
from realcluster.progress import Progress
from realcluster.real_nodes import node
from realcluster.real_nodes.image import PYTHON_IMAGE
from reprieve_testing.cluster.handle import cleared, wait_for
from reprieve_testing.guard.guarded_cluster import CPU, a_priority_class

pytestmark = pytest.mark.cluster

HIGH, LOW = "main-high", "main-low"
OF_JOB = ("-l", "batch.kubernetes.io/job-name=training")
SECONDS = 90.0


@dataclass(frozen=True)
class Place:
    """The one node of these tests; it has room for one of the two pods."""

    installation: Installation
    node: str

    @property
    def extra(self) -> dict[str, str]:
        return {ANNOTATION: "true"} if self.installation.nodes is Nodes.LOCAL else {}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(False, id="simulated", marks=pytest.mark.slow),
        pytest.param(True, id="real", marks=pytest.mark.real_node),
    ],
)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    is_real = bool(request.param)
    if is_real and (obstacle := node.can_run()):
        pytest.skip(f"no real node can run here: {obstacle}")
    cluster = "guard-main" if is_real else "guard-main-simulated"
    with cleared(cluster):
        here = installation.bring_up(cluster, Progress(), prefer_real=is_real)
        found = Place(here, f"{cluster}-real-0" if is_real else "kwok-0")
        capacity = json.dumps({"status": {"capacity": {CPU: "1"}, "allocatable": {CPU: "1"}}})
        here.kubectl.read(
            "patch", "node", found.node, "--subresource=status", "--type=merge", "-p", capacity
        )
        for each in (a_priority_class(HIGH, 1000), a_priority_class(LOW, 10)):
            here.kubectl.apply(each)
        yield found


@pytest.fixture
def session(place: Place) -> Iterator[Session]:
    found = Session(place.installation, Narrator(), "guard-main-job")
    found.make_namespace()
    yield found
    # The next test needs the node.
    place.installation.remove_namespaces(found.namespace)


def test_a_preemptor_gets_the_node_after_the_training_saved_and_its_replacement_resumes(
    place: Place, session: Session
) -> None:
    first = start_training(place, session)
    session.quiet.apply(a_preemptor(place, session))
    left = wait_for("the training goes", lambda: state_without(session, first), SECONDS)
    assert left["checkpoint"]["step"] > 0
    assert (left["source"], left["initiator"], left["cause"]) == (
        "koordinator",
        "kube-scheduler",
        "priority",
    )
    wait_for("the preemptor runs", lambda: running(session, "preemptor") == place.node, SECONDS)
    session.quiet.read(
        "delete", "pod", "preemptor", "-n", session.namespace, "--grace-period=1", "--wait=false"
    )
    assert resumes(session, first, left["checkpoint"]["step"])
    requests = deletions(place, session, first)
    # Once the pod is terminating, another deletion by any user changes nothing.
    accepted = next(user for user, code in requests if code == 200)
    assert accepted == "system:serviceaccount:reprieve-system:reprieve-operator"
    assert ("system:kube-scheduler", 404) in requests


def test_a_drain_ends_after_the_training_saved_and_its_replacement_resumes(
    place: Place, session: Session
) -> None:
    first = start_training(place, session)
    kubectl = [str(build.bin_directory() / "kubectl"), f"--kubeconfig={session.quiet.kubeconfig}"]
    words = [
        "drain",
        place.node,
        "--force",
        "--ignore-daemonsets",
        f"--pod-selector={OF_JOB[1]}",
        "--timeout=80s",
    ]
    try:
        with ThreadPoolExecutor() as threads:
            done = threads.submit(
                subprocess.run,
                kubectl + words,
                capture_output=True,
                text=True,
                timeout=90,
                check=False,
            )
            left = wait_for("the training goes", lambda: state_without(session, first), SECONDS)
            assert done.result().returncode == 0, done.result().stderr
    finally:
        session.quiet.read("uncordon", place.node)
    assert left["checkpoint"]["step"] > 0
    assert left["cause"] == "request"
    assert resumes(session, first, left["checkpoint"]["step"])


_SEEN: dict[str, Any] = {}


def start_training(place: Place, session: Session) -> str:
    """Apply the tree's own example at low priority; it requests the one slot. Return its running
    pod.
    """
    _SEEN.clear()
    items = workload._rendered(session)
    for item in items:
        if item["kind"] == "Job":
            template = item["spec"]["template"]
            template["metadata"]["annotations"] |= place.extra
            template["spec"] |= {
                "priorityClassName": LOW,
                "nodeSelector": {"kubernetes.io/hostname": place.node},
            }
            for asked in ("requests", "limits"):
                template["spec"]["containers"][0].setdefault("resources", {}).setdefault(asked, {})[
                    CPU
                ] = "1"
    session.quiet.apply(
        *[
            {**item, "metadata": {**item["metadata"], "namespace": session.namespace}}
            for item in items
        ]
    )
    return workload.wait_for_pod(session, *OF_JOB)


def a_preemptor(place: Place, session: Session) -> Any:
    container = {
        "name": "main",
        "image": PYTHON_IMAGE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", "import time; time.sleep(600)"],
        "resources": {"requests": {CPU: "1"}, "limits": {CPU: "1"}},
    }
    spec = {
        "priorityClassName": HIGH,
        "nodeSelector": {"kubernetes.io/hostname": place.node},
        "terminationGracePeriodSeconds": 1,
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
    metadata = {"name": "preemptor", "namespace": session.namespace, "annotations": place.extra}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def state_without(session: Session, name: str) -> Any:
    """Return the last state that a pod was seen with, once the pod is gone."""
    pod = session.quiet.find("pod", name, "-n", session.namespace)
    if pod is None:
        return _SEEN.get(name)
    if text := pod["metadata"].get("annotations", {}).get("reprieve.dev/eviction"):
        _SEEN[name] = json.loads(text)
    return None


def running(session: Session, name: str) -> str:
    """Return the node on which a pod runs."""
    pod = session.quiet.find("pod", name, "-n", session.namespace)
    is_running = pod is not None and pod["status"].get("phase") == "Running"
    return str(pod["spec"]["nodeName"]) if pod is not None and is_running else ""


def resumes(session: Session, first: str, step: int) -> bool:
    second = workload.wait_for_pod(session, *OF_JOB, but=first)
    return f"resuming from step {step}" in workload.log_of(session, second)


def deletions(place: Place, session: Session, name: str) -> list[tuple[str, int]]:
    """Return the users that requested the pod's deletion, with the answers, oldest first."""
    assert place.installation.audit_log is not None
    entries = map(json.loads, place.installation.audit_log.read_text().splitlines())
    return [
        (entry["user"]["username"], entry["responseStatus"]["code"])
        for entry in entries
        if entry["stage"] == "ResponseComplete"
        and (entry["verb"], entry["objectRef"].get("name"), entry["objectRef"].get("namespace"))
        == ("delete", name, session.namespace)
    ]
