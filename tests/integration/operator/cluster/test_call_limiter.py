"""The order of calls: by priority, then round-robin between namespaces, with a limit for each."""

import asyncio
import contextlib

from reprieve_operator.cluster.call_limiter import CallLimiter, CallPriority


class Desk:
    """Callers of a limiter; each holds its slot until the test releases it."""

    def __init__(self, slots: CallLimiter) -> None:
        self.slots = slots
        self.served: list[str] = []
        self._leave: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(
        self, name: str, urgency: CallPriority = CallPriority.RECORD, tenant: str = ""
    ) -> None:
        self._leave[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._call(name, urgency, tenant))
        await _turn_over()

    async def leave(self, name: str) -> None:
        self._leave[name].set()
        await self._tasks[name]
        await _turn_over()

    async def give_up(self, name: str) -> None:
        self._tasks[name].cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._tasks[name]
        await _turn_over()

    async def serve_all(self) -> list[str]:
        """Release all in the order in which they are served; return the order."""
        for number in range(len(self._tasks)):
            await self.leave(self.served[number])
        return self.served

    async def _call(self, name: str, urgency: CallPriority, tenant: str) -> None:
        async with self.slots.acquire(urgency, tenant):
            self.served.append(name)
            await self._leave[name].wait()


async def _turn_over() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_are_served_by_priority_before_arrival() -> None:
    desk = Desk(CallLimiter(1))
    await desk.come("busy")
    for urgency in (
        CallPriority.EVENT,
        CallPriority.RECORD,
        CallPriority.TERMINATE,
        CallPriority.NOTIFY,
    ):
        await desk.come(urgency.name, urgency)

    assert await desk.serve_all() == ["busy", "NOTIFY", "TERMINATE", "RECORD", "EVENT"]


async def test_the_limiter_is_busy_while_half_of_the_slots_are_taken() -> None:
    desk = Desk(CallLimiter(4))
    await desk.come("one")
    assert not desk.slots.is_busy
    await desk.come("another")
    assert desk.slots.is_busy
    await desk.leave("one")
    assert not desk.slots.is_busy


async def test_namespaces_are_served_round_robin() -> None:
    desk = Desk(CallLimiter(1))
    await desk.come("busy", tenant="many")
    for number in range(4):
        await desk.come(f"many {number}", tenant="many")
    await desk.come("one", tenant="few")

    assert await desk.serve_all() == ["busy", "many 0", "one", "many 1", "many 2", "many 3"]


async def test_within_a_namespace_calls_are_served_in_order_of_arrival() -> None:
    desk = Desk(CallLimiter(2))
    for number in range(5):
        await desk.come(str(number))

    assert desk.served == ["0", "1"]
    assert await desk.serve_all() == ["0", "1", "2", "3", "4"]


async def test_a_cancelled_waiter_loses_no_slot() -> None:
    desk = Desk(CallLimiter(1))
    for name in ("busy", "impatient", "patient"):
        await desk.come(name)
    await desk.give_up("impatient")
    await desk.leave("busy")
    assert desk.served == ["busy", "patient"]
    await desk.give_up("patient")
    await desk.come("later")

    assert desk.served == ["busy", "patient", "later"]
    await desk.leave("later")


async def test_a_slot_granted_to_a_waiter_that_is_cancelled_goes_to_the_next() -> None:
    slots = CallLimiter(1)
    desk = Desk(slots)
    await desk.come("busy")
    impatient = asyncio.create_task(_hold(slots))
    await _turn_over()
    desk._leave["busy"].set()
    await desk._tasks["busy"]
    impatient.cancel()
    await _turn_over()
    await desk.come("next")

    assert desk.served == ["busy", "next"]
    await desk.leave("next")


async def test_a_namespace_whose_calls_hang_leaves_half_of_the_slots_to_others() -> None:
    desk = Desk(CallLimiter(4, limit_per_namespace=2))
    for number in range(4):
        await desk.come(f"hangs {number}", tenant="hangs")
    await desk.come("other", tenant="other")

    assert desk.served == ["hangs 0", "hangs 1", "other"]
    await desk.leave("hangs 0")
    assert desk.served[3:] == ["hangs 2"]
    await desk.leave("other")
    for name in ("hangs 1", "hangs 2", "hangs 3"):
        await desk.leave(name)


async def _hold(slots: CallLimiter) -> None:
    async with slots.acquire(CallPriority.RECORD, ""):
        pass
