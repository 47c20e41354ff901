"""What is known of a victim's object: its newest version, and when it is read again."""

import asyncio
from dataclasses import dataclass, field
from typing import cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallPriority
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.victims.pod_tracker import PodTracker, VictimRef
from reprieve_policy import keys
from reprieve_runtime.client.api import ApiError
from reprieve_testing.virtual_time import run_in_virtual_time

RESYNC_SECONDS = 30.0


@dataclass
class OnePodApiServer:
    """A clock that the test sets, and an API server with one pod."""

    pod: VictimPod | None = None
    error: ApiError | None = None
    seconds: float = 0.0
    reads: int = 0
    allows_rereads: bool = True

    async def read_pod(
        self, namespace: str, name: str, uid: str, _: CallPriority
    ) -> VictimPod | None:
        assert (namespace, name, uid) == ("team", "train", "uid")
        self.reads += 1
        if self.error is not None:
            raise self.error
        return self.pod

    def tracker(self) -> PodTracker:
        clock = Clock(monotonic=lambda: self.seconds)
        ref = VictimRef("team", "train", "uid")
        return PodTracker(
            ref,
            cast("Writes", self),
            clock,
            reread_seconds=RESYNC_SECONDS,
            may_reread=lambda: self.allows_rereads,
        )


@dataclass
class SlowApiServer(OnePodApiServer):
    """It answers a read once the test lets it."""

    is_asked: asyncio.Event = field(default_factory=asyncio.Event)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)

    async def read_pod(
        self, namespace: str, name: str, uid: str, priority: CallPriority
    ) -> VictimPod | None:
        pod = await super().read_pod(namespace, name, uid, priority)
        self.is_asked.set()
        await self.may_answer.wait()
        return pod

    async def begin_reread(self, known: VictimPod) -> "tuple[PodTracker, asyncio.Task[bool]]":
        """Begin to read a known pod again; return once the API server was asked."""
        tracker = self.tracker()
        tracker.on_pod_update(known)
        tracker.request_reread()
        reading = asyncio.create_task(tracker.refresh(CallPriority.RECORD))
        await self.is_asked.wait()
        return tracker, reading


def a_pod(version: str, *, phase: str = "Running", **more: object) -> VictimPod:
    metadata = {"namespace": "team", "name": "train", "uid": "uid", "resourceVersion": version}
    document = {"metadata": metadata | more, "status": {"phase": phase}}
    return msgspec.convert(document, VictimPod)


async def is_woken(tracker: PodTracker) -> bool:
    """Return whether a wait ends at once."""
    waiting = asyncio.create_task(tracker.wait_for_change(RESYNC_SECONDS))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    was_woken = waiting.done()
    waiting.cancel()
    await asyncio.wait([waiting])
    return was_woken


UPDATES = {
    "a newer version is kept, and wakes": ("8", "8", True),
    "an own write that the watch repeats does not wake": ("7", "7", False),
    "an older version is dropped": ("6", "7", False),
}


@pytest.mark.parametrize(("version", "kept", "wakes"), UPDATES.values(), ids=UPDATES)
async def test_the_newest_version_is_kept(version: str, kept: str, *, wakes: bool) -> None:
    tracker = OnePodApiServer().tracker()
    tracker.on_pod_update(a_pod("7"))
    tracker.discard_changes()
    tracker.on_pod_update(a_pod(version))
    assert tracker.pod is not None
    assert tracker.pod.metadata.resourceVersion == kept
    assert await is_woken(tracker) is wakes


def test_a_change_ends_no_shorter_wait() -> None:
    async def waited_seconds(at_least: float) -> float:
        loop = asyncio.get_running_loop()
        tracker, began = OnePodApiServer().tracker(), loop.time()
        loop.call_later(0.5, tracker.wake)
        await tracker.wait_for_change(RESYNC_SECONDS, at_least)
        return loop.time() - began

    assert run_in_virtual_time(waited_seconds(0.0)) == 0.5
    assert run_in_virtual_time(waited_seconds(2.0)) == 2.0


