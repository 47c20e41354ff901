"""How many tasks go on in one pass of the event loop."""

import asyncio

from reprieve_operator.turns import Turns


async def test_of_many_tasks_that_are_ready_a_few_go_on_in_each_pass() -> None:
    """Without this, the Lease could not be renewed between the steps of ten thousand victims."""
    turns, steps = Turns(in_one_pass=10), 0

    async def take_a_turn() -> None:
        nonlocal steps
        await turns.wait()
        steps += 1

    tasks = [asyncio.create_task(take_a_turn()) for _ in range(1000)]
    most_in_a_pass = before = 0
    while steps < len(tasks):
        await asyncio.sleep(0)
        most_in_a_pass, before = max(most_in_a_pass, steps - before), steps
    # Those that had their turn at once, and those that were given theirs.
    assert most_in_a_pass <= 20
    await asyncio.gather(*tasks)


async def test_one_task_alone_waits_for_nothing() -> None:
    turns = Turns(in_one_pass=1)
    for _ in range(3):
        turn = turns.wait()
        try:
            turn.send(None)
        except StopIteration:
            pass
        else:
            raise AssertionError("it waits")
        await asyncio.sleep(0)


async def test_a_task_that_was_cancelled_takes_no_turn_from_another() -> None:
    turns, order = Turns(in_one_pass=1), []

    async def take_a_turn(name: str) -> None:
        await turns.wait()
        order.append(name)

    tasks = [asyncio.create_task(take_a_turn(name)) for name in "abc"]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.wait(tasks, timeout=60)
    assert order == ["a", "c"]
