"""The decorator of cleaners.

It uses kopf's handlers of raw events, because those leave no traces on pods: kopf's other handlers
write the whole object into an annotation, which the container runtime copies. kopf handles one
event of a pod after another, so a handler must not wait: each pod is cleaned in a task of its own.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

try:
    import kopf
except ImportError as error:  # pragma: no cover - the development environment has kopf
    raise ImportError("cleaners need kopf: pip install '.[kopf]' in a clone of Reprieve") from error

from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.lifecycle import cleanup
from reprieve_policy.lifecycle.cleanup import CleanerTurn

from . import pods
from .cleaning import Cleaner, CleaningTasks, RawBody


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
    succeeds, or the eviction is cancelled. A `kopf.PermanentError` gives up: the finalizer is
    removed all the same. It may be called twice for one pod, where the program restarts in between.

    With `adds_finalizer`, each living pod that `labels`, `annotations` and `when` select, as in
    kopf, gets the finalizer; else it comes from the pod's author. A pod that has the finalizer is
    cleaned whether or not it is still selected.
    """
    if not checkpoint_plan.is_finalizer(finalizer):
        raise ValueError(f"{finalizer!r} is no finalizer: it must be like 'example.com/name'")
    has_selector = labels is not None or annotations is not None or when is not None
    if adds_finalizer and not has_selector:
        raise ValueError(
            "adds_finalizer needs labels, annotations or when: the pods that get the finalizer "
            "(all of them: when=lambda **_: True)"
        )
    if has_selector and not adds_finalizer:
        raise ValueError(
            "labels, annotations and when select the pods that get the finalizer: "
            "they need adds_finalizer=True"
        )

    def decorate(cleaner: Cleaner) -> Cleaner:
        name = f"{getattr(cleaner, '__name__', 'cleaner')}/{finalizer}"
        tasks = CleaningTasks(cleaner, finalizer, retry_seconds)
        kopf.on.startup(id=f"{name}/start", registry=registry)(tasks.start)
        kopf.on.cleanup(id=f"{name}/stop", registry=registry)(tasks.stop)
        kopf.on.event("", "v1", "pods", id=name, registry=registry)(tasks.handle)
        if adds_finalizer:
            kopf.on.event(
                "",
                "v1",
                "pods",
                id=f"{name}/add",
                labels=labels,
                annotations=annotations,
                when=when,
                registry=registry,
            )(partial(_handle_new, finalizer=finalizer))
        return cleaner

    return decorate


async def _handle_new(*, finalizer: str, **event: Any) -> None:
    """Add the finalizer to a living pod; kopf applies the patch afterwards."""
    pod = pods.read(event["body"], finalizer)
    if event["type"] != "DELETED" and cleanup.may_add_finalizer(pod):
        event["patch"].fns.append(partial(_add, finalizer=finalizer))


def _add(raw: RawBody, finalizer: str) -> None:
    """Add the finalizer; kopf calls this on the newest version, and again after a conflict."""
    metadata = raw["metadata"]
    if finalizer not in metadata.get("finalizers", ()) and "deletionTimestamp" not in metadata:
        metadata["finalizers"] = [*metadata.get("finalizers", ()), finalizer]


__all__ = ["CleanerTurn", "eviction"]
