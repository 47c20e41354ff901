"""Shrinks what fails: drops halves, then quarters, and so on, for as long as the rest still fails.

It knows nothing of plans and clusters: the caller says what failing means.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ShrunkItems(Generic[T]):
    """What is left, and how many attempts that took."""

    items: Sequence[T]
    attempts: int


async def shrink(
    items: Sequence[T], fails: Callable[[Sequence[T]], Awaitable[bool]], attempts: int
) -> ShrunkItems[T]:
    """Return a part of `items` that still fails, after so many calls of `fails` at most.

    `items` themselves have failed. What fails only sometimes may pass an attempt: then its part
    is kept, so the result is never one that was not seen to fail.
    """
    left, used, size = list(items), 0, len(items) // 2
    while size and used < attempts:
        start = 0
        while start < len(left) and used < attempts:
            without = left[:start] + left[start + size :]
            if without and len(without) < len(left):
                used += 1
                if await fails(without):
                    left = without
                    continue
            start += size
        size = min(size, len(left)) // 2
    return ShrunkItems(left, used)
