"""The decorator of cleaners on kopf's own handlers and patches, without a cluster.

What kopf would send is a JSON patch with a test of the resourceVersion: finalizers of others stay.
"""

import asyncio
import functools
import logging
import threading
from collections.abc import Callable
from typing import Any

import kopf
import pytest

import reprieve
from reprieve import cleaning, kopf_client, pods
from reprieve.cleaning import CleaningTasks
from reprieve_policy import keys
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.cleanup import CleanerTurn
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_testing.objects.builders import NOW, an_eviction
from reprieve_testing.servers.stub_api import until

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


class Program:
    """A program with one cleaner, as kopf runs it: one event of a pod after another."""

    def __init__(self, cleaner: Callable[..., Any], **options: Any) -> None:
        registry = kopf.OperatorRegistry()
        decorate = reprieve.on.eviction(
            finalizer=OURS, registry=registry, **{"retry_seconds": 0.0, **options}
        )
        assert decorate(cleaner) is cleaner
        self.handlers = [handler.fn for handler in registry._watching.get_all_handlers()]
        self.tasks: CleaningTasks = self.handlers[0].__self__  # type: ignore[attr-defined]

    async def event(self, body: Json, type_: str | None = "MODIFIED") -> None:
        """Send an event; a handler that waits would hold up the next one."""
        for handle in self.handlers:
            patch = kopf.Patch(body=body)
            event = {"type": type_, "body": body, "uid": body["metadata"]["uid"], "patch": patch}
            await asyncio.wait_for(
                handle(**event, logger=logging.getLogger("test"), name="p", namespace="team"), 5
            )
            apply(patch, body)

    async def send(self, body: Json, type_: str | None = "MODIFIED") -> Json:
        """Return the finalizers that the pod has once all is done."""
        await self.event(body, type_)
        await self.settled()
        return body["metadata"]["finalizers"]

    async def settled(self) -> None:
        await asyncio.gather(*(found.task for found in self.tasks._by_uid.values()))  # type: ignore[arg-type]


def apply(patch: Any, body: Json) -> None:
    for change in patch.fns:
        change(body)
    assert not dict(patch)