def conflicts(tracker: PodTracker, count: int) -> None:
    for _ in range(count):
        tracker.on_conflict()


async def test_after_conflicts_in_a_row_a_pod_is_written_by_its_uid_alone_and_read_again() -> None:
    api_server = OnePodApiServer(pod=a_pod("9"))
    tracker = api_server.tracker()
    assert tracker.pod_to_write is None
    tracker.on_pod_update(a_pod("7"))
    conflicts(tracker, 2)
    assert tracker.pod_to_write == a_pod("7")
    conflicts(tracker, 1)
    assert tracker.pod_to_write == a_pod("")
    tracker.on_pod_written(a_pod("", finalizers=["example.com/written"]))
    assert tracker.pod == a_pod("7"), "what else has changed is unknown"
    assert await tracker.refresh(CallPriority.RECORD)
    assert (api_server.reads, tracker.pod_to_write) == (1, a_pod("9"))


LABELLED = {keys.SOFT_EVICTION: "hinted"}
REQUESTED_AGAIN = {keys.SOFT_EVICTION: "requested"}


async def test_a_mark_that_was_removed_before_a_write_by_the_uid_stays_removed() -> None:
    tracker = OnePodApiServer().tracker()
    tracker.on_pod_update(a_pod("7", labels=LABELLED))
    tracker.on_left_watch()
    assert not tracker.is_unmarked_meanwhile, "no write has set it again"
    tracker.on_pod_written(a_pod("", labels=LABELLED))
    tracker.on_pod_update(a_pod("9", labels=LABELLED))
    assert tracker.is_unmarked_meanwhile
    tracker.on_pod_update(a_pod("10", labels=REQUESTED_AGAIN))
    assert not tracker.is_unmarked_meanwhile


async def test_a_read_that_is_older_than_what_the_watch_has_shown_meanwhile_is_dropped() -> None:
    api_server = SlowApiServer(pod=a_pod("8"))
    tracker, reading = await api_server.begin_reread(a_pod("7"))
    tracker.on_pod_update(a_pod("9"))
    api_server.may_answer.set()
    assert await reading
    assert tracker.pod == a_pod("9")


async def test_a_read_that_is_older_than_what_was_known_before_is_kept() -> None:
    """The API server's store was restored from a backup: its versions count from earlier on."""
    tracker = OnePodApiServer(pod=a_pod("5")).tracker()
    tracker.on_pod_update(a_pod("7"))
    tracker.request_reread()
    await tracker.refresh(CallPriority.RECORD)
    assert tracker.pod == a_pod("5")


async def test_a_pod_that_leaves_the_watch_during_a_read_is_read_again() -> None:
    api_server = SlowApiServer(pod=a_pod("8"))
    tracker, reading = await api_server.begin_reread(a_pod("7"))
    tracker.on_left_watch()
    api_server.pod = None
    api_server.may_answer.set()
    assert await reading
    assert tracker.pod == a_pod("8")
    assert await tracker.refresh(CallPriority.RECORD)
    assert tracker.pod is None


async def test_a_read_that_fails_is_made_again() -> None:
    api_server = OnePodApiServer(pod=a_pod("8"), error=ApiError(500, "InternalError", "busy"))
    tracker = api_server.tracker()
    tracker.on_pod_update(a_pod("7"))
    tracker.request_reread()
    with pytest.raises(ApiError):
        await tracker.refresh(CallPriority.RECORD)
    api_server.error = None
    assert await tracker.refresh(CallPriority.RECORD)
    assert tracker.pod == a_pod("8")


async def test_a_known_pod_is_read_again_only_once_an_interval() -> None:
    api_server = OnePodApiServer(pod=a_pod("8"))
    tracker = api_server.tracker()
    tracker.on_pod_update(a_pod("7"))
    assert not await tracker.refresh(CallPriority.RECORD)
    api_server.seconds = RESYNC_SECONDS
    assert await tracker.refresh(CallPriority.RECORD)
    assert not await tracker.refresh(CallPriority.RECORD)
    assert (api_server.reads, tracker.pod) == (1, a_pod("8"))


