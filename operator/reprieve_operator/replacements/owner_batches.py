"""Changes of one object by many victims, written together: one write at a time for each object.

All pods of a gang leave at the same moment, and most have one owner. Without this, each of a
thousand victims would read the owner, and all writes but one would be refused as conflicts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from reprieve_runtime.client.api import ApiError

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _PendingChange(Generic[T]):
    change: T
    is_done: bool = False
    error: ApiError | None = None


@dataclass(slots=True)
class _ChangeQueue(Generic[T]):
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: list[_PendingChange[T]] = field(default_factory=list)


class OwnerBatches(Generic[K, T]):
    """Collects changes by object while an earlier write to the object is in progress."""

    def __init__(
        self, write: Callable[[K, Sequence[T]], Awaitable[None]], max_changes: int
    ) -> None:
        """`write` gets the key of the object and the changes, in their order."""
        self._write = write
        self._max_changes = max_changes
        self._queues: dict[K, _ChangeQueue[T]] = {}

    async def apply(self, key: K, change: T) -> None:
        """Write a change, together with those that wait; raises `ApiError` if it is refused.

        A caller that is cancelled takes its change back, unless the change is being written.
        """
        queue = self._queues.setdefault(key, _ChangeQueue())
        request = _PendingChange(change)
        queue.waiting.append(request)
        try:
            async with queue.lock:
                if not request.is_done:
                    await self._write_next(key, queue)
        finally:
            if not request.is_done:
                queue.waiting.remove(request)
            is_current = self._queues.get(key) is queue
            if is_current and not queue.waiting and not queue.lock.locked():
                del self._queues[key]
        if request.error is not None:
            # A new traceback for each caller: one that grows with each would keep all frames.
            raise request.error.with_traceback(None)

    async def _write_next(self, key: K, queue: _ChangeQueue[T]) -> None:
        """Write the changes that wait longest, the caller's among them: it came first of all."""
        batch = queue.waiting[: self._max_changes]
        error = None
        try:
            await self._write(key, [request.change for request in batch])
        except ApiError as refused:
            error = refused
        for request in batch:
            request.is_done, request.error = True, error
        queue.waiting = [request for request in queue.waiting if not request.is_done]
