"""The order of calls: by priority, then round-robin between namespaces, with a limit for each."""

import asyncio
import contextlib
from typing import Any

import pytest

from reprieve_operator.cluster import namespace_slots
from reprieve_operator.cluster.call_limiter import CallLimiter, CallPriority, CallTicket
from reprieve_operator.cluster.namespace_slots import NamespaceSlots


class Callers:
    """Callers of a limiter; each holds its slot until the test releases it."""

    def __init__(self, slots: CallLimiter) -> None:
        self.slots = slots
        self.served: list[str] = []
        self._leave: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def come(
        self, name: str, priority: CallPriority = CallPriority.RECORD, namespace: str = ""
    ) -> None:
        self._leave[name] = asyncio.Event()
        self._tasks[name] = asyncio.create_task(self._call(name, priority, namespace))
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

    async def _call(self, name: str, priority: CallPriority, namespace: str) -> None:
        async with self.slots.acquire(priority, namespace):
            self.served.append(name)
            await self._leave[name].wait()


async def _turn_over() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_are_served_by_priority_before_arrival() -> None:
    callers = Callers(CallLimiter(1))
    await callers.come("busy")
    for priority in (
        CallPriority.EVENT,
        CallPriority.RECORD,
        CallPriority.TERMINATE,
        CallPriority.NOTIFY,
    ):
        await callers.come(priority.name, priority)

    assert await callers.serve_all() == ["busy", "NOTIFY", "TERMINATE", "RECORD", "EVENT"]


async def test_the_limiter_is_busy_while_namespaces_have_taken_half_of_the_slots() -> None:
    callers = Callers(CallLimiter(4))
    await callers.come("one", namespace="one")
    assert not callers.slots.is_busy("new")
    await callers.come("another", namespace="another")
    assert callers.slots.is_busy("new")
    assert callers.slots.is_busy("one")
    await callers.leave("one")
    assert not callers.slots.is_busy("new")


async def test_a_namespace_whose_calls_hang_and_wait_makes_no_other_busy() -> None:
    callers = Callers(CallLimiter(32, keeps_share_free=True, first=16))
    for number in range(40):
        await callers.come(f"hangs {number}", namespace="hangs")
    await callers.come("other", namespace="other")
    assert len(callers.served) == 16 + 1
    assert callers.slots.is_busy("hangs")
    assert not callers.slots.is_busy("other")
    assert not callers.slots.is_busy("new")


async def test_namespaces_are_served_round_robin() -> None:
    callers = Callers(CallLimiter(1))
    await callers.come("busy", namespace="many")
    for number in range(4):
        await callers.come(f"many {number}", namespace="many")
    await callers.come("one", namespace="few")

    assert await callers.serve_all() == ["busy", "many 0", "one", "many 1", "many 2", "many 3"]


async def test_within_a_namespace_calls_are_served_in_order_of_arrival() -> None:
    callers = Callers(CallLimiter(2))
    for number in range(5):
        await callers.come(str(number))

    assert callers.served == ["0", "1"]
    assert await callers.serve_all() == ["0", "1", "2", "3", "4"]


async def test_a_cancelled_waiter_loses_no_slot() -> None:
    callers = Callers(CallLimiter(1))
    for name in ("busy", "impatient", "patient"):
        await callers.come(name)
    await callers.give_up("impatient")
    await callers.leave("busy")
    assert callers.served == ["busy", "patient"]
    await callers.give_up("patient")
    await callers.come("later")

    assert callers.served == ["busy", "patient", "later"]
    await callers.leave("later")


async def test_a_slot_granted_to_a_waiter_that_is_cancelled_goes_to_the_next() -> None:
    slots = CallLimiter(1)
    callers = Callers(slots)
    await callers.come("busy")
    impatient = asyncio.create_task(_hold(slots))
    await _turn_over()
    callers._leave["busy"].set()
    await callers._tasks["busy"]
    impatient.cancel()
    await _turn_over()
    await callers.come("next")

    assert callers.served == ["busy", "next"]
    await callers.leave("next")


