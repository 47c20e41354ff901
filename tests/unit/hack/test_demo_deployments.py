"""The programs of the demo as Deployments: found, ended, and killed like processes."""

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mainjob import deployments
from mainjob.deployments import Deployments
from realcluster.errors import ClusterError

NAME = "reprieve-operator"
POD = "reprieve-operator-1"
SLEEP = [sys.executable, "-c", "import time; time.sleep(60)", NAME]


class FakeKubectl:
    """A cluster with one pod, which is gone once its Deployment has no replicas."""

    def __init__(self, *, ready: str = "True") -> None:
        self.commands: list[tuple[str, ...]] = []
        conditions = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": ready}]
        self.pods: list[Any] = [
            {
                "metadata": {"name": POD},
                "status": {"podIP": "10.0.0.9", "conditions": conditions},
            }
        ]

    def get(self, *words: str) -> Any:
        assert words[0] == "pods"
        return {"items": self.pods}

    def find(self, *words: str) -> Any:
        return {"kind": words[0]}

    def read(self, *words: str) -> str:
        self.commands.append(words)
        if words[-1] == "--replicas=0":
            self.pods = []
        return ""


def programs(kubectl: FakeKubectl) -> Deployments:
    return Deployments(kubectl)  # type: ignore[arg-type]


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """The process of the pod's container: its host name is that of the pod."""
    with subprocess.Popen(SLEEP, env={"HOSTNAME": POD}) as found:
        yield found
        found.kill()


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployments, "READY_SECONDS", 10.0)


def test_a_kill_ends_the_process_of_the_pod_and_leaves_the_deployment(
    process: subprocess.Popen[bytes],
) -> None:
    kubectl = FakeKubectl()
    here = programs(kubectl)
    while here.pid(NAME) is None:  # until it has its own environment
        time.sleep(0.01)
    assert here.pid(NAME) == process.pid
    here.stop(NAME, kill=True)
    assert process.wait(10) == -9
    assert kubectl.commands == []


def test_without_a_process_of_the_pod_on_this_machine_a_kill_is_an_error() -> None:
    with pytest.raises(ClusterError, match="no process on this machine"):
        programs(FakeKubectl()).stop(NAME, kill=True)


def test_a_stop_waits_until_the_deployment_has_no_pods() -> None:
    kubectl = FakeKubectl()
    here = programs(kubectl)
    here.stop(NAME)
    assert kubectl.pods == []
    here.start(NAME)
    assert [words[-1] for words in kubectl.commands] == ["--replicas=0", "--replicas=1"]


def test_only_a_pod_that_is_ready_and_stays_is_read() -> None:
    ready = FakeKubectl()
    assert programs(ready).url(NAME, "/metrics") == "http://10.0.0.9:8081/metrics"
    leaves = FakeKubectl()
    leaves.pods[0]["metadata"]["deletionTimestamp"] = "2026-11-27T12:00:00Z"
    for kubectl in (FakeKubectl(ready="False"), leaves):
        with pytest.raises(OSError, match="no pod that is ready"):
            programs(kubectl).read(NAME, "/metrics")


def test_a_program_that_does_not_get_ready_is_an_error_with_the_command_for_its_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deployments, "READY_SECONDS", 0.0)
    with pytest.raises(ClusterError, match=f"is not ready.*kubectl logs deployment/{NAME}"):
        programs(FakeKubectl(ready="False")).wait_until_ready(NAME)
