"""The API server's answers to an eviction, and what they mean for a victim at its ceiling."""

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
from reprieve_operator.victims.termination.eviction_retry import EvictionRetry
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import after, an_eviction

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
class OneAnswerApiServer:
    """An API server with one answer, `seconds` after the request; the ceiling is 1,800 s."""

    error: ApiError | None
    seconds: float
    told: list[str] = field(default_factory=list)

    def evicting(self) -> EvictionRetry:
        clock = Clock(now=lambda: after(self.seconds), monotonic=lambda: 0.0)
        policy: Any = SimpleNamespace(current=PolicySettings())
        return EvictionRetry(cast("Writes", self), policy, cast("EventRecorder", self), clock)

    async def evict_pod(self, pod: VictimPod, state: Eviction) -> None:  # noqa: ARG002 - the interface of the writes
        if self.error is not None:
            raise self.error

    def event(self, regarding: object, reason: str, note: str) -> None:  # noqa: ARG002 - the recorder's interface
        self.told.append(f"{reason}: {note}")


ANSWERS = {
    "a budget": (BUDGET, True),
    "two disruption budgets": (TWO_BUDGETS, True),
    "a denial of another admission webhook": (REFUSED, True),
    "a webhook's denial without a reason": (
        ApiError(400, "", "admission webhook denied the request"),
        True,
    ),
    "a policy's": (ApiError(422, "Invalid", "ValidatingAdmissionPolicy denied request"), True),
    "an API server that has too much to do holds nothing": (BUSY, False),
}


@pytest.mark.parametrize(("error", "want"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("seconds", [10.0, 1800.0])
def test_which_answers_block_an_eviction(error: ApiError, seconds: float, *, want: bool) -> None:
    evicting = OneAnswerApiServer(error, seconds).evicting()
    assert not evicting.is_blocked
    pause = asyncio.run(evicting.evict(POD, DRAINED))
    assert pause is not None
    assert evicting.is_blocked is want
    # At the ceiling it is over at once; who cannot know yet asks again, and not at once.
    assert (pause == 0) is (want and seconds == 1800)


def test_a_busy_api_server_blocks_the_eviction_a_minute_past_the_ceiling() -> None:
    """The webhook of another project may answer like a busy API server, forever."""
    api_server = OneAnswerApiServer(
        ApiError(429, "TooManyRequests", "admission webhook denied the request", 10**6), 1800
    )
    evicting = api_server.evicting()
    assert asyncio.run(evicting.evict(POD, DRAINED)) == 60
    assert not evicting.is_blocked
    evicting = OneAnswerApiServer(BUSY, 1860).evicting()
    assert asyncio.run(evicting.evict(POD, DRAINED)) == 0
    assert evicting.is_blocked


def test_an_eviction_is_no_longer_blocked_after_a_success_or_an_outage() -> None:
    """Without this, an old answer would cancel an eviction that succeeded since, or one that
    was last tried before an outage.
    """
    api_server = OneAnswerApiServer(BUDGET, 1800)
    evicting = api_server.evicting()
    asyncio.run(evicting.evict(POD, DRAINED))
    assert evicting.is_blocked
    api_server.error = ApiError(0, "Unreachable", "connection refused")
    with pytest.raises(ApiError):
        asyncio.run(evicting.evict(POD, DRAINED))
    assert not evicting.is_blocked
    api_server.error = BUDGET
    asyncio.run(evicting.evict(POD, DRAINED))
    assert evicting.is_blocked
    api_server.error = None
    assert asyncio.run(evicting.evict(POD, DRAINED)) is None
    assert not evicting.is_blocked


def test_the_eviction_api_is_not_called_past_the_ceiling_if_a_delete_follows() -> None:
    assert asyncio.run(OneAnswerApiServer(BUSY, 1800).evicting().evict(POD, ASKED)) == 0


@pytest.mark.parametrize("state", [ASKED, DRAINED])
def test_a_wait_ends_at_the_ceiling(state: Eviction) -> None:
    pause = asyncio.run(OneAnswerApiServer(BUDGET, 1799.9).evicting().evict(POD, state))
    assert pause is not None
    assert pause == pytest.approx(0.1)


def test_the_event_says_what_follows_and_when() -> None:
    notes = []
    for state in (ASKED, DRAINED):
        api_server = OneAnswerApiServer(BUDGET, 10)
        asyncio.run(api_server.evicting().evict(POD, state))
        notes += api_server.told
    assert notes == [
        f"WaitingForBudget: not evicted yet; {then}: db needs 2 healthy pods"
        for then in (
            "the pod is deleted at 12:30:00Z at the latest",
            "the eviction is cancelled if it is still blocked at 12:30:00Z",
        )
    ]


@pytest.mark.parametrize("status", [409, 418, 451, 501, 503, 504])
def test_an_unknown_refusal_blocks_the_eviction_a_minute_past_the_ceiling(
    status: int,
) -> None:
    """A validating webhook may choose any status above 399 for its refusal."""
    refused = ApiError(status, "", "admission webhook denied the request")
    with pytest.raises(ApiError):
        asyncio.run(OneAnswerApiServer(refused, 1859.9).evicting().evict(POD, DRAINED))
    evicting = OneAnswerApiServer(refused, 1860).evicting()
    assert asyncio.run(evicting.evict(POD, DRAINED)) == 0
    assert evicting.is_blocked


@pytest.mark.parametrize("status", [0, 404])
def test_an_outage_or_a_pod_that_is_gone_blocks_no_eviction(status: int) -> None:
    evicting = OneAnswerApiServer(ApiError(status, "", "no"), 10**6).evicting()
    with pytest.raises(ApiError):
        asyncio.run(evicting.evict(POD, DRAINED))
    assert not evicting.is_blocked
