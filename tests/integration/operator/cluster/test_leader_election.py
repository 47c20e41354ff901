"""The leader election, over a lease in memory and with clocks that the test sets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.leader_election import LeaderElection, NotLeading
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.settings import OperatorSettings
from reprieve_policy.lifecycle.eviction import CheckpointOutcome
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.lease import Lease
from reprieve_testing.objects.builders import an_eviction
from reprieve_testing.servers.stub_api import until
from reprieve_testing.virtual_time import run_in_virtual_time

SETTINGS = OperatorSettings(identity="a", retry_period_seconds=0.01)
PAST_DEADLINE = SETTINGS.renew_deadline_seconds + 1


class Leases:
    """The lease, as the API server keeps it; a write waits while the gate is closed."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.reads = self.writes = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.is_waiting = asyncio.Event()

    async def get(self, path: str, decode_as: type[Lease]) -> Lease:
        del path, decode_as
        self.reads += 1
        if self.lease is None:
            raise ApiError(404, "NotFound", "no lease")
        return self.lease

    async def post(self, path: str, body: object, decode_as: type[Lease]) -> Lease:
        del path
        return await self._write(msgspec.convert(body, decode_as))

    async def put(self, path: str, body: object, decode_as: type[Lease]) -> Lease:
        del path
        lease = msgspec.convert(body, decode_as)
        if (
            self.lease is None
            or lease.metadata.resourceVersion != self.lease.metadata.resourceVersion
        ):
            raise ApiError(409, "Conflict", "another replica was faster")
        return await self._write(lease)

    def give_to(self, holder: str) -> None:
        """Have another replica acquire the lease."""
        assert self.lease is not None
        spec = replace(self.lease.spec, holderIdentity=holder)
        self.lease = replace(self._next(self.lease), spec=spec)

    async def _write(self, lease: Lease) -> Lease:
        self.writes += 1
        if not self.gate.is_set():
            self.is_waiting.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                # A caller that gives up waiting does not cancel its request.
                self.gate.set()
                self.lease = self._next(lease)
                raise
        self.lease = self._next(lease)
        return self.lease

    def _next(self, lease: Lease) -> Lease:
        version = "1" if self.lease is None else str(int(self.lease.metadata.resourceVersion) + 1)
        return replace(lease, metadata=replace(lease.metadata, resourceVersion=version))


class Replica:
    """One replica and its clocks; `terms` counts how often it became the leader."""

    def __init__(self, leases: Leases) -> None:
        self.monotonic = self.wall = 0.0
        self.terms = 0
        self.began = asyncio.Event()
        self.is_ending = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.misses_cancellation = False
        clock = Clock(lambda: datetime.now(UTC), lambda: self.monotonic, lambda: self.wall)
        self.election = LeaderElection(cast("Api", leases), SETTINGS, clock)
        self.task = asyncio.create_task(self.election.run(self._lead))

    def advance(self, seconds: float) -> None:
        self.monotonic += seconds
        self.wall += seconds

    async def leads(self) -> None:
        async with asyncio.timeout(60):
            await self.began.wait()

    async def _lead(self) -> None:
        self.terms += 1
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.is_ending.set()
            await self.may_end.wait()
            if self.misses_cancellation:
                await asyncio.Event().wait()


@pytest.fixture
async def leases() -> Leases:
    return Leases()


@pytest.fixture
async def replica(leases: Leases) -> AsyncIterator[Replica]:
    replica = Replica(leases)
    yield replica
    replica.task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await replica.task


async def test_a_free_lease_is_acquired_and_released_at_the_end(
    leases: Leases, replica: Replica
) -> None:
    await replica.leads()
    assert leases.lease is not None
    assert leases.lease.spec.holderIdentity == "a"
    replica.task.cancel()
    await asyncio.wait([replica.task])
    assert leases.lease.spec.holderIdentity == ""


async def test_a_renewal_that_is_cancelled_at_the_end_does_not_keep_the_lease(
    leases: Leases, replica: Replica
) -> None:
    await replica.leads()
    leases.gate.clear()
    async with asyncio.timeout(60):
        await leases.is_waiting.wait()
    replica.task.cancel()
    await asyncio.wait([replica.task])
    assert leases.lease is not None
    assert leases.lease.spec.holderIdentity == ""


CLOCKS = {
    "a process that was stopped sees it on both clocks": (PAST_DEADLINE, PAST_DEADLINE),
    "a machine that was suspended sees it on the wall clock only": (0.0, PAST_DEADLINE),
    "a wall clock that was set back hides nothing": (PAST_DEADLINE, -3600.0),
}


@pytest.mark.parametrize(("monotonic", "wall"), CLOCKS.values(), ids=CLOCKS)
async def test_a_leader_that_was_paused_past_its_lease_may_not_write(
    replica: Replica, monotonic: float, wall: float
) -> None:
    await replica.leads()
    replica.election.require_leadership()
    replica.monotonic += monotonic
    replica.wall += wall
    with pytest.raises(NotLeading):
        replica.election.require_leadership()


async def test_a_term_in_which_a_write_was_refused_ends_though_the_clock_is_put_back(
    replica: Replica,
) -> None:
    """What got `NotLeading` has ended, and only a new term starts it again."""
    await replica.leads()
    replica.wall += PAST_DEADLINE
    with pytest.raises(NotLeading):
        replica.election.require_leadership()
    replica.wall -= PAST_DEADLINE
    replica.began.clear()
    await replica.leads()
    assert replica.terms == 2


class _Silent:
    """An API server that accepts a request and never answers."""

    async def delete(self, path: str, body: object) -> None:
        del path, body
        await asyncio.Event().wait()


