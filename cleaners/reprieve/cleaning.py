"""The tasks of one cleaner: one for each pod whose turn has come."""

import asyncio
import contextlib
import contextvars
import inspect
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import kopf

from reprieve_policy.lifecycle import cleanup
from reprieve_policy.lifecycle.cleanup import CleanedPod, CleanerTurn

from . import kopf_client, pods
from .kopf_client import NotPatched

Cleaner = Callable[..., Any]
"""A function, or a coroutine, that takes kopf's keyword arguments, `eviction` and `turn`."""
RawBody = Any

_THREADS = 32
"""Calls at a time of a cleaner that is no coroutine."""
_CONFLICT_SECONDS = 1.0
"""After a removal that met a newer version of the pod, if no event shows that version."""


@dataclass
class _Cleaning:
    """What is known of one pod, and the task that cleans up after it."""

    event: dict[str, Any]
    pod: CleanedPod
    turn: CleanerTurn | None
    """`None`: there is nothing to do any more; the task ends."""
    patch: Any
    """What the cleaner writes to the pod, with the removal of the finalizer."""
    is_cleaned: bool = False
    turned: asyncio.Event = field(default_factory=asyncio.Event)
    updated: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[None] | None" = None

    def update(self, event: dict[str, Any], pod: CleanedPod, turn: CleanerTurn | None) -> None:
        """Take over a newer version of the pod."""
        if turn is not self.turn:
            self.turned.set()
        self.event, self.pod, self.turn = event, pod, turn
        self.updated.set()

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done()


class CleaningTasks:
    """Calls one cleaner, and removes its finalizer afterwards."""

    def __init__(self, cleaner: Cleaner, finalizer: str, retry_seconds: float) -> None:
        self._cleaner = cleaner
        self._finalizer = finalizer
        self._retry_seconds = retry_seconds
        self._settings = kopf.OperatorSettings()
        self._by_uid: dict[str, _Cleaning] = {}
        self._threads = self._new_threads()

    async def start(self, settings: kopf.OperatorSettings, **_: Any) -> None:
        """Keep the operator's settings, which hold for patches too."""
        self._settings = settings

    async def stop(self, **_: Any) -> None:
        """End all tasks: the next program finds the pods again."""
        tasks = [found.task for found in self._by_uid.values() if found.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._threads = self._new_threads()

    async def handle(self, **event: Any) -> None:
        """Start, inform or end the task of one pod; never wait for it."""
        uid, pod = event["uid"], pods.read(event["body"], self._finalizer)
        turn = None if event["type"] == "DELETED" else cleanup.decide_turn(pod)
        found = self._by_uid.get(uid)
        if found is not None:
            found.update(event, pod, turn)
        if turn is None:
            # A running call of the cleaner ends before the pod is forgotten. Without this, it could
            # be called twice at once.
            if found is not None and not found.is_running:
                del self._by_uid[uid]
            return
        if found is None:
            patch = kopf.Patch(body=event["body"])
            found = self._by_uid[uid] = _Cleaning(event, pod, turn, patch)
        if not found.is_running:
            found.task = asyncio.create_task(self._work(uid, found))

    async def _work(self, uid: str, found: _Cleaning) -> None:
        try:
            if not found.is_cleaned:
                await self._clean(found)
            if found.turn is not None:
                found.is_cleaned = True
                await self._remove_finalizer(found)
        finally:
            if found.turn is None:
                # A pod whose eviction was cancelled is cleaned again when it ends.
                self._by_uid.pop(uid, None)

    async def _clean(self, found: _Cleaning) -> None:
        """Call the cleaner until it succeeds or gives up, or it is not its turn any more."""
        while found.turn is not None:
            found.turned.clear()
            delay = await self._try(found)
            if delay is None:
                return
            await _wait(found.turned, delay)
        found.event["logger"].info("the cleaner's turn is over before it was done")

    async def _try(self, found: _Cleaning) -> float | None:
        """Call the cleaner once; return after how long it is called again, `None` if it is done."""
        logger: logging.Logger = found.event["logger"]
        delay = self._retry_seconds
        changes = {"eviction": found.pod.eviction, "turn": found.turn, "patch": found.patch}
        arguments = {**found.event, **changes}
        try:
            if inspect.iscoroutinefunction(self._cleaner):
                await self._cleaner(**arguments)
            else:
                result = await self._call_in_thread(arguments)
                # A coroutine under a decorator looks like a function. Without this, it would count
                # as done and never run.
                if inspect.isawaitable(result):
                    await result
        except kopf.PermanentError as error:
            logger.error("cleaner gave up: %s", error)  # noqa: TRY400 - the author's own message
            return None
        except kopf.TemporaryError as error:
            delay = delay if error.delay is None else error.delay
            logger.warning("cleaner is not done: %s; again in %s s", error, delay)
        except Exception:
            logger.exception("cleaner failed; again in %s s", delay)
        else:
            return None
        return delay

    async def _call_in_thread(self, arguments: dict[str, Any]) -> object:
        """Call a cleaner that may block."""
        call = partial(contextvars.copy_context().run, self._cleaner, **arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def _new_threads(self) -> ThreadPoolExecutor:
        # Of its own: in the threads that all share, a cleaner whose server hangs would hold up the
        # others of the program.
        return ThreadPoolExecutor(_THREADS, thread_name_prefix=self._finalizer)

    async def _remove_finalizer(self, found: _Cleaning) -> None:
        """Remove the finalizer from the newest version of the pod, and keep those of others."""
        remove = partial(_remove, finalizer=self._finalizer)
        while found.turn is not None:
            found.updated.clear()
            delay = _CONFLICT_SECONDS
            patch = kopf.Patch(found.patch, body=found.event["body"], fns=[remove])
            try:
                if await kopf_client.patch_pod(self._settings, found.event, patch):
                    return
            except NotPatched as error:
                delay = self._retry_seconds
                found.event["logger"].warning(
                    "could not remove the finalizer: %s; again in %s s", error, delay
                )
            await _wait(found.updated, delay)


async def _wait(changed: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await changed.wait()


def _remove(raw: RawBody, finalizer: str) -> None:
    """Remove the finalizer, and keep those of others."""
    metadata = raw["metadata"]
    metadata["finalizers"] = [name for name in metadata.get("finalizers", ()) if name != finalizer]
