"""`reprieve explain` of a pod whose native PodGroup states what it is defended with."""

import json
from pathlib import Path
from typing import Any

import pytest

from reprieve_cli.commands import explain
from reprieve_policy import keys
from reprieve_testing.servers.stub_api import stub_api

PODS = "/api/v1/namespaces/team/pods"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/team/podgroups"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
POD = {
    "metadata": {"name": "a", "namespace": "team", "uid": "a"},
    "spec": {"priority": 10, "schedulingGroup": {"podGroupName": "train"}},
    "status": {"phase": "Running"},
}
STATED = {keys.PREEMPTION_PRIORITY_CLASS: "urgent", keys.DISRUPTION_MODE: "gang"}


async def explained(folder: Path, capsys: pytest.CaptureFixture[str], **group: Any) -> Any:
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 5000}
    collections = {
        PODS: {"a": POD},
        GROUPS: {"train": {"metadata": {"name": "train", "namespace": "team"} | group}},
        CLASSES: {"urgent": urgent | {"metadata": {"name": "urgent"}}},
        "/api/v1/namespaces": {"team": {"kind": "Namespace", "metadata": {"name": "team"}}},
        "/api/v1/namespaces/reprieve-system/configmaps": {},
    }
    async with stub_api(folder, collections=collections) as (stub, api):
        stub.lists_released.set()
        assert await explain._explain(api, namespace="team", subject="a", is_json=True) == 0
    return json.loads(capsys.readouterr().out)


async def test_what_its_native_group_states_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = await explained(tmp_path, capsys, annotations=STATED)
    assert found["preemptionPriority"] == 5000
    assert any("is evicted as a unit" in step for step in found["steps"])


async def test_without_it_the_defaults_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = await explained(tmp_path, capsys)
    assert found["preemptionPriority"] == 0
    assert not any("is evicted as a unit" in step for step in found["steps"])
