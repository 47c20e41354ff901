"""The responder without its types or its permission, and how it marks pods."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.leader_election import LeaderElection
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.eviction_responder import EvictionResponder
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims.registry import ReconcilerRegistry
from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.eviction_requests.objects import RESPONDER_NAME
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_testing.builders import an_eviction
from reprieve_testing.stub_api import StubApi, stub_api, until

EVICTIONS = "/apis/lifecycle.k8s.io/v1alpha1/evictions"
WATCH = f"{EVICTIONS}?watch"
PODS = "/api/v1/namespaces/team/pods"
INTERVAL_SECONDS = 0.1


@dataclass
class Policy:
    """The policy in force, and the warnings that were recorded."""

    current: PolicySettings
    warnings: list[str] = field(default_factory=list)

    def record_warning(self, reason: str, note: str) -> None:
        assert "reprieve:answer-evictions" in note
        self.warnings.append(reason)


class Leading:
    """An election that this replica has won."""

    def require_leadership(self) -> float:
        return 60.0


@asynccontextmanager
async def responding(
    directory: Path, *, is_wanted: bool = True, asked_for: Any = None
) -> AsyncIterator[tuple[StubApi, Policy]]:
    """Run a responder: with an Eviction of the pod `asked_for`, else without the types.

    Without an Eviction, it must write nothing.
    """
    pods, evictions = (
        ({}, {}) if asked_for is None else ({"p": asked_for}, {"p": an_eviction_of(asked_for)})
    )
    async with stub_api(directory, collections={EVICTIONS: evictions, PODS: pods}) as (stub, api):
        stub.lists_released.set()
        stub.absent.update(() if evictions else [EVICTIONS])
        policy = Policy(PolicySettings(eviction_responder=is_wanted))
        settings = OperatorSettings(
            sweep_interval_seconds=INTERVAL_SECONDS, resync_interval_seconds=0.02
        )
        writes = Writes(
            api, CallLimiter(4), cast("LeaderElection", Leading()), OperatorMetrics(), Clock()
        )
        registry = cast("ReconcilerRegistry", SimpleNamespace(pods=list, pod=lambda _: None))
        responder = EvictionResponder(
            api, writes, registry, cast("PolicySource", policy), Clock(), settings
        )
        task = asyncio.create_task(responder.run())
        try:
            yield stub, policy
        finally:
            task.cancel()
            await asyncio.wait([task])
        assert bool(stub.patches) is bool(evictions)


def an_eviction_of(pod: Any) -> Any:
    """Return an Eviction that is our responder's turn."""
    identity = {"name": "p", "namespace": "team", "uid": "second", "resourceVersion": "5"}
    status = {
        "targetResponders": [{"name": RESPONDER_NAME, "state": "Active"}],
        "requesters": [{"name": "a.io/x"}],
    }
    return {
        "metadata": identity,
        "spec": {"target": {"pod": {"name": "p", "uid": pod["metadata"]["uid"]}}},
        "status": status,
    }


async def test_absent_types_are_requested_once_an_interval_and_never_watched(
    tmp_path: Path,
):
    async with responding(tmp_path) as (stub, policy):
        since = time.monotonic()
        await until(lambda: stub.calls[EVICTIONS] == 5)
        # The first is asked at once.
        assert time.monotonic() - since >= 3 * INTERVAL_SECONDS
        assert stub.calls == {EVICTIONS: 5}
        assert not policy.warnings


async def test_types_that_are_served_later_are_watched(tmp_path: Path):
    async with responding(tmp_path) as (stub, policy):
        await until(lambda: stub.calls[EVICTIONS] >= 2)
        assert not stub.calls[WATCH]
        stub.absent.clear()
        await until(lambda: stub.open_watches == 1)
        assert not policy.warnings


async def test_a_missing_permission_is_reported_once_if_the_responder_is_on(tmp_path: Path):
    async with responding(tmp_path) as (stub, policy):
        stub.barred.add(EVICTIONS)
        await until(lambda: bool(policy.warnings))
        asked = stub.calls[EVICTIONS]
        await until(lambda: stub.calls[EVICTIONS] >= asked + 3)
        assert policy.warnings == ["EvictionsUnreadable"]
        stub.barred.clear()
        stub.absent.clear()
        await until(lambda: stub.open_watches == 1)


async def test_a_missing_permission_is_not_reported_if_the_responder_is_off(tmp_path: Path):
    async with responding(tmp_path, is_wanted=False) as (stub, policy):
        stub.barred.add(EVICTIONS)
        await until(lambda: stub.calls[EVICTIONS] >= 4)
        assert not policy.warnings


CANCELLED = an_eviction().in_phase(Phase.CANCELLED)
BEFORE = {
    "no client": ({}, "marked"),
    "a user, who cancelled it": ({keys.EVICTION: eviction.render(CANCELLED.build())}, "marked"),
    "a request that was withdrawn, or that a user cancelled": (
        {keys.EVICTION: eviction.render(replace(CANCELLED.build(), request_uid="first"))},
        "evict",
    ),
}


@pytest.mark.parametrize(("annotations", "want"), BEFORE.values(), ids=BEFORE)
async def test_the_label_of_a_pod_that_was_marked_before_by(
    tmp_path: Path, annotations: dict[str, str], want: str
) -> None:
    """With `evict`, withdrawing the request does not cancel the eviction."""
    identity = {
        "name": "p",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "7",
        "annotations": annotations,
    }
    pod = {
        "metadata": identity,
        "spec": {"evictionResponders": [{"name": RESPONDER_NAME, "priority": 1}]},
    }
    async with responding(tmp_path, asked_for=pod) as (stub, _):
        await until(lambda: bool(stub.patches))
        path, body = stub.patches[0]
    assert path == f"{PODS}/p"
    assert body["metadata"]["labels"] == {keys.SOFT_EVICTION: want}
    assert json.loads(body["metadata"]["annotations"][keys.EVICTION_REQUEST])["uid"] == "second"
