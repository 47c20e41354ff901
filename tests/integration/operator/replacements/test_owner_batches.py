"""Changes of one object by many callers: one write at a time, with all that wait."""

import asyncio
import contextlib
from collections.abc import Sequence

import pytest

from reprieve_operator.replacements.owner_batches import OwnerBatches
from reprieve_runtime.client.api import ApiError


class Written:
    """Records batches; each write waits until the test lets it end."""

    def __init__(self, error: ApiError | None = None) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.may_end = asyncio.Event()
        self._error = error

    async def write(self, key: str, changes: Sequence[int]) -> None:
        self.batches.append((key, list(changes)))
        await self.may_end.wait()
        if self._error is not None:
            raise self._error


async def start(
    batches: OwnerBatches[str, int], *changes: int, key: str = "a"
) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(batches.apply(key, change)) for change in changes]
    for _ in range(3):
        await asyncio.sleep(0)
    return tasks


async def test_changes_that_wait_are_written_together() -> None:
    written = Written()
    batches: OwnerBatches[str, int] = OwnerBatches(written.write, 3)
    tasks = await start(batches, 0, 1, 2, 3, 4)
    tasks += await start(batches, 9, key="b")
    written.may_end.set()
    await asyncio.gather(*tasks)
    assert written.batches == [("a", [0]), ("b", [9]), ("a", [1, 2, 3]), ("a", [4])]
    assert not batches._queues


async def test_a_change_that_comes_as_a_batch_ends_is_written_alone() -> None:
    """Callers of the ended batch are still waking up when the next change begins to be written."""
    written = Written()
    batches: OwnerBatches[str, int] = OwnerBatches(written.write, 64)
    tasks = await start(batches, *range(40))
    written.may_end.set()
    await tasks[1]
    written.may_end.clear()
    tasks += await start(batches, 40)
    for _ in range(10):
        await asyncio.sleep(0)
    tasks += await start(batches, 41)
    assert written.batches == [("a", [0]), ("a", list(range(1, 40))), ("a", [40])]
    written.may_end.set()
    await asyncio.gather(*tasks)
    assert not batches._queues


async def test_a_refusal_is_told_to_all_of_its_batch_and_to_no_other() -> None:
    written = Written(ApiError(403, "Forbidden", "no"))
    batches: OwnerBatches[str, int] = OwnerBatches(written.write, 2)
    tasks = await start(batches, 0, 1)
    written.may_end.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [ApiError, ApiError]
    written._error = None
    await batches.apply("a", 2)


@pytest.mark.parametrize("leaving", [0, 1])
async def test_a_caller_that_leaves_takes_no_other_change_along(leaving: int) -> None:
    written = Written()
    batches: OwnerBatches[str, int] = OwnerBatches(written.write, 5)
    tasks = await start(batches, 0)
    tasks += await start(batches, 1, 2)
    tasks[leaving].cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await tasks[leaving]
    written.may_end.set()
    await asyncio.gather(*(task for task in tasks if task is not tasks[leaving]))
    assert {change for _, batch in written.batches for change in batch} >= {0, 1, 2} - {leaving}
    assert not batches._queues
