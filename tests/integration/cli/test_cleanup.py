"""`reprieve cleanup` where a kind cannot be listed, or one object fails: it cleans the others."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from reprieve_cli.cluster.connection import ClusterTarget
from reprieve_cli.commands import cleanup
from reprieve_policy import keys
from reprieve_policy.kube.owners import LEDGER_KINDS
from reprieve_policy.kube.values import timestamp
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_testing.servers.stub_api import StubApi, stub_api

TARGET = ClusterTarget(kubeconfig=None, context=None, namespace="team")
OPERATOR = cleanup._OperatorLocation("reprieve-system", "reprieve-operator")
PODS = object_path("pods", "team")
OWNERS = [object_path(owner.resource, "team") for owner in LEDGER_KINDS.values()]
JOBS = object_path("jobs", "team")
RECORDS = object_path("controllerrevisions", OPERATOR.namespace)
LEASES = object_path("leases", OPERATOR.namespace)
PENDING = (
    "team/pod/train is still to be recreated: its manifest is only in controllerrevision/r in "
    "namespace reprieve-system\n"
)


def with_ledger(name: str, **labels: str) -> Any:
    metadata = {"namespace": "team", "name": name, "uid": f"uid-{name}", "labels": labels}
    return {"metadata": metadata | {"annotations": {keys.LEDGER: "{}"}}}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[StubApi, Api]]:
    """Serve a victim, an owner of each kind with a ledger, and a bare pod to be recreated."""
    victim = {"namespace": "team", "name": "x", "labels": {keys.SOFT_EVICTION: "hinted"}}
    record = {
        "name": "r",
        "labels": {keys.BARE_POD: "team"},
        "annotations": {keys.BARE_POD: "train"},
    }
    collections: dict[str, dict[str, Any]] = {
        PODS: {"x": {"metadata": victim}},
        **{path: {"x": with_ledger("x")} for path in OWNERS},
        RECORDS: {"r": {"metadata": record}},
        LEASES: {},
    }
    async with stub_api(tmp_path, collections=collections) as (stub, api):
        stub.lists_released.set()
        yield stub, api


async def run(api: Api, *, force: bool = False) -> int:
    async with asyncio.timeout(60):
        return await cleanup._cleanup(
            api, target=TARGET, operator=OPERATOR, is_dry_run=False, force=force
        )


def cleaned(stub: StubApi) -> list[str]:
    return [path.removesuffix("/x") for path, _ in stub.patches]


async def test_all_kinds_are_cleaned(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    assert await run(api) == 0
    assert cleaned(stub) == [PODS, *OWNERS]
    assert capsys.readouterr().err == PENDING


@pytest.mark.parametrize("barred", [PODS, *OWNERS])
async def test_a_kind_that_may_not_be_listed_keeps_no_other_from_being_cleaned(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str], barred: str
) -> None:
    stub, api = served
    stub.barred.add(barred)
    assert await run(api) == 1
    assert cleaned(stub) == [path for path in (PODS, *OWNERS) if path != barred]
    resource = barred.rpartition("/")[2]
    said = f"{resource}: not all were read, nor cleaned: not for you\n"
    assert capsys.readouterr().err == said + PENDING


async def test_pending_bare_pods_that_may_not_be_listed_are_said_to_be_unknown(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.barred.add(RECORDS)
    assert await run(api) == 1
    assert cleaned(stub) == [PODS, *OWNERS]
    said = "controllerrevisions in namespace reprieve-system: not all were read: not for you\n"
    assert capsys.readouterr().err == said


async def test_a_list_that_expires_keeps_no_other_kind_from_being_cleaned(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    # The first list is that of the pods.
    stub.pages_refused["0"] = [410]
    assert await run(api) == 1
    assert cleaned(stub) == OWNERS
    assert capsys.readouterr().err == f"pods: not all were read, nor cleaned: no\n{PENDING}"


async def test_a_job_that_cannot_be_read_keeps_no_other_from_being_cleaned(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    suspended = {name: with_ledger(name, **{keys.SUSPENDED: "true"}) for name in ("a", "b")}
    stub.collections[JOBS] = suspended | {"x": with_ledger("x")}
    stub.barred.add(f"{JOBS}/a")
    stub.absent.add(f"{JOBS}/b")
    assert await run(api) == 1
    assert cleaned(stub) == [PODS, *OWNERS]
    assert capsys.readouterr().err == f"team/job/a: not for you\n{PENDING}"


async def test_while_an_operator_leads_by_the_api_servers_clock_nothing_is_cleaned(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    # Beside the API server's, the clock of this machine is ten minutes ahead.
    server_now = datetime.now(UTC) - timedelta(minutes=10)
    stub.date = format_datetime(server_now, usegmt=True)
    spec: dict[str, Any] = {"holderIdentity": "operator-1", "leaseDurationSeconds": 15}
    spec["renewTime"] = timestamp.render(server_now)
    stub.collections[LEASES] = {OPERATOR.lease: {"spec": spec}}
    assert await run(api) == 2
    assert cleaned(stub) == []
    assert "the operator is running (operator-1 holds its lease)" in capsys.readouterr().err


async def test_force_needs_no_right_to_read_the_lease(
    served: tuple[StubApi, Api], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, api = served
    stub.barred.add(f"{LEASES}/{OPERATOR.lease}")
    with pytest.raises(ApiError, match="not for you"):
        await run(api)
    assert cleaned(stub) == []
    assert await run(api, force=True) == 0
    assert cleaned(stub) == [PODS, *OWNERS]
    assert capsys.readouterr().err == PENDING


def test_the_rights_that_it_needs_are_in_its_help() -> None:
    assert "to get leases" in str(cleanup.command.help)
