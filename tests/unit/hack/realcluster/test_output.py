"""Progress for a waiting user, and small parts of the cluster."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from realcluster import cli, progress
from realcluster.control_plane import keys
from realcluster.progress import Progress
from realcluster.simulated_nodes import kwok


def test_a_task_without_a_terminal_is_one_line_when_it_is_quick() -> None:
    output = io.StringIO()
    with Progress(output).task("waiting for X") as task:
        task.tick("detail")
    assert output.getvalue() == "waiting for X: 0.0 s\n"


def test_a_long_task_without_a_terminal_reports_from_time_to_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    output = io.StringIO()
    with Progress(output).task("building") as task:
        task.tick("a/package")
    assert output.getvalue().splitlines() == ["building … 0 s  a/package", "building: 0.0 s"]


def test_a_failed_task_is_reported() -> None:
    output = io.StringIO()
    with pytest.raises(ValueError, match="no"), Progress(output).task("building"):
        raise ValueError("no")
    assert output.getvalue() == "building: failed after 0.0 s\n"


def test_the_service_account_key_is_a_valid_p256_key() -> None:
    key = load_pem_private_key(keys.new_ec_private_key().encode(), password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)


NODE: dict[str, Any] = {"spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}


def test_a_node_is_ready_only_without_its_first_taint() -> None:
    tainted = NODE | {
        "spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}
    }
    assert kwok.is_ready(NODE)
    assert not kwok.is_ready(tainted)
    assert not kwok.is_ready({"spec": {}, "status": {}})


def test_simulated_nodes_carry_the_annotation_that_kwok_selects_by() -> None:
    node = kwok.node("kwok-0")
    assert node["metadata"]["annotations"] == {"kwok.x-k8s.io/node": "fake"}
    assert json.loads(json.dumps(node)) == node


@pytest.mark.parametrize(
    "command", ["up", "down", "status", "kubeconfig", "logs", "start", "stop", "build", "bin"]
)
def test_every_command_explains_itself_and_takes_a_name(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main([command, "--help"])
    assert ended.value.code == 0
    assert "--name" in capsys.readouterr().out
