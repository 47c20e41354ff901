"""The decorator of cleaners.

It uses kopf's handlers of raw events, because those leave no traces on pods: kopf's other handlers
write the whole object into an annotation, which the container runtime copies.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

try:
    import kopf
except ImportError as error:  # pragma: no cover - the development environment has kopf
    raise ImportError("cleaners need kopf: pip install 'reprieve[kopf]'") from error

from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.lifecycle import cleanup
from reprieve_policy.lifecycle.cleanup import CleanerTurn

from . import pods

Cleaner = Callable[..., Any]
"""A function, or a coroutine, that takes kopf's keyword arguments, `eviction` and `turn`."""
RawBody = Any


def eviction(
    *,
    finalizer: str,
    labels: Mapping[str, Any] | None = None,
    annotations: Mapping[str, Any] | None = None,
    when: Callable[..., bool] | None = None,
    adds_finalizer: bool = False,
    retry_seconds: float = 10.0,
    registry: kopf.OperatorRegistry | None = None,
) -> Callable[[Cleaner], Cleaner]:
    """Clean up after each pod that has `finalizer`, then remove the finalizer.

    The cleaner is called once the pod is deleted, by Reprieve or by another client, and its
    containers have ended; for a victim that names the finalizer in `reprieve.dev/cleaners-before`,
    already with its notice, before SIGTERM. It gets kopf's arguments, and:

    - `eviction`: the state of the eviction (`reprieve.Eviction`), `None` if there is none;
    - `turn`: whether it is called before SIGTERM or at the end (`reprieve.CleanerTurn`).

    It is called again after `retry_seconds`, or the delay of a `kopf.TemporaryError`, until it
    succeeds. A `kopf.PermanentError` gives up: the finalizer is removed all the same. It may be
    called twice for one pod, where the program restarts in between.

    `labels`, `annotations` and `when` select pods, as in kopf. With `adds_finalizer`, each living
    pod that they select gets the finalizer; else it comes from the pod's author.
    """
    if not checkpoint_plan.is_finalizer(finalizer):
        raise ValueError(f"{finalizer!r} is no finalizer: it must be like 'example.com/name'")

    def decorate(cleaner: Cleaner) -> Cleaner:
        work = _Work(cleaner, finalizer, adds_finalizer, retry_seconds)

        kopf.on.event(
            "",
            "v1",
            "pods",
            id=f"{getattr(cleaner, '__name__', 'cleaner')}/{finalizer}",
            labels=labels,
            annotations=annotations,
            when=when,
            registry=registry,
        )(work.handle)
        return cleaner

    return decorate


@dataclass
class _Work:
    """One cleaner, and what it has done; kopf handles one event of a pod after another."""

    cleaner: Cleaner
    finalizer: str
    adds_finalizer: bool
    retry_seconds: float
    cleaned: set[str] = field(default_factory=set)
    """The uids of pods that are cleaned and may still have the finalizer."""

    async def handle(self, **event: Any) -> None:
        """Do what the event of one pod asks for; kopf applies the patch afterwards."""
        uid, patch = event["uid"], event["patch"]
        pod = pods.read(event["body"], self.finalizer)
        turn = cleanup.decide_turn(pod)
        if event["type"] == "DELETED" or turn is None:
            # A pod whose eviction was cancelled is cleaned again when it ends.
            self.cleaned.discard(uid)
        if event["type"] == "DELETED":
            return
        if turn is not None:
            if uid not in self.cleaned:
                arguments = {**event, "eviction": pod.eviction, "turn": turn}
                await _clean(self.cleaner, arguments, self.retry_seconds)
                self.cleaned.add(uid)
            patch.fns.append(partial(_remove, finalizer=self.finalizer))
        elif self.adds_finalizer and cleanup.may_add_finalizer(pod):
            patch.fns.append(partial(_add, finalizer=self.finalizer))


async def _clean(cleaner: Cleaner, arguments: Mapping[str, Any], retry_seconds: float) -> None:
    """Call the cleaner until it succeeds or gives up."""
    logger: logging.Logger = arguments["logger"]
    while True:
        delay = retry_seconds
        try:
            await _call(cleaner, arguments)
        except kopf.PermanentError as error:
            logger.error("cleaner gave up: %s", error)  # noqa: TRY400 - the author's own message
            return
        except kopf.TemporaryError as error:
            delay = retry_seconds if error.delay is None else error.delay
            logger.warning("cleaner is not done: %s; again in %s s", error, delay)
        except Exception:
            logger.exception("cleaner failed; again in %s s", delay)
        else:
            return
        await asyncio.sleep(delay)


async def _call(cleaner: Cleaner, arguments: Mapping[str, Any]) -> None:
    if inspect.iscoroutinefunction(cleaner):
        await cleaner(**arguments)
    else:
        await asyncio.to_thread(cleaner, **arguments)


def _add(raw: RawBody, finalizer: str) -> None:
    """Add the finalizer; kopf calls this on the newest version, and again after a conflict."""
    metadata = raw["metadata"]
    if finalizer not in metadata.get("finalizers", ()) and "deletionTimestamp" not in metadata:
        metadata["finalizers"] = [*metadata.get("finalizers", ()), finalizer]


def _remove(raw: RawBody, finalizer: str) -> None:
    """Remove the finalizer, and keep those of others."""
    metadata = raw["metadata"]
    metadata["finalizers"] = [name for name in metadata.get("finalizers", ()) if name != finalizer]


__all__ = ["CleanerTurn", "eviction"]