async def test_where_too_many_are_read_only_what_is_needed_is_read_again() -> None:
    api_server = OnePodApiServer(pod=a_pod("8"), allows_rereads=False)
    tracker = api_server.tracker()
    tracker.on_pod_update(a_pod("7"))
    api_server.seconds = 2 * RESYNC_SECONDS
    assert not await tracker.refresh(CallPriority.RECORD)
    tracker.request_reread()
    assert await tracker.refresh(CallPriority.RECORD)
    api_server.seconds, api_server.allows_rereads = 3 * RESYNC_SECONDS, True
    assert await tracker.refresh(CallPriority.RECORD)


async def test_a_failed_periodic_read_does_not_stop_the_work_and_a_needed_one_does() -> None:
    api_server = OnePodApiServer(error=ApiError(503, "ServiceUnavailable", "busy"), seconds=0.0)
    tracker = api_server.tracker()
    with pytest.raises(ApiError):
        await tracker.refresh(CallPriority.NOTIFY)
    tracker.on_pod_update(a_pod("7"))
    api_server.seconds = RESYNC_SECONDS
    assert not await tracker.refresh(CallPriority.RECORD)
    tracker.request_reread()
    with pytest.raises(ApiError):
        await tracker.refresh(CallPriority.RECORD)


async def test_a_pod_that_is_gone_is_known_as_gone() -> None:
    tracker = OnePodApiServer().tracker()
    tracker.on_pod_update(a_pod("7"))
    tracker.request_reread()
    assert await tracker.refresh(CallPriority.RECORD)
    assert tracker.pod is None


DELETED = {"deletionTimestamp": "2026-11-26T12:00:00Z"}
LEAVING = {
    "nothing held it any more: it is gone": (a_pod("7", phase="Succeeded", **DELETED), 0),
    "our own finalizer held it, and is being removed": (
        a_pod("7", phase="Succeeded", finalizers=[keys.CLEANUP_FINALIZER], **DELETED),
        0,
    ),
    "a finalizer of others held it": (
        a_pod("7", phase="Succeeded", finalizers=["a/b"], **DELETED),
        1,
    ),
    "its containers run": (a_pod("7", **DELETED), 1),
    "it has completed and is not deleted: its label is gone": (a_pod("7", phase="Succeeded"), 1),
}


@pytest.mark.parametrize(("last", "reads"), LEAVING.values(), ids=LEAVING)
async def test_a_pod_that_leaves_the_watch_is_read_unless_only_its_end_was_left(
    last: VictimPod, reads: int
) -> None:
    api_server = OnePodApiServer()
    tracker = api_server.tracker()
    tracker.on_pod_update(last)
    tracker.on_left_watch()
    assert await is_woken(tracker)
    assert await tracker.refresh(CallPriority.RECORD)
    assert (tracker.pod, api_server.reads) == (None, reads)


def test_of_the_conditions_only_the_disruption_is_kept() -> None:
    names = ("Initialized", "Ready", "DisruptionTarget", "PodScheduled")
    conditions = [{"type": name, "status": "True"} for name in names]
    tracker = OnePodApiServer().tracker()
    tracker.on_pod_update(msgspec.convert({"status": {"conditions": conditions}}, VictimPod))
    assert tracker.pod is not None
    assert [condition.type for condition in tracker.pod.status.conditions or ()] == [names[2]]


async def test_what_the_watch_shows_of_a_write_is_kept_over_its_answer_whichever_comes_first() -> (
    None
):
    # An admission webhook added a finalizer in the call.
    shown = a_pod("8", finalizers=[keys.CLEANUP_FINALIZER, "example.com/webhook"])
    written = a_pod("8", finalizers=[keys.CLEANUP_FINALIZER])
    for first, second in ((shown, written), (written, shown)):
        tracker = OnePodApiServer().tracker()
        tracker.on_pod_update(a_pod("7"))
        for pod in (first, second):
            take = tracker.on_pod_update if pod is shown else tracker.on_pod_written
            take(pod)
        assert tracker.pod == shown
    tracker.on_pod_written(a_pod("9"))
    assert tracker.pod == a_pod("9")