async def test_a_write_in_progress_is_given_up_when_the_lease_ends(
    leases: Leases, replica: Replica
) -> None:
    await replica.leads()
    leases.gate.clear()
    async with asyncio.timeout(60):
        await leases.is_waiting.wait()
    replica.advance(SETTINGS.renew_deadline_seconds - 0.05)
    writes = Writes(
        cast("Api", _Silent()), CallLimiter(1), replica.election, OperatorMetrics(), Clock()
    )
    state = an_eviction().ended(CheckpointOutcome.SKIPPED).build()
    async with asyncio.timeout(60):
        with pytest.raises(ApiError, match="LeaseOver"):
            await writes.delete_pod(VictimPod(), state)


async def test_a_lease_that_is_renewed_too_late_ends_the_term_and_starts_a_new_one(
    leases: Leases, replica: Replica
) -> None:
    await replica.leads()
    leases.gate.clear()
    async with asyncio.timeout(60):
        await leases.is_waiting.wait()
    replica.advance(PAST_DEADLINE)
    replica.began.clear()
    leases.gate.set()
    await replica.leads()
    assert replica.terms == 2, (
        "reconcilers that got NotLeading have ended; only a new term starts them again"
    )


async def test_a_stop_while_a_lost_term_ends_still_stops_the_program(
    leases: Leases, replica: Replica
) -> None:
    await replica.leads()
    replica.may_end.clear()
    replica.advance(PAST_DEADLINE)
    leases.give_to("b")
    async with asyncio.timeout(60):
        await replica.is_ending.wait()
    assert not replica.task.done()
    replica.task.cancel()
    replica.may_end.set()
    done, _ = await asyncio.wait([replica.task], timeout=60)
    assert done
    assert replica.terms == 1


async def test_the_last_writes_of_a_term_may_take_longer_than_a_lease(
    leases: Leases, replica: Replica
) -> None:
    """The operator that is uninstalled releases its victims as it stops."""
    await replica.leads()
    replica.may_end.clear()
    replica.task.cancel()
    await replica.is_ending.wait()
    for _ in range(3):
        replica.advance(SETTINGS.renew_deadline_seconds / 2)
        writes = leases.writes
        await until(lambda before=writes: leases.writes > before + 1)
        assert replica.election.is_leading
    replica.may_end.set()
    await asyncio.wait([replica.task], timeout=60)
    assert not replica.election.is_leading


async def test_the_leader_renews_its_lease_by_one_call(leases: Leases, replica: Replica) -> None:
    await replica.leads()
    reads, writes = leases.reads, leases.writes
    await until(lambda: leases.writes >= writes + 5)
    assert leases.reads == reads


async def test_a_lease_that_others_wrote_or_deleted_is_read_before_it_is_renewed(
    leases: Leases, replica: Replica
) -> None:
    await replica.leads()
    leases.give_to("a")
    reads, writes = leases.reads, leases.writes
    await until(lambda: leases.writes >= writes + 3)
    assert leases.reads == reads + 1
    leases.lease = None
    await until(lambda: leases.lease is not None)
    assert leases.reads == reads + 2
    assert replica.terms == 1


async def test_a_term_that_does_not_end_keeps_the_lease_from_others_for_a_time_only(
    replica: Replica,
) -> None:
    await replica.leads()
    replica.may_end.clear()
    replica.task.cancel()
    await replica.is_ending.wait()
    async with asyncio.timeout(60):
        while replica.election.is_leading:
            replica.advance(1)
            await asyncio.sleep(0.02)
    replica.may_end.set()
    await asyncio.wait([replica.task], timeout=60)


async def test_a_term_that_missed_its_cancellation_is_cancelled_again(
    leases: Leases, replica: Replica
) -> None:
    """Without this, the replica would wait for its end for ever, and never lead again."""
    replica.misses_cancellation = True
    await replica.leads()
    replica.advance(PAST_DEADLINE)
    leases.give_to("b")
    async with asyncio.timeout(60):
        await replica.is_ending.wait()
    replica.misses_cancellation = False
    replica.began.clear()
    async with asyncio.timeout(60):
        while not replica.began.is_set():
            replica.advance(1)
            await asyncio.sleep(0.02)


async def test_the_lease_of_another_replica_is_acquired_only_after_its_observed_duration(
    leases: Leases,
) -> None:
    first = Replica(leases)
    await first.leads()
    leases.give_to("b")
    second = Replica(leases)
    reads = leases.reads
    await until(lambda: leases.reads >= reads + 20)
    assert not second.began.is_set()
    second.advance(SETTINGS.lease_duration_seconds)
    await second.leads()
    for replica in (first, second):
        replica.task.cancel()
    await asyncio.wait([first.task, second.task])


@pytest.mark.parametrize("period", range(10))
def test_the_lease_of_a_killed_leader_is_acquired_as_soon_as_it_ends(period: int) -> None:
    usual = OperatorSettings(identity="b")

    async def seconds_to_acquire() -> float:
        loop, leases = asyncio.get_running_loop(), Leases()
        clock = Clock(lambda: datetime.now(UTC), loop.time, loop.time)
        killed = LeaderElection(cast("Api", leases), replace(usual, identity="a"), clock)
        assert await killed._try_acquire_or_renew()
        # Standbys that started at any time before the kill.
        await asyncio.sleep(period / 10)
        led_at = loop.create_future()

        async def lead() -> None:
            led_at.set_result(loop.time())
            await asyncio.Event().wait()

        standby = asyncio.create_task(LeaderElection(cast("Api", leases), usual, clock).run(lead))
        found = float(await led_at)
        standby.cancel()
        await asyncio.wait([standby])
        return found - period / 10

    waited = run_in_virtual_time(seconds_to_acquire())
    least = usual.lease_duration_seconds
    assert least <= waited <= least + usual.retry_period_seconds / 10
