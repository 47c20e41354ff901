"""`reprieve status` against an API server: what it reads, and its exit status."""

import json
from pathlib import Path

import pytest

from reprieve_cli.commands import status
from reprieve_testing.servers.stub_api import stub_api

ADMISSION = "/apis/admissionregistration.k8s.io/v1"
HOME = "namespaces/reprieve-system"


async def test_a_cluster_without_reprieve_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = {
        f"{ADMISSION}/mutatingwebhookconfigurations/reprieve-webhooks",
        f"{ADMISSION}/validatingwebhookconfigurations/reprieve-webhooks",
        f"/apis/coordination.k8s.io/v1/{HOME}/leases/reprieve-operator",
        f"/apis/apps/v1/{HOME}/deployments/reprieve-operator",
        f"/apis/apps/v1/{HOME}/deployments/reprieve-webhooks",
        f"/api/v1/{HOME}/configmaps/reprieve-policy",
    }
    async with stub_api(tmp_path) as (stub, api):
        stub.lists_released.set()
        stub.absent |= absent
        assert await status._show(api, is_json=False) == 1
        assert capsys.readouterr().out.splitlines()[0].split() == ["installed", "problem", "no"]
        # Nothing else is read but the victims, and the pods of one namespace.
        pods = {"/api/v1/pods", "/api/v1/namespaces/kube-system/pods"}
        assert set(stub.calls) == absent | pods
        stub.absent.clear()
        stub.barred |= absent | pods
        assert await status._show(api, is_json=True) == 2
        rows = json.loads(capsys.readouterr().out)
        assert {row["health"] for row in rows} == {"unknown"}
