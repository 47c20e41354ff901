"""A local process gets what the container would get, where a workload could notice."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from realcluster.local_processes import container
from realcluster.local_processes.container import Folders

FOLDERS = Folders(Path("/run/p"), Path("/run/h"))
NOW = "2026-01-02T03:04:05Z"


def a_pod(**container: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p",
            "namespace": "ns",
            "uid": "u",
            "annotations": {"b": 'say "hi"', "a": "1\n2"},
        },
        "spec": {
            "nodeName": "kwok-0",
            "restartPolicy": container.pop("policy", "Always"),
            "containers": [{"name": "c", **container}],
            "volumes": [
                {"name": "app", "configMap": {"name": "program"}},
                {
                    "name": "info",
                    "downwardAPI": {"items": [{"path": "annotations", "fieldRef": ANNOTATIONS}]},
                },
                {"name": "host", "hostPath": {"path": "/data/x"}},
                {"name": "empty", "emptyDir": {}},
            ],
        },
        "status": {
            "podIP": "127.20.0.5",
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True"},
                {"type": "PodScheduled", "status": "True"},
            ],
            "containerStatuses": [
                {"name": "c", "restartCount": 0, "ready": True, "state": {"running": {}}}
            ],
        },
    }


ANNOTATIONS = {"fieldPath": "metadata.annotations"}
MOUNTS = [
    {"name": "app", "mountPath": "/app"},
    {"name": "host", "mountPath": "/app/data/"},
    {"name": "empty", "mountPath": "/tmp", "subPath": "in"},
]


EXPANSIONS = {
    "a known name": ("to $(IP):1", "to 127.0.0.1:1"),
    "an unknown name stays": ("$(NONE)", "$(NONE)"),
    "two dollars are one": ("$$(IP)", "$(IP)"),
    "a shell's own variable": ("$IP ${IP}", "$IP ${IP}"),
}


@pytest.mark.parametrize(("text", "want"), EXPANSIONS.values(), ids=EXPANSIONS)
def test_variables_are_expanded_as_the_kubelet_does(text: str, want: str) -> None:
    assert container.expand(text, {"IP": "127.0.0.1"}) == want


PLACES = {
    "a file in a mount": ("/app/main.py", "/run/p/app/main.py"),
    "the mount itself": ("/app", "/run/p/app"),
    "the innermost mount": ("/app/data/x", "/run/h/path/data/x/x"),
    "an option's value": ("--out=/tmp/a", "--out=/run/p/empty/in/a"),
    "a name that only begins alike": ("/apples", "/apples"),
    "in the middle of a text": ("see /app", "see /app"),
}


@pytest.mark.parametrize(("word", "want"), PLACES.values(), ids=PLACES)
def test_mount_paths_become_local_folders(word: str, want: str) -> None:
    places = container.mounts(a_pod(volumeMounts=MOUNTS), FOLDERS)
    assert container.localize(word, places) == want


def test_the_command_runs_with_this_python_in_local_folders() -> None:
    pod = a_pod(command=["python3", "/app/main.py"], args=["--ip=$(IP)"], volumeMounts=MOUNTS)
    assert container.command(pod, {"IP": "1"}, FOLDERS) == [
        sys.executable,
        "/run/p/app/main.py",
        "--ip=1",
    ]


def test_without_a_command_the_images_own_runs() -> None:
    assert container.command(a_pod(args=["-V"]), {}, FOLDERS) == [sys.executable, "-V"]


def test_variables_come_from_fields_maps_and_earlier_variables() -> None:
    env = [
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "URL", "value": "http://$(IP)/$(LATER)"},
        {"name": "LATER", "value": "x"},
        {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "program", "key": "mode"}}},
        {"name": "NOTE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['b']"}}},
    ]
    found = container.environment(
        a_pod(env=env), {("configmaps", "program"): {"mode": "slow"}}, FOLDERS
    )
    want = {
        "IP": "127.20.0.5",
        "URL": "http://127.20.0.5/$(LATER)",
        "LATER": "x",
        "MODE": "slow",
        "NOTE": 'say "hi"',
    }
    assert found == want


def test_files_come_from_maps_and_from_the_pod_itself() -> None:
    found = container.files(a_pod(), {("configmaps", "program"): {"main.py": "pass"}}, FOLDERS)
    assert found == {
        Path("/run/p/app/main.py"): "pass",
        Path("/run/p/info/annotations"): 'a="1\\n2"\nb="say \\"hi\\""',
    }


def test_each_config_map_and_secret_is_named_once() -> None:
    env = [{"name": "K", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    assert container.references(a_pod(env=env)) == {("configmaps", "program"), ("secrets", "s")}


RESTARTS = {
    "always, whatever the code": ("Always", 0, True),
    "on failure": ("OnFailure", 1, True),
    "on failure, but it succeeded": ("OnFailure", 0, False),
    "never": ("Never", 1, False),
}


@pytest.mark.parametrize(("policy", "code", "want"), RESTARTS.values(), ids=RESTARTS)
def test_a_container_is_restarted_by_its_pods_policy(policy: str, code: int, *, want: bool) -> None:
    assert container.restarts(a_pod(policy=policy), code) is want


OUTCOMES = {
    "success": (0, "Succeeded", "Completed"),
    "killed": (137, "Failed", "Error"),
    "lost": (255, "Failed", "Unknown"),
}


@pytest.mark.parametrize(("code", "phase", "reason"), OUTCOMES.values(), ids=OUTCOMES)
def test_the_final_status_is_that_of_a_kubelet(code: int, phase: str, reason: str) -> None:
    status = container.final_status(a_pod(), code, NOW, NOW)
    assert status["phase"] == phase
    (reported,) = status["containerStatuses"]
    assert (
        reported["state"]["terminated"]["exitCode"],
        reported["state"]["terminated"]["reason"],
    ) == (code, reason)
    assert [condition["status"] for condition in status["conditions"]] == ["False", "True"]


def test_only_annotated_pods_are_run() -> None:
    pod = a_pod()
    assert not container.is_local(pod)
    pod["metadata"]["annotations"] = {container.ANNOTATION: "true"}
    assert container.is_local(pod)
