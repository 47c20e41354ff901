"""The decorator of cleaners on kopf's own handlers and patches, without a cluster.

What kopf would send is a JSON patch with a test of the resourceVersion: finalizers of others stay.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import kopf
import pytest

import reprieve
from reprieve import pods
from reprieve_policy import keys
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.cleanup import CleanerTurn
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_testing.objects.builders import NOW, an_eviction

Json = Any
OURS, OTHER = "licences.example.com/release", "example.com/disk"
RUNNING = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}
ENDED = {"phase": "Running", "containerStatuses": [{"state": {"terminated": {"exitCode": 143}}}]}
DELETED = {"deletionTimestamp": "2026-11-21T12:00:00Z"}
NOTICE = an_eviction().hinted(deadline=NOW).build()
NAMED = {keys.CLEANERS_BEFORE: OURS}
HINTED = NAMED | {keys.EVICTION: eviction.render(NOTICE)}
CANCELLED = NAMED | {
    keys.EVICTION: eviction.render(an_eviction().in_phase(Phase.CANCELLED).build())
}


def a_pod(*finalizers: str, status: Json = RUNNING, **metadata: Json) -> Json:
    identity = {"name": "p", "namespace": "team", "uid": "u", "resourceVersion": "7"}
    return {
        "metadata": {**identity, "finalizers": [*finalizers], **metadata},
        "spec": {"nodeName": "a"},
        "status": status,
    }


def handler_of(cleaner: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    registry = kopf.OperatorRegistry()
    decorate = reprieve.on.eviction(finalizer=OURS, retry_seconds=0.0, registry=registry, **options)
    assert decorate(cleaner) is cleaner
    (handler,) = registry._watching.get_all_handlers()
    return handler.fn


async def send(handle: Callable[..., Any], body: Json, type_: str | None = "MODIFIED") -> Json:
    """Return the finalizers that the pod has after the event."""
    patch = kopf.Patch(body=body)
    await handle(
        type=type_, body=body, uid="u", patch=patch, logger=logging.getLogger("test"), name="p"
    )
    for change in patch.fns:
        change(body)
    assert not dict(patch)
    return body["metadata"]["finalizers"]


class Cleaner:
    """Fails with the errors, one after another, and then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls: list[tuple[CleanerTurn, str | None]] = []

    async def clean(self, *, turn: CleanerTurn, eviction: Any, **_: Any) -> None:
        self.calls.append((turn, None if eviction is None else eviction.eviction_id))
        if self.errors:
            raise self.errors.pop(0)


DUE = {
    "a pod that any client deleted, once its containers have ended": (
        a_pod(OTHER, OURS, status=ENDED, **DELETED),
        (CleanerTurn.AT_THE_END, None),
    ),
    "a pod that was deleted by force": (
        a_pod(OTHER, OURS, deletionGracePeriodSeconds=0, **DELETED),
        (CleanerTurn.AT_THE_END, None),
    ),
    "a deleted pod that never got a node": (
        {**a_pod(OTHER, OURS, status={"phase": "Pending"}, **DELETED), "spec": {}},
        (CleanerTurn.AT_THE_END, None),
    ),
    "a deleted pod that has failed": (
        a_pod(OTHER, OURS, status={"phase": "Failed"}, **DELETED),
        (CleanerTurn.AT_THE_END, None),
    ),
    "a victim that names the cleaner, before SIGTERM": (
        a_pod(OTHER, OURS, annotations=HINTED),
        (CleanerTurn.BEFORE_SIGTERM, NOTICE.eviction_id),
    ),
}


@pytest.mark.parametrize(("body", "call"), DUE.values(), ids=DUE)
async def test_the_cleaner_is_called_once_and_only_its_finalizer_is_removed(
    body: Json, call: Any
) -> None:
    cleaner = Cleaner()
    assert await send(handler_of(cleaner.clean), body) == [OTHER]
    assert cleaner.calls == [call]


NOT_DUE = {
    "a pod that runs": a_pod(OURS),
    "a pod that is deleted and still runs": a_pod(OURS, **DELETED),
    "a victim that does not name the cleaner": a_pod(
        OURS, annotations={keys.EVICTION: HINTED[keys.EVICTION]}
    ),
    "a pod that names the cleaner and is no victim": a_pod(OURS, annotations=NAMED),
    "a pod with an unreadable state": a_pod(OURS, annotations=NAMED | {keys.EVICTION: "?"}),
    "a pod that was just created": {"metadata": {"uid": "u", "finalizers": [OURS]}},
    "a pod with the finalizers of others": a_pod(OTHER, status=ENDED, **DELETED),
}


@pytest.mark.parametrize("body", NOT_DUE.values(), ids=NOT_DUE)
async def test_a_cleaner_is_not_called_before_its_turn(body: Json) -> None:
    cleaner, before = Cleaner(), [*body["metadata"]["finalizers"]]
    assert await send(handler_of(cleaner.clean), body) == before
    assert cleaner.calls == []


