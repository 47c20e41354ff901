"""Faults of calls hit a part of them while they last, and the Lease is recorded."""

import asyncio
from random import Random

import pytest

from reprieve_runtime.client.api import ApiError
from reprieve_testing.chaos.proxy import Dropped, ProxiedCall, ProxiedResponse, Refused
from reprieve_testing.robustness import call_faults, insisting
from reprieve_testing.robustness.call_faults import CallFaults
from reprieve_testing.robustness.insisting import insist
from reprieve_testing.robustness.plan import Fault

CALL = ProxiedCall("PATCH", "/api/v1/namespaces/team/pods/victim", {})
LEASE = ProxiedCall("PUT", "/apis/coordination/leases/ours", {"spec": {"holderIdentity": "second"}})
OK, REFUSED = ProxiedResponse(200, b"{}"), ProxiedResponse(409, b"{}")


async def refusals(faults: CallFaults, calls: int = 200) -> list[int]:
    found = []
    for _ in range(calls):
        try:
            await faults.before(CALL)
        except Refused as refusal:
            found.append(refusal.status)
    return found


@pytest.mark.parametrize(
    ("fault", "statuses"),
    [(Fault.TOO_MANY_REQUESTS, {429}), (Fault.SERVER_ERRORS, {500, 502, 503, 504})],
)
async def test_a_part_of_the_calls_is_refused_while_the_fault_lasts(
    fault: Fault, statuses: set[int]
):
    faults = CallFaults(Random(1))
    assert await refusals(faults) == []
    faults.begin(fault, 60)
    found = await refusals(faults)
    assert set(found) == statuses
    assert 50 < len(found) < 200
    assert faults.hits == {fault: len(found)}
    faults.begin(fault, -1)
    assert await refusals(faults) == []
    assert faults.calls == 600


async def test_a_slow_call_is_forwarded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(call_faults, "_SLOW_SECONDS", (0.0, 0.01))
    faults = CallFaults(Random(1))
    faults.begin(Fault.SLOW_CALLS, 60)
    await asyncio.gather(*(faults.before(CALL) for _ in range(10)))
    assert 0 < faults.hits[Fault.SLOW_CALLS] < 10


async def test_a_lost_answer_was_a_call_that_took_effect():
    faults = CallFaults(Random(1))
    faults.begin(Fault.LOST_ANSWERS, 60)
    lost = 0
    for _ in range(100):
        await faults.before(LEASE)
        try:
            await faults.after(LEASE, OK)
        except Dropped:
            lost += 1
    assert 0 < lost < 100
    assert len(faults.renewals) == 100


async def test_only_an_accepted_write_of_the_lease_is_a_renewal():
    faults = CallFaults(Random(1))
    await faults.after(LEASE, REFUSED)
    await faults.after(CALL, OK)
    assert faults.leader == ""
    await faults.after(LEASE, OK)
    assert faults.leader == "second"


async def test_the_test_goes_on_while_the_control_plane_is_disturbed(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(insisting, "_PAUSE_SECONDS", 0.0)
    errors = [ApiError(0, "", "away"), ExceptionGroup("", [ApiError(503, "", "busy")])]

    async def call(result: str) -> str:
        if errors:
            raise errors.pop()
        return result

    assert await insist(call, "done") == "done"


@pytest.mark.parametrize(
    "error", [ApiError(403, "", "no"), ExceptionGroup("", [ApiError(0, "", ""), ValueError()])]
)
async def test_an_error_of_the_test_itself_is_not_repeated(error: Exception):
    async def call() -> None:
        raise error

    with pytest.raises(type(error)):
        await insist(call)