async def test_a_namespace_whose_calls_hang_leaves_half_of_the_slots_to_others() -> None:
    callers = Callers(CallLimiter(4, limit_per_namespace=2))
    for number in range(4):
        await callers.come(f"hangs {number}", namespace="hangs")
    await callers.come("other", namespace="other")

    assert callers.served == ["hangs 0", "hangs 1", "other"]
    await callers.leave("hangs 0")
    assert callers.served[3:] == ["hangs 2"]
    await callers.leave("other")
    for name in ("hangs 1", "hangs 2", "hangs 3"):
        await callers.leave(name)


async def _hold(slots: CallLimiter, namespace: str = "") -> None:
    async with slots.acquire(CallPriority.RECORD, namespace):
        pass


async def test_a_namespace_begins_with_a_small_share_and_gets_more_with_each_call_that_ends() -> (
    None
):
    callers = Callers(CallLimiter(32, keeps_share_free=True))
    for number in range(40):
        await callers.come(f"hangs {number}", namespace="hangs")
    assert len(callers.served) == 2
    for number in range(14):
        await callers.leave(f"hangs {number}")
    # Half of the slots, never more: the rest is for a namespace that begins to call.
    assert len(callers.served) - 14 == 16
    await callers.leave("hangs 14")
    assert len(callers.served) - 15 == 16
    await callers.come("other", namespace="other")
    assert callers.served[-1] == "other"


async def test_namespaces_that_hang_share_the_slots_as_more_of_them_call() -> None:
    callers = Callers(CallLimiter(32, keeps_share_free=True))
    for number in range(40):
        await callers.come(f"hangs {number}", namespace="hangs")
    for number in range(20):
        await callers.leave(f"hangs {number}")
    for number in range(3):
        await callers.come(f"other {number}", namespace=f"other-{number}")
        assert callers.served[-1] == f"other {number}"
    held = len(callers.served) - 20 - 3
    assert held == 16
    # Of four namespaces, each has a fifth at most: none of the first one's calls is replaced.
    for number in range(20, 30):
        await callers.leave(f"hangs {number}")
    assert len(callers.served) == 20 + 16 + 3
    for number in range(3):
        await callers.leave(f"other {number}")
    await callers.leave("hangs 30")
    assert len(callers.served) == 20 + 16 + 3 + 4


async def test_a_ticket_keeps_its_place_and_is_released_once() -> None:
    slots, granted = CallLimiter(2, keeps_share_free=True), asyncio.Event()
    first = CallTicket(slots, CallPriority.NOTIFY, "team", granted.set)
    assert first.is_granted
    second = CallTicket(slots, CallPriority.NOTIFY, "team", granted.set)
    third = CallTicket(slots, CallPriority.NOTIFY, "team", granted.set)
    await _turn_over()
    assert not second.is_granted
    second.release()
    await _turn_over()
    first.release()
    first.release()
    await _turn_over()
    assert granted.is_set()
    assert third.is_granted
    assert not second.is_granted
    third.release()
    assert slots.try_acquire("team")
    assert not slots.try_acquire("team")


async def test_a_ticket_that_is_released_as_it_is_granted_loses_no_slot() -> None:
    slots = CallLimiter(2, keeps_share_free=True)
    first = CallTicket(slots, CallPriority.NOTIFY, "team", lambda: None)
    second = CallTicket(slots, CallPriority.NOTIFY, "team", lambda: None)
    await _turn_over()
    first.release()
    second.release()
    await _turn_over()
    assert not second.is_granted
    assert slots.try_acquire("team")


async def test_without_a_free_slot_a_newcomer_is_the_first_to_get_one() -> None:
    callers = Callers(CallLimiter(4, keeps_share_free=True))
    for number in range(4):
        await callers.come(f"first {number}", namespace=f"first-{number}")
        await callers.come(f"more {number}", namespace=f"first-{number}")
    await callers.come("new", namespace="new")
    assert len(callers.served) == 4
    await callers.give_up("more 0")
    await callers.leave("first 1")
    assert callers.served[4:] == ["new"]


