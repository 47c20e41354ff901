"""The responder where its types are absent, or its right is: one question an interval, and nothing else. And how it marks."""

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
from reprieve_operator.cluster.policy_source import PolicySource
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
    """What is in force, and what was complained of."""

    current: PolicySettings
    complaints: list[str] = field(default_factory=list)

    def record_warning(self, reason: str, note: str) -> None:
        assert "reprieve:answer-evictions" in note
        self.complaints.append(reason)


class Leading:
    """An election that is won for as long as it matters."""

    def require_leadership(self) -> float:
        return 60.0


@asynccontextmanager
async def responding(
    directory: Path, *, is_wanted: bool = True, asked_for: Any = None
) -> AsyncIterator[tuple[StubApi, Policy]]:
    """Run a responder where the types are absent, or where an Eviction asks for a pod; else it has nothing to write."""
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
        effects = Writes(
            api, CallLimiter(4), cast("LeaderElection", Leading()), OperatorMetrics(), Clock()
        )
        keepers = cast("ReconcilerRegistry", SimpleNamespace(pods=list, pod=lambda _: None))
        responder = EvictionResponder(
            api, effects, keepers, cast("PolicySource", policy), Clock(), settings
        )
        task = asyncio.create_task(responder.run())
        try:
            yield stub, policy
        finally:
            task.cancel()
            await asyncio.wait([task])
        assert bool(stub.patches) is bool(evictions)


def an_eviction_of(pod: Any) -> Any:
    """Return an Eviction whose turn it is to be answered by us."""
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


async def test_types_that_are_absent_are_asked_for_once_an_interval_and_never_watched(
    tmp_path: Path,
):
    async with responding(tmp_path) as (stub, policy):
        since = time.monotonic()
        await until(lambda: stub.calls[EVICTIONS] == 5)
        # The first is asked at once.
        assert time.monotonic() - since >= 3 * INTERVAL_SECONDS
        assert stub.calls == {EVICTIONS: 5}
        assert not policy.complaints


async def test_types_that_are_served_later_are_watched(tmp_path: Path):
    async with responding(tmp_path) as (stub, policy):
        await until(lambda: stub.calls[EVICTIONS] >= 2)
        assert not stub.calls[WATCH]
        stub.absent.clear()
        await until(lambda: stub.open_watches == 1)
        assert not policy.complaints


async def test_a_right_that_is_missing_is_said_once_where_it_is_wanted(tmp_path: Path):
    async with responding(tmp_path) as (stub, policy):
        stub.barred.add(EVICTIONS)
        await until(lambda: bool(policy.complaints))
        asked = stub.calls[EVICTIONS]
        await until(lambda: stub.calls[EVICTIONS] >= asked + 3)
        assert policy.complaints == ["EvictionsUnreadable"]
        stub.barred.clear()
        stub.absent.clear()
        await until(lambda: stub.open_watches == 1)


async def test_a_right_that_nobody_wants_is_not_missed(tmp_path: Path):
    async with responding(tmp_path, is_wanted=False) as (stub, policy):
        stub.barred.add(EVICTIONS)
        await until(lambda: stub.calls[EVICTIONS] >= 4)
        assert not policy.complaints


CANCELLED = an_eviction().in_phase(Phase.CANCELLED)
BEFORE = {
    "nobody": ({}, "marked"),
    "a person, who took it back": ({keys.EVICTION: eviction.render(CANCELLED.build())}, "marked"),
    "a request that was withdrawn, or that a person took back": (
        {keys.EVICTION: eviction.render(replace(CANCELLED.build(), request_uid="first"))},
        "evict",
    ),
}


@pytest.mark.parametrize(("annotations", "want"), BEFORE.values(), ids=BEFORE)
async def test_the_label_of_a_pod_that_was_asked_before_by(
    tmp_path: Path, annotations: dict[str, str], want: str
) -> None:
    """With `evict`, withdrawing the request does not take it back."""
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
