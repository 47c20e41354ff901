"""Runs the calls for each gang beside those for others.

A pass of the gate's controller waits for its calls only for a moment. Without this, the calls of
one Namespace that hang, such as at a slow admission webhook, would hold up the gangs of all others.
"""

import asyncio
from collections.abc import Callable, Coroutine

from reprieve_runtime.waiting import end_tasks

from .gate_turns import GangKey

_WAIT_SECONDS = 0.5
"""How long a pass waits for its tasks; usually all have ended by then."""


class GangTasks:
    """At most one task of each gang at a time; each returns when the gang is looked at next."""

    def __init__(self, on_late: Callable[[], None]) -> None:
        """`on_late` is called as a task ends for which its pass has not waited."""
        self._on_late = on_late
        self._tasks: dict[GangKey, asyncio.Task[float]] = {}
        self._new: list[asyncio.Task[float]] = []
        self._waits_until = 0.0

    def begin_pass(self) -> None:
        """Forget the tasks of earlier passes that have ended; raises what one of them raised."""
        self.restart_time()
        self._collect()

    def restart_time(self) -> None:
        """Wait for tasks from now on as long as at the begin of a pass: a decision takes time."""
        self._waits_until = asyncio.get_running_loop().time() + _WAIT_SECONDS

    def start(self, key: GangKey, work: Callable[[], Coroutine[None, None, float]]) -> None:
        """Start a task of a gang, unless it has one."""
        if key not in self._tasks:
            self._tasks[key] = task = asyncio.create_task(work())
            self._new.append(task)

    @property
    def are_running(self) -> bool:
        """True while any gang has a task."""
        return bool(self._tasks)

    async def wait(self) -> list[float]:
        """Wait for the tasks started since the last call, while the time of the pass lasts.

        Return what those returned that have ended; raises what one of them raised.
        """
        tasks, self._new = self._new, []
        if not tasks:
            return []
        left = self._waits_until - asyncio.get_running_loop().time()
        _, late = await asyncio.wait(tasks, timeout=max(0.0, left))
        for task in late:
            task.add_done_callback(lambda _: self._on_late())
        return self._collect()

    async def end(self) -> None:
        """Cancel all tasks, and wait for their ends."""
        tasks, self._tasks, self._new = self._tasks, {}, []
        await end_tasks(tasks.values())

    def _collect(self) -> list[float]:
        ended = [key for key, task in self._tasks.items() if task.done()]
        return [self._tasks.pop(key).result() for key in ended]