async def test_many_waiters_that_give_up_at_once_leave_nothing_behind() -> None:
    slots = CallLimiter(4, keeps_share_free=True)
    first = CallTicket(slots, CallPriority.NOTIFY, "team", lambda: None)
    waiting = [asyncio.create_task(_hold(slots, "team")) for _ in range(100)]
    await _turn_over()
    for task in waiting[1:]:
        task.cancel()
    first.release()
    assert (await asyncio.gather(*waiting, return_exceptions=True))[0] is None
    assert slots._namespace_slots._namespaces == {}
    assert slots._namespace_slots._free == slots._free == 4


async def test_victims_near_their_ceiling_come_first() -> None:
    callers = Callers(CallLimiter(1))
    await callers.come("busy")
    for priority in (CallPriority.TERMINATE, CallPriority.NOTIFY, CallPriority.OVERDUE):
        await callers.come(priority.name, priority)

    assert await callers.serve_all() == ["busy", "OVERDUE", "NOTIFY", "TERMINATE"]


async def test_a_namespace_whose_calls_time_out_gets_fewer_until_they_succeed_again() -> None:
    slots = CallLimiter(32, 32)
    callers = Callers(slots)
    for number in range(40):
        await callers.come(str(number))
    assert len(callers.served) == 32
    slots.note_overload("")
    # The other calls that were in progress tell the same.
    slots.note_overload("")
    for number in range(16):
        await callers.leave(str(number))
    assert len(callers.served) == 32
    await callers.leave("16")
    assert len(callers.served) == 33
    for number in range(17, 32):
        await callers.leave(str(number))
    assert len(callers.served) == 40
    for number in range(20):
        await callers.come(f"later {number}")
    assert len(callers.served) == 48
    for _ in range(16):
        slots.note_success("")
    await callers.leave("32")
    assert len(callers.served) == 50


async def test_a_namespace_has_a_few_calls_however_many_time_out() -> None:
    slots = CallLimiter(32, 32)
    callers = Callers(slots)
    await callers.come("stays")
    for number in range(10):
        await callers.come(f"hangs {number}")
        slots.note_overload("")
        await callers.leave(f"hangs {number}")
    served = len(callers.served)
    for number in range(10):
        await callers.come(f"more {number}")
    assert len(callers.served) - served == namespace_slots.MIN_CALLS - 1


async def test_a_namespace_whose_calls_hang_takes_nothing_from_another() -> None:
    """Behind a webhook that does not answer: each call times out, and is made again."""
    slots = CallLimiter(32, keeps_share_free=True)
    callers = Callers(slots)
    for number in range(100):
        await callers.come(f"hangs {number}", CallPriority.OVERDUE, "a")
    for _ in range(50):
        slots.note_overload("a")
        await callers.leave([name for name in callers.served if "hangs" in name][-1])
    for number in range(100):
        await callers.come(f"other {number}", CallPriority.RECORD, "b")
        await callers.leave(f"other {number}")
    assert len([name for name in callers.served if "other" in name]) == 100


@pytest.mark.parametrize(("namespaces", "calls"), [(10, 1000), (1000, 10)])
async def test_a_call_costs_the_same_however_many_namespaces_wait(
    monkeypatch: pytest.MonkeyPatch, namespaces: int, calls: int
) -> None:
    has_room, tried = NamespaceSlots._has_room, 0

    def count_tries(*arguments: Any) -> bool:
        nonlocal tried
        tried += 1
        return has_room(*arguments)

    monkeypatch.setattr(NamespaceSlots, "_has_room", count_tries)
    slots = CallLimiter(64, keeps_share_free=True)

    async def call(number: int) -> None:
        async with slots.acquire(CallPriority.RECORD, f"team-{number}"):
            await asyncio.sleep(0)

    await asyncio.gather(*(call(number % namespaces) for number in range(namespaces * calls)))
    assert tried < 5 * namespaces * calls
