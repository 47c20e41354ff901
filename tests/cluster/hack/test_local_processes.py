"""A pod's local process sees what a container sees: signals, grace, files, address; its exit
counts.

The pod ends when the process ends.
"""

from __future__ import annotations

import http.client
import ipaddress
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from realcluster import volumes
from realcluster.local_processes.container import ANNOTATION, LOST
from reprieve_testing.cluster.hack_cluster import (
    NAMESPACE,
    SECONDS,
    OwnCluster,
    descendants,
    own_cluster,
    succeed,
)
from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.cluster.pod_programs import (
    HOLD,
    POD_IP,
    PODINFO,
    PODINFO_FILE,
    PODINFO_MOUNT,
    POLITE,
    READER,
    SERVER,
    STUBBORN,
    a_pod,
    delete,
    exit_code,
    http_status,
)
from reprieve_testing.manifests import EXAMPLES

pytestmark = pytest.mark.cluster

GRACE_SECONDS = 2
LATE_SECONDS = 30  # 0.1 are usual; a busy machine needs more
ONCE = {"restartPolicy": "Never"}
MOUNTS = {
    "volumeMounts": [{"name": "host", "mountPath": "/host"}, {"name": "own", "mountPath": "/own"}]
}
VOLUMES = [{"name": "host", "hostPath": {"path": "/test-procs"}}, {"name": "own", "emptyDir": {}}]


@pytest.fixture(scope="module")
def ours() -> Iterator[OwnCluster]:
    with own_cluster("test-procs", "--kwok-nodes", 1, "--local-processes") as cluster:
        yield cluster


def test_a_process_that_handles_term_ends_with_its_own_exit_code_within_its_grace_period(
    ours: OwnCluster,
) -> None:
    ours.create(local("polite", "python3", "-c", POLITE, finalizers=[HOLD]))
    ours.wait_output("polite", "ready")
    code, _ = delete(ours, "polite", grace_seconds=600).wait_ended()
    assert code == 3


def test_a_process_that_ignores_term_is_killed_after_its_grace_period(ours: OwnCluster) -> None:
    ours.create(local("stubborn", "python3", "-c", STUBBORN, finalizers=[HOLD]))
    ours.wait_output("stubborn", "ready")
    deletion = delete(ours, "stubborn", GRACE_SECONDS)
    ours.wait_output("stubborn", "told")
    code, seconds = deletion.wait_ended()
    assert code == 128 + signal.SIGKILL
    assert GRACE_SECONDS <= seconds < GRACE_SECONDS + LATE_SECONDS


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (7, "Failed")])
def test_a_pod_ends_with_its_process(ours: OwnCluster, code: int, phase: str) -> None:
    ours.create(local(f"exits-{code}", "sh", "-c", f"exit {code}", **ONCE))
    ended = ours.pod_once(f"exits-{code}", phase, lambda pod: pod["status"]["phase"] == phase)
    assert exit_code(ended) == code


def test_a_pod_without_the_annotation_is_simulated(ours: OwnCluster) -> None:
    ours.create(a_pod("simulated", "sh", "-c", "exit 7", **ONCE))
    ours.wait_running("simulated")
    ours.create(local("marker", "sh", "-c", "exit 0", **ONCE))
    ours.pod_once("marker", "ended by its process", has_exit_code)
    assert ours.wait_running("simulated")
    assert ours.hack("logs", f"pod-{NAMESPACE}-simulated").status == 1
    ours.kubectl.read("delete", "pod", "simulated", "-n", NAMESPACE, "--wait=false")
    ours.wait_pod_gone("simulated")


def test_a_host_path_outlives_the_pod_and_an_empty_dir_does_not(ours: OwnCluster) -> None:
    script = 'ls "$1/kept" && ! ls "$2/lost" || { : > "$1/kept"; : > "$2/lost"; exit 1; }'
    for name, code in {"first": 1, "second": 0}.items():
        ours.create(
            local(
                name,
                "sh",
                "-c",
                script,
                "sh",
                "/host",
                "/own",
                main=MOUNTS,
                volumes=VOLUMES,
                **ONCE,
            )
        )
        assert exit_code(ours.pod_once(name, "ended", has_exit_code)) == code


def test_a_changed_annotation_reaches_its_downward_api_file(ours: OwnCluster) -> None:
    ours.create(
        local(
            "informed", "python3", "-c", READER, PODINFO_FILE, main=PODINFO_MOUNT, volumes=[PODINFO]
        )
    )
    ours.wait_output("informed", f'{ANNOTATION}="true"')
    ours.kubectl.read("annotate", "pod", "informed", "-n", NAMESPACE, "example.com/asked=now")
    ours.wait_output("informed", 'example.com/asked="now"')


def test_a_process_listens_on_the_address_of_its_pod(ours: OwnCluster) -> None:
    ours.create(local("server", *SERVER, main={"env": [POD_IP]}))
    address = ours.wait_running("server")["status"]["podIP"]
    assert ipaddress.ip_address(address) in ipaddress.ip_network(ours.cluster.pod_cidr)
    assert (
        wait_for(f"an answer of {address}", lambda: http_status(address), SECONDS) == http.client.OK
    )


def test_the_claim_of_the_examples_gets_a_volume_and_another_up_replaces_a_used_one(
    ours: OwnCluster,
) -> None:
    claim = ("pvc", "checkpoints", "-n", NAMESPACE)
    wait_for_free_volumes(ours)
    ours.kubectl.read("apply", "-n", NAMESPACE, "-k", EXAMPLES / "checkpoints")
    bound = ("--for=jsonpath={.status.phase}=Bound", f"--timeout={SECONDS:g}s")
    ours.kubectl.read("wait", *claim, *bound)
    ours.kubectl.read("delete", *claim)
    wait_for("the volume is released", lambda: "Released" in volumes_by_phase(ours), SECONDS)
    succeed(ours.hack("up"))
    wait_for_free_volumes(ours)


def test_processes_die_with_a_killed_runner_and_up_runs_them_again(ours: OwnCluster) -> None:
    ours.create(local("survivor", "python3", "-c", POLITE))
    ours.wait_output("survivor", "ready")
    runner = ours.processes()["local-processes"]
    workloads = descendants(runner.pid)
    os.kill(runner.pid, signal.SIGKILL)
    wait_for(
        "the end of its processes",
        lambda: not any(process.is_alive() for process in workloads),
        SECONDS,
    )
    succeed(ours.hack("up"))
    again = ours.pod_once(
        "survivor",
        "started again",
        lambda pod: pod["status"]["containerStatuses"][0]["restartCount"],
    )
    assert again["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == LOST
    wait_for("its second start", lambda: ours.output("survivor").count("ready") >= 2, SECONDS)
    assert ours.output("survivor").count("ready") == 2


def local(name: str, *command: str, finalizers: Sequence[str] = (), **more: Any) -> Any:
    return a_pod(
        name,
        *command,
        metadata={"annotations": {ANNOTATION: "true"}, "finalizers": finalizers},
        **more,
    )


def wait_for_free_volumes(ours: OwnCluster) -> None:
    free = {"Available": volumes.FREE}
    wait_for("free volumes", lambda: Counter(volumes_by_phase(ours)) == free, SECONDS)


def volumes_by_phase(ours: OwnCluster) -> list[str]:
    return [volume["status"]["phase"] for volume in ours.kubectl.get("persistentvolumes")["items"]]


def has_exit_code(pod: Any) -> bool:
    return exit_code(pod) is not None