@pytest.fixture(autouse=True)
def refused(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """How the next patches end: an error, or a conflict (`False`)."""
    refusals: list[Any] = []

    async def patch_pod(_: Any, event: Json, patch: Any) -> bool:
        refusal = refusals.pop(0) if refusals else True
        if isinstance(refusal, Exception):
            raise refusal
        if refusal:
            apply(patch, event["body"])
        return bool(refusal)

    monkeypatch.setattr(kopf_client, "patch_pod", patch_pod)
    monkeypatch.setattr(cleaning, "_CONFLICT_SECONDS", 0.0)
    return refusals


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
    assert await Program(cleaner.clean).send(body) == [OTHER]
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
    assert await Program(cleaner.clean).send(body) == before
    assert cleaner.calls == []


async def test_a_cleaner_that_fails_is_called_again_until_it_succeeds() -> None:
    cleaner = Cleaner(ValueError("bug"), kopf.TemporaryError("busy", 0), OSError("away"))
    assert await Program(cleaner.clean).send(a_pod(OURS, status=ENDED, **DELETED)) == []
    assert len(cleaner.calls) == 4


async def test_a_cleaner_that_gives_up_holds_no_pod() -> None:
    cleaner = Cleaner(kopf.PermanentError("never"))
    assert await Program(cleaner.clean).send(a_pod(OURS, status=ENDED, **DELETED)) == []
    assert len(cleaner.calls) == 1


async def test_a_function_that_blocks_runs_beside_the_operator() -> None:
    threads = []

    def clean(**_: Any) -> None:
        threads.append(threading.current_thread())

    assert await Program(clean).send(a_pod(OURS, status=ENDED, **DELETED)) == []
    assert threads
    assert threads[0] is not threading.main_thread()


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(**arguments: Any) -> Any:
        return function(**arguments)

    return wrapper


class _Callable:
    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner

    async def __call__(self, **arguments: Any) -> None:
        await self._cleaner.clean(**arguments)


@pytest.mark.parametrize("hide", [lambda cleaner: decorated(cleaner.clean), _Callable])
async def test_a_coroutine_that_looks_like_a_function_is_awaited_before_it_counts(
    hide: Callable[[Cleaner], Any],
) -> None:
    cleaner = Cleaner(kopf.TemporaryError("busy", 0))
    assert await Program(hide(cleaner)).send(a_pod(OURS, status=ENDED, **DELETED)) == []
    assert len(cleaner.calls) == 2


async def test_a_decorator_that_runs_its_coroutine_itself_may_do_so() -> None:
    cleaner = Cleaner()

    @functools.wraps(cleaner.clean)
    def wrapper(**arguments: Any) -> None:
        asyncio.run(cleaner.clean(**arguments))

    assert await Program(wrapper).send(a_pod(OURS, status=ENDED, **DELETED)) == []
    assert len(cleaner.calls) == 1


async def test_a_removal_that_met_a_conflict_is_repeated_and_the_cleaner_is_not() -> None:
    cleaner = Cleaner()
    program = Program(cleaner.clean)
    for _ in range(2):
        await program.send(a_pod(OURS, status=ENDED, **DELETED))
    assert len(cleaner.calls) == 1


async def test_a_pod_whose_eviction_was_cancelled_is_cleaned_when_it_ends() -> None:
    cleaner = Cleaner()
    program = Program(cleaner.clean, **ALL_PODS)
    assert await program.send(a_pod(OURS, annotations=HINTED)) == []
    assert await program.send(a_pod(annotations=HINTED)) == []
    assert await program.send(a_pod(annotations=CANCELLED)) == [OURS]
    ended = a_pod(OURS, status=ENDED, annotations=CANCELLED, **DELETED)
    assert await program.send(ended) == []
    assert [turn for turn, _ in cleaner.calls] == [
        CleanerTurn.BEFORE_SIGTERM,
        CleanerTurn.AT_THE_END,
    ]


async def test_a_pod_that_is_gone_is_forgotten() -> None:
    cleaner = Cleaner()
    program = Program(cleaner.clean)
    await program.send(a_pod(OURS, status=ENDED, **DELETED))
    await program.send(a_pod(status=ENDED, **DELETED), "DELETED")
    await program.send(a_pod(OURS, status=ENDED, **DELETED), None)
    assert len(cleaner.calls) == 2


ALL_PODS: dict[str, Any] = {"when": lambda **_: True, "adds_finalizer": True}


@pytest.mark.parametrize("adds", [True, False])
async def test_a_cleaner_may_put_its_finalizer_on_living_pods(*, adds: bool) -> None:
    program = Program(Cleaner().clean, **(ALL_PODS if adds else {}))
    assert await program.send(a_pod(OTHER)) == ([OTHER, OURS] if adds else [OTHER])
    assert await program.send(a_pod(OTHER, **DELETED)) == [OTHER]


def test_the_finalizer_is_added_only_to_pods_that_are_selected() -> None:
    with pytest.raises(ValueError, match="adds_finalizer needs labels, annotations or when"):
        reprieve.on.eviction(finalizer=OURS, adds_finalizer=True)


@pytest.mark.parametrize("selector", ["labels", "annotations", "when"])
def test_a_selector_that_selects_nothing_is_refused(selector: str) -> None:
    selectors: dict[str, Any] = {"labels": {}, "annotations": {}, "when": lambda **_: True}
    with pytest.raises(ValueError, match="they need adds_finalizer=True"):
        reprieve.on.eviction(finalizer=OURS, **{selector: selectors[selector]})


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
    program = Program(cleaner.clean)
    sidecar = {**ENDED, kind: [ended, {"state": {"running": {}}}]}
    assert await program.send(a_pod(OURS, status=sidecar, **DELETED)) == [OURS]
    assert cleaner.calls == []
    assert await program.send(a_pod(OURS, status={**ENDED, kind: [ended]}, **DELETED)) == []


async def test_a_cancel_ends_the_tries_of_a_cleaner() -> None:
    """The cleaner waits for its next try, for longer than the test."""
    cleaner = Cleaner(kopf.TemporaryError("busy", 600))
    program = Program(cleaner.clean)
    await program.event(a_pod(OURS, annotations=HINTED))
    await until(lambda: len(cleaner.calls) == 1)
    assert await program.send(a_pod(OURS, annotations=CANCELLED)) == [OURS]
    assert not program.tasks._by_uid
    ended = a_pod(OURS, status=ENDED, annotations=CANCELLED, **DELETED)
    assert await program.send(ended) == []
    assert [turn for turn, _ in cleaner.calls] == [
        CleanerTurn.BEFORE_SIGTERM,
        CleanerTurn.AT_THE_END,
    ]


async def test_a_cleaner_that_ends_after_the_cancel_is_asked_again_when_the_pod_ends() -> None:
    calls, may_end = list[CleanerTurn](), asyncio.Event()

    async def clean(turn: CleanerTurn, **_: Any) -> None:
        calls.append(turn)
        await may_end.wait()

    program = Program(clean)
    await program.event(a_pod(OURS, annotations=HINTED))
    await until(lambda: bool(calls))
    cancelled = a_pod(OURS, annotations=CANCELLED)
    await program.event(cancelled)
    may_end.set()
    await until(lambda: not program.tasks._by_uid)
    assert cancelled["metadata"]["finalizers"] == [OURS]
    assert await program.send(a_pod(OURS, status=ENDED, **DELETED)) == []
    assert calls == [CleanerTurn.BEFORE_SIGTERM, CleanerTurn.AT_THE_END]


async def test_a_cleaner_that_is_late_is_asked_at_once_when_the_containers_have_ended() -> None:
    cleaner = Cleaner(kopf.TemporaryError("busy", 600))
    program = Program(cleaner.clean)
    await program.event(a_pod(OURS, annotations=HINTED))
    await until(lambda: len(cleaner.calls) == 1)
    assert await program.send(a_pod(OURS, status=ENDED, annotations=HINTED, **DELETED)) == []
    assert [turn for turn, _ in cleaner.calls][-1] is CleanerTurn.AT_THE_END


async def test_an_event_of_the_pod_does_not_hurry_the_next_try() -> None:
    cleaner = Cleaner(kopf.TemporaryError("busy", 600))
    program = Program(cleaner.clean)
    for _ in range(3):
        await program.event(a_pod(OURS, annotations=HINTED))
        await until(lambda: len(cleaner.calls) == 1)
    await program.tasks.stop()


@pytest.mark.parametrize("refusal", [False, kopf_client.NotPatched("429 busy")])
async def test_a_removal_that_is_refused_is_repeated(refused: list[Any], refusal: Any) -> None:
    refused.append(refusal)
    cleaner = Cleaner()
    assert await Program(cleaner.clean).send(a_pod(OTHER, OURS, status=ENDED, **DELETED)) == [OTHER]
    assert len(cleaner.calls) == 1


async def test_the_end_of_the_program_ends_its_tasks() -> None:
    cleaner = Cleaner(kopf.TemporaryError("busy", 600))
    program = Program(cleaner.clean)
    await program.tasks.start(kopf.OperatorSettings())
    await program.event(a_pod(OURS, status=ENDED, **DELETED))
    await until(lambda: len(cleaner.calls) == 1)
    await asyncio.wait_for(program.tasks.stop(), 5)


async def test_cleaning_holds_up_no_other_pod() -> None:
    """A cleaner that waits for its next try holds up neither kopf nor another cleaner."""
    cleaner, other = Cleaner(kopf.TemporaryError("busy", 600)), Cleaner()
    program = Program(cleaner.clean)
    await program.event(a_pod(OURS, status=ENDED, **DELETED))
    await until(lambda: len(cleaner.calls) == 1)
    assert await Program(other.clean).send(a_pod(OURS, status=ENDED, **DELETED)) == []
    await program.tasks.stop()


async def test_a_cleaner_that_blocks_does_not_hold_up_another_one() -> None:
    done = threading.Event()
    hanging = Program(lambda **_: done.wait(10))
    other: list[str] = []
    quick = Program(lambda *, uid, **_: other.append(uid))
    try:
        for number in range(100):
            await hanging.event(a_pod(OURS, status=ENDED, uid=f"u{number}", **DELETED))
        assert await asyncio.wait_for(quick.send(a_pod(OURS, status=ENDED, **DELETED)), 5) == []
    finally:
        done.set()
        await hanging.settled()
    assert other == ["u"]
