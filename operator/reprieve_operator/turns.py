"""Lets only a few of many tasks go on in one pass of the event loop.

All tasks that are ready run in the loop's next pass. Where ten thousand victims are ready at once,
as after a failover, that pass would take longer than the Lease lasts: it could not be renewed, and
the next term would begin, and end, in the same way.
"""

import asyncio
from collections import deque

_IN_ONE_PASS = 10
"""A step of a victim takes one to three milliseconds."""


class Turns:
    """Gives turns, in the order in which they were asked for."""

    def __init__(self, in_one_pass: int = _IN_ONE_PASS) -> None:
        self._in_one_pass = self._left = in_one_pass
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_next_pass_due = False

    async def wait(self) -> None:
        """Wait for a turn; there is no wait where few others ask for one."""
        self._request_next_pass()
        if self._left > 0 and not self._waiting:
            self._left -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        await turn

    def _request_next_pass(self) -> None:
        if not self._is_next_pass_due:
            self._is_next_pass_due = True
            asyncio.get_running_loop().call_soon(self._begin_pass)

    def _begin_pass(self) -> None:
        self._is_next_pass_due, self._left = False, self._in_one_pass
        while self._waiting and self._left > 0:
            turn = self._waiting.popleft()
            # One that was cancelled does not count.
            if not turn.done():
                self._left -= 1
                turn.set_result(None)
        if self._waiting:
            self._request_next_pass()
