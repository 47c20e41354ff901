"""`reprieve status` against an API server: what it reads, and its exit status."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from reprieve_cli.cluster import installation
from reprieve_cli.commands import status
from reprieve_policy import keys
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Phase
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


async def test_ages_are_by_the_api_servers_clock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Beside the API server's, the clock of this machine is ten minutes ahead.
    server_now = datetime.now(UTC) - timedelta(minutes=10)
    state = eviction.Eviction(
        eviction_id="e1",
        phase=Phase.HINTED,
        requested_at=server_now,
        deadline=server_now + timedelta(minutes=1),
    )
    victim = {
        "namespace": "team",
        "name": "p",
        "uid": "p",
        "labels": {keys.SOFT_EVICTION: Phase.HINTED},
        "annotations": {keys.EVICTION: eviction.render(state)},
    }
    lease = {"holderIdentity": "operator-1", "leaseDurationSeconds": 15}
    collections: dict[str, dict[str, Any]] = {
        f"/apis/coordination.k8s.io/v1/{HOME}/leases": {
            "reprieve-operator": {"spec": lease | {"renewTime": timestamp.render(server_now)}}
        },
        "/api/v1/pods": {"p": {"metadata": victim}},
    }
    async with stub_api(tmp_path, collections=collections) as (stub, api):
        stub.lists_released.set()
        stub.date = format_datetime(server_now, usegmt=True)
        assert (await installation.read(api)).has_no_leader is False
        await status._show(api, is_json=True)
    rows = {row["subject"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["leader"]["health"] == "ok"
    assert rows["leader"]["detail"].startswith("operator-1, renewed its Lease ")
    assert "stuck" not in rows