async def test_a_cleaner_that_fails_is_called_again_until_it_succeeds() -> None:
    cleaner = Cleaner(ValueError("bug"), kopf.TemporaryError("busy", 0), OSError("away"))
    assert await send(handler_of(cleaner.clean), a_pod(OURS, status=ENDED, **DELETED)) == []
    assert len(cleaner.calls) == 4


async def test_a_cleaner_that_gives_up_holds_no_pod() -> None:
    cleaner = Cleaner(kopf.PermanentError("never"))
    assert await send(handler_of(cleaner.clean), a_pod(OURS, status=ENDED, **DELETED)) == []
    assert len(cleaner.calls) == 1


async def test_a_function_that_blocks_runs_beside_the_operator() -> None:
    threads = []

    def clean(**_: Any) -> None:
        threads.append(threading.current_thread())

    assert await send(handler_of(clean), a_pod(OURS, status=ENDED, **DELETED)) == []
    assert threads
    assert threads[0] is not threading.main_thread()


async def test_a_removal_that_met_a_conflict_is_repeated_and_the_cleaner_is_not() -> None:
    cleaner = Cleaner()
    handle = handler_of(cleaner.clean)
    for _ in range(2):
        await send(handle, a_pod(OURS, status=ENDED, **DELETED))
    assert len(cleaner.calls) == 1


async def test_a_pod_whose_eviction_was_cancelled_is_cleaned_when_it_ends() -> None:
    cleaner = Cleaner()
    handle = handler_of(cleaner.clean, adds_finalizer=True)
    assert await send(handle, a_pod(OURS, annotations=HINTED)) == []
    assert await send(handle, a_pod(annotations=HINTED)) == []
    assert await send(handle, a_pod(annotations=CANCELLED)) == [OURS]
    ended = a_pod(OURS, status=ENDED, annotations=CANCELLED, **DELETED)
    assert await send(handle, ended) == []
    assert [turn for turn, _ in cleaner.calls] == [
        CleanerTurn.BEFORE_SIGTERM,
        CleanerTurn.AT_THE_END,
    ]


async def test_a_pod_that_is_gone_is_forgotten() -> None:
    cleaner = Cleaner()
    handle = handler_of(cleaner.clean)
    await send(handle, a_pod(OURS, status=ENDED, **DELETED))
    await send(handle, a_pod(status=ENDED, **DELETED), "DELETED")
    await send(handle, a_pod(OURS, status=ENDED, **DELETED), None)
    assert len(cleaner.calls) == 2


@pytest.mark.parametrize("adds", [True, False])
async def test_a_cleaner_may_put_its_finalizer_on_living_pods(*, adds: bool) -> None:
    handle = handler_of(Cleaner().clean, adds_finalizer=adds)
    assert await send(handle, a_pod(OTHER)) == ([OTHER, OURS] if adds else [OTHER])
    assert await send(handle, a_pod(OTHER, **DELETED)) == [OTHER]


@pytest.mark.parametrize("finalizer", ["release", "a/b/c", keys.CLEANUP_FINALIZER, "example.com/"])
def test_what_is_no_finalizer_of_a_cleaner_is_refused_at_once(finalizer: str) -> None:
    with pytest.raises(ValueError, match="is no finalizer"):
        reprieve.on.eviction(finalizer=finalizer)


def test_a_pod_without_states_of_containers_may_still_run() -> None:
    assert not pods.have_containers_ended({"status": {"phase": "Running"}})
    assert not pods.have_containers_ended({})


@pytest.mark.parametrize("kind", ["initContainerStatuses", "ephemeralContainerStatuses"])
async def test_a_cleaner_at_the_end_waits_for_native_sidecars_too(kind: str) -> None:
    cleaner, ended = Cleaner(), {"state": {"terminated": {"exitCode": 0}}}
    handle = handler_of(cleaner.clean)
    sidecar = {**ENDED, kind: [ended, {"state": {"running": {}}}]}
    assert await send(handle, a_pod(OURS, status=sidecar, **DELETED)) == [OURS]
    assert cleaner.calls == []
    assert await send(handle, a_pod(OURS, status={**ENDED, kind: [ended]}, **DELETED)) == []


def test_cleaning_holds_up_no_other_pod() -> None:
    """A cleaner that waits for its next try sleeps, so that other pods are handled meanwhile."""

    async def run() -> None:
        cleaner = Cleaner(kopf.TemporaryError("busy", 60))
        slow = asyncio.create_task(
            send(handler_of(cleaner.clean), a_pod(OURS, status=ENDED, **DELETED))
        )
        other = Cleaner()
        assert await send(handler_of(other.clean), a_pod(OURS, status=ENDED, **DELETED)) == []
        assert not slow.done()
        slow.cancel()

    asyncio.run(run())
