"""What the API server answers to an eviction, and what that means for a victim at its ceiling."""

import asyncio
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.victims.eviction_retry import EvictionRetry
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction
from reprieve_runtime.client.api import ApiError
from reprieve_testing.builders import after, an_eviction

POD = msgspec.convert(
    {"metadata": {"name": "p", "namespace": "team", "uid": "u", "resourceVersion": "7"}}, VictimPod
)
ASKED = an_eviction().ended(CheckpointOutcome.SAVED).build()
DRAINED = replace(ASKED, must_evict=True)
BUDGET = ApiError(
    429, "TooManyRequests", "Cannot evict", causes=[("DisruptionBudget", "db needs 2 healthy pods")]
)
BUSY = ApiError(429, "TooManyRequests", "too many requests, please try again later", 1)
TWO_BUDGETS = ApiError(500, "InternalError", "This pod has more than one PodDisruptionBudget")
REFUSED = ApiError(403, "Forbidden", "another webhook says no")


@dataclass
class World:
    """An API server that gives one answer, so many seconds after the victim was asked for; the ceiling is 1,800."""

    error: ApiError | None
    seconds: float
    told: list[str] = field(default_factory=list)

    def evicting(self) -> EvictionRetry:
        clock = Clock(now=lambda: after(self.seconds), monotonic=lambda: 0.0)
        policy: Any = SimpleNamespace(current=PolicySettings())
        return EvictionRetry(cast("Writes", self), policy, cast("EventRecorder", self), clock)

    async def evict_pod(self, pod: VictimPod, state: Eviction) -> None:  # noqa: ARG002 - the effects' interface
        if self.error is not None:
            raise self.error

    def event(self, regarding: object, reason: str, note: str) -> None:  # noqa: ARG002 - the announcer's interface
        self.told.append(f"{reason}: {note}")


ANSWERS = {
    "a budget": (BUDGET, True),
    "two of them": (TWO_BUDGETS, True),
    "another admission's refusal": (REFUSED, True),
    "a webhook's that says no more than that": (
        ApiError(400, "", "admission webhook denied the request"),
        True,
    ),
    "a policy's": (ApiError(422, "Invalid", "ValidatingAdmissionPolicy denied request"), True),
    "an API server that has too much to do holds nothing": (BUSY, False),
}


@pytest.mark.parametrize(("error", "want"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("seconds", [10.0, 1800.0])
def test_what_holds_a_victim(error: ApiError, seconds: float, *, want: bool) -> None:
    evicting = World(error, seconds).evicting()
    assert not evicting.is_blocked
    pause = asyncio.run(evicting.evict(POD, DRAINED))
    assert pause is not None
    assert evicting.is_blocked is want
    # At the ceiling it is over at once; who cannot know yet asks again, and not at once.
    assert (pause == 0) is (want and seconds == 1800)


def test_an_api_server_that_stays_busy_a_minute_beyond_the_ceiling_holds_it_whatever_time_it_asks_for() -> (
    None
):
    """Another project's webhook on evictions may answer like one, for ever."""
    world = World(
        ApiError(429, "TooManyRequests", "admission webhook denied the request", 10**6), 1800
    )
    evicting = world.evicting()
    assert asyncio.run(evicting.evict(POD, DRAINED)) == 60
    assert not evicting.is_blocked
    evicting = World(BUSY, 1860).evicting()
    assert asyncio.run(evicting.evict(POD, DRAINED)) == 0
    assert evicting.is_blocked


def test_what_was_held_is_not_once_it_was_let_go_or_nobody_answered() -> None:
    """Without this, one that goes, or that was last tried before an outage, would be stood down for what was said long before."""
    world = World(BUDGET, 1800)
    evicting = world.evicting()
    asyncio.run(evicting.evict(POD, DRAINED))
    assert evicting.is_blocked
    world.error = ApiError(0, "Unreachable", "connection refused")
    with pytest.raises(ApiError):
        asyncio.run(evicting.evict(POD, DRAINED))
    assert not evicting.is_blocked
    world.error = BUDGET
    asyncio.run(evicting.evict(POD, DRAINED))
    assert evicting.is_blocked
    world.error = None
    assert asyncio.run(evicting.evict(POD, DRAINED)) is None
    assert not evicting.is_blocked


def test_it_is_not_asked_again_beyond_the_ceiling_where_a_delete_follows() -> None:
    assert asyncio.run(World(BUSY, 1800).evicting().evict(POD, ASKED)) == 0


@pytest.mark.parametrize("state", [ASKED, DRAINED])
def test_a_wait_ends_at_the_ceiling(state: Eviction) -> None:
    pause = asyncio.run(World(BUDGET, 1799.9).evicting().evict(POD, state))
    assert pause is not None
    assert pause == pytest.approx(0.1)


def test_it_is_said_what_follows_and_when() -> None:
    notes = []
    for state in (ASKED, DRAINED):
        world = World(BUDGET, 10)
        asyncio.run(world.evicting().evict(POD, state))
        notes += world.told
    assert notes == [
        "WaitingForBudget: not evicted yet; the pod is deleted at 12:30:00Z at the latest: "
        "db needs 2 healthy pods",
        "WaitingForBudget: not evicted yet; the eviction is cancelled if it is still blocked at "
        "12:30:00Z: db needs 2 healthy pods",
    ]


@pytest.mark.parametrize("status", [409, 418, 451, 501, 503, 504])
def test_a_word_that_nobody_else_uses_for_no_holds_it_a_minute_beyond_the_ceiling(
    status: int,
) -> None:
    """A validating webhook chooses the code of its refusal, above 399, by itself."""
    refused = ApiError(status, "", "admission webhook denied the request")
    with pytest.raises(ApiError):
        asyncio.run(World(refused, 1859.9).evicting().evict(POD, DRAINED))
    evicting = World(refused, 1860).evicting()
    assert asyncio.run(evicting.evict(POD, DRAINED)) == 0
    assert evicting.is_blocked


@pytest.mark.parametrize("status", [0, 404])
def test_where_nobody_answers_or_the_pod_is_gone_nothing_is_held(status: int) -> None:
    evicting = World(ApiError(status, "", "no"), 10**6).evicting()
    with pytest.raises(ApiError):
        asyncio.run(evicting.evict(POD, DRAINED))
    assert not evicting.is_blocked
