"""The finalizer of a victim from its notice to its end, with a whole reconciler and no API server.

What a replacement inherits is written before the pod is released, whichever client deletes it.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims.registry import ReconcilerRegistry
from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction
from reprieve_runtime.client.api import ApiError
from reprieve_testing.operator_parts import a_registry
from reprieve_testing.servers.stub_api import until

OURS, OTHER, EARLY = keys.CLEANUP_FINALIZER, "example.com/disk", "example.com/early"
HINT = {keys.CHECKPOINT_HINT: "annotation:"}
BEFORE = {keys.CLEANERS_BEFORE: EARLY}


@dataclass
class OnePod:
    """A pod as an API server keeps it, and what the operator did to it and its owner, in order."""

    annotations: dict[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    settings: PolicySettings = field(default_factory=PolicySettings)
    terminating: set[str] = field(default_factory=set)
    """Namespaces that are being deleted."""
    done: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)
    refusal: ApiError | None = None
    """What the API server answers to a write of the state."""
    pod: VictimPod | None = field(init=False)
    registry: ReconcilerRegistry = field(init=False)

    def is_busy(self, _: str) -> bool:
        return False

    def __post_init__(self) -> None:
        owner = {"kind": "Job", "name": "train", "uid": "j", "controller": True}
        metadata = {
            "namespace": "team",
            "name": "train-0",
            "uid": "u",
            "resourceVersion": "1",
            "labels": {keys.SOFT_EVICTION: mark.REQUESTED},
            "annotations": self.annotations,
            "finalizers": self.finalizers,
            "ownerReferences": [{"apiVersion": "batch/v1", **owner}],
        }
        running = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}
        document = {"metadata": metadata, "spec": {"nodeName": "a"}, "status": running}
        self.pod = msgspec.convert(document, VictimPod)
        recorder: Any = SimpleNamespace(
            event=lambda _, reason, note, **__: self.events.append(f"{reason}: {note}")
        )
        namespaces: Any = SimpleNamespace(
            get=lambda _: NamespacePolicy(), is_terminating=self.terminating.__contains__
        )
        policy: Any = SimpleNamespace(current=self.settings)
        bare: Any = SimpleNamespace(
            store_replacement=self._nothing, on_victim_gone=lambda *_, **__: None
        )
        ledger: Any = SimpleNamespace(record=self._record, publish_checkpoint=self._nothing)
        self.registry = a_registry(
            writes=self,
            policy=policy,
            namespaces=namespaces,
            ledger=ledger,
            bare_pods=bare,
            recorder=recorder,
            clock=self.clock,
            settings=OperatorSettings(identity="a", resync_interval_seconds=0.2),
        )

    @property
    def current(self) -> VictimPod:
        assert self.pod is not None
        return self.pod

    @property
    def finalizers_now(self) -> tuple[str, ...]:
        return () if self.pod is None else tuple(self.pod.metadata.finalizers or ())

    def change(self, **metadata: Any) -> VictimPod:
        """Change the pod, as any client may; it disappears as it does in an API server."""
        version = str(int(self.current.metadata.resourceVersion) + 1)
        meta = replace(self.current.metadata, resourceVersion=version, **metadata)
        self.pod = changed = replace(self.current, metadata=meta)
        has_ended = pod_state.have_containers_ended(changed)
        if meta.deletionTimestamp is not None and has_ended and not meta.finalizers:
            self.pod = None
            self.registry.on_pod_delete("u")
        else:
            self.registry.on_pod_update(changed)
        return changed

    def end_containers(self) -> None:
        ended: Any = [{"state": {"terminated": {"exitCode": 143}}}]
        status = {"phase": "Failed", "containerStatuses": ended}
        self.pod = replace(self.current, status=msgspec.convert(status, type(self.current.status)))
        self.change()

    def delete(self) -> None:
        self.change(deletionTimestamp="2126-11-21T12:00:00Z")

    async def read_pod(self, *_: object) -> VictimPod | None:
        return self.pod

    async def write_state(
        self, pod: VictimPod, state: Eviction, *_: object, adds_finalizer: bool = False, **__: bool
    ) -> VictimPod:
        if self.refusal is not None:
            self.done.append("refused")
            raise self.refusal
        return self._write(pod, state, adds_finalizer=adds_finalizer)

    async def write_disruption_target(
        self, pod: VictimPod, state: Eviction, *, adds_finalizer: bool = False
    ) -> VictimPod:
        return self._write(pod, state, adds_finalizer=adds_finalizer)

    def _write(self, pod: VictimPod, state: Eviction, *, adds_finalizer: bool) -> VictimPod:
        assert pod.metadata.resourceVersion == self.current.metadata.resourceVersion
        self.done.append(f"{state.phase}{' held' if adds_finalizer else ''}")
        texts = {**annotations_of(pod.metadata), keys.EVICTION: eviction.render(state)}
        labels = {**labels_of(pod.metadata), keys.SOFT_EVICTION: state.phase.value}
        kept = [name for name in pod.metadata.finalizers or () if name != OURS]
        ours = [OURS] if adds_finalizer or OURS in self.finalizers_now else []
        return self.change(labels=labels, annotations=texts, finalizers=(*kept, *ours))

    async def delete_pod(self, *_: object) -> bool:
        self.done.append("delete")
        self.delete()
        return True

    async def remove_finalizer(self, metadata: Any) -> Any:
        self.done.append("release")
        kept = tuple(name for name in metadata.finalizers if name != OURS)
        return self.change(finalizers=kept).metadata

    async def _record(self, *_: object) -> None:
        self.done.append("record")

    async def _nothing(self, *_: object, **__: object) -> None: ...


@asynccontextmanager
async def evicting(one: OnePod) -> AsyncIterator[OnePod]:
    one.registry.on_pod_update(one.current)
    try:
        yield one
    finally:
        await one.registry.close()


async def reaches(one: OnePod, *done: str) -> None:
    """Wait until the operator has done exactly this."""
    try:
        await asyncio.wait_for(until(lambda: one.done == list(done)), 5)
    except TimeoutError:
        assert one.done == list(done)


async def test_by_default_the_finalizer_goes_on_with_the_notice_and_off_at_the_end() -> None:
    async with evicting(OnePod(HINT)) as one:
        await reaches(one, "hinted held")
        assert one.finalizers_now == (OURS,)
        saved = {**annotations_of(one.current.metadata), keys.CHECKPOINT_ANSWER: SAVED}
        one.change(annotations=saved)
        end = ["hinted held", "record", "terminating held", "delete"]
        await reaches(one, *end)
        assert one.finalizers_now == (OURS,)
        one.end_containers()
        await reaches(one, *end, "release")
        assert one.pod is None
        await until(lambda: any("SoftEvictionCompleted" in event for event in one.events))


SAVED = '{"state":"saved","step":7}'


async def test_a_victim_without_notice_gets_the_finalizer_with_its_only_write() -> None:
    async with evicting(OnePod()) as one:
        await reaches(one, "record", "terminating held", "delete")
        assert one.finalizers_now == (OURS,)


async def test_an_admin_may_do_without_the_finalizer() -> None:
    async with evicting(OnePod(settings=PolicySettings(cleanup_finalizer=False))) as one:
        await reaches(one, "record", "terminating", "delete")
        assert one.finalizers_now == ()


async def test_a_victim_that_another_client_deletes_stays_until_all_is_written() -> None:
    async with evicting(OnePod(HINT)) as one:
        await reaches(one, "hinted held")
        one.delete()
        one.end_containers()
        await reaches(one, "hinted held", "record", "terminating", "release")
        assert one.pod is None
        assert any("SoftEvictionOvertaken" in event for event in one.events)


async def test_an_operator_that_was_away_finds_a_victim_that_another_client_deleted() -> None:
    """Its containers ended meanwhile: without the finalizer, nothing of it would be left."""
    async with evicting(OnePod(HINT)) as before:
        await reaches(before, "hinted held")
        held = before.current
    one = OnePod()
    one.pod = held
    one.delete()
    one.end_containers()
    async with evicting(one):
        await reaches(one, "record", "terminating", "release")
        assert one.pod is None


class Skips:
    """A clock that a test sets forward."""

    def __init__(self) -> None:
        self.seconds = 0.0
        usual = Clock()
        self.clock = Clock(
            now=lambda: usual.now() + timedelta(seconds=self.seconds),
            monotonic=lambda: usual.monotonic() + self.seconds,
            wall=lambda: usual.wall() + self.seconds,
        )


@pytest.mark.parametrize("status", [403, 429, 500])
async def test_the_finalizer_is_removed_at_the_ceiling_whatever_fails(status: int) -> None:
    skips = Skips()
    async with evicting(OnePod(HINT, clock=skips.clock)) as one:
        await reaches(one, "hinted held")
        one.refusal = ApiError(status, "Refused", "a webhook of the cluster refuses every state")
        one.change(deletionTimestamp=timestamp.render(skips.clock.now()))
        await until(lambda: "refused" in one.done)
        skips.seconds = 299
        one.done.clear()
        await until(lambda: "refused" in one.done)
        assert one.finalizers_now == (OURS,)
        skips.seconds = 301
        await until(lambda: one.finalizers_now == ())
        (event,) = [event for event in one.events if "CleanupCeilingReached" in event]
        assert "what its replacement inherits could not be written" in event


async def test_one_refusal_long_after_the_ceiling_loses_nothing() -> None:
    """The operator was away for an hour, and its first write meets a busy API server."""
    async with evicting(OnePod(HINT)) as one:
        await reaches(one, "hinted held")
        one.refusal = ApiError(429, "TooManyRequests", "later")
        one.change(deletionTimestamp=timestamp.render(one.clock.now() - timedelta(hours=1)))
        await until(lambda: "refused" in one.done)
        one.refusal = None
        await until(lambda: one.finalizers_now == ())
        assert one.done[-2:] == ["terminating", "release"]
        assert "record" in one.done


ENDS: dict[str, Callable[[OnePod], None]] = {
    "its own": lambda one: one.terminating.add("team"),
    "the operator's": lambda one: one.terminating.add("reprieve-system"),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("deleted", [True, False])
async def test_a_terminating_namespace_releases_a_victim_at_once(
    end: Callable[[OnePod], None], *, deleted: bool
) -> None:
    async with evicting(OnePod(HINT)) as one:
        await reaches(one, "hinted held")
        end(one)
        if deleted:
            one.delete()
        one.registry.on_namespace_terminating(None)
        await until(lambda: one.finalizers_now == ())
        assert one.done[1] == "release"


async def test_no_victim_is_held_in_a_terminating_namespace() -> None:
    async with evicting(OnePod(terminating={"team"})) as one:
        await reaches(one, "record", "terminating", "delete")


async def test_the_deletion_waits_for_the_cleaners_that_are_asked_before_sigterm() -> None:
    async with evicting(OnePod(BEFORE, (EARLY, OTHER))) as one:
        await reaches(one, "settled held")
        assert one.finalizers_now == (EARLY, OTHER, OURS)
        one.change(finalizers=(OTHER, OURS))
        await reaches(one, "settled held", "record", "terminating held", "delete")
        first = next(event for event in one.events if "SoftEvictionWaiting" in event)
        assert "its cleaners are asked before SIGTERM, until" in first
        assert not any("CleanersTimedOut" in event for event in one.events)


def names_late_cleaners(one: OnePod) -> bool:
    (event,) = [event for event in one.events if "CleanersTimedOut" in event]
    text = r"CleanersTimedOut: finalizers (.+) \(held for \d+s\) were not removed in time; (.+)"
    found = re.fullmatch(text, event)
    return found is not None and found.groups() == (f'"{EARLY}"', "SIGTERM comes now")


async def test_cleaners_that_are_not_done_in_time_hold_up_sigterm_no_longer() -> None:
    notice = {**BEFORE, keys.CHECKPOINT_TIMEOUT: "1s"}
    async with evicting(OnePod(notice, (EARLY,))) as one:
        await reaches(one, "settled held", "record", "terminating held", "delete")
        assert names_late_cleaners(one)
        assert pod_state.state_of(one.current.metadata).outcome is CheckpointOutcome.SKIPPED  # type: ignore[union-attr]


async def test_cleaners_are_named_too_where_the_workload_used_all_their_time() -> None:
    notice = HINT | BEFORE | {keys.CHECKPOINT_TIMEOUT: "1s"}
    async with evicting(OnePod(notice, (EARLY,))) as one:
        await reaches(one, "hinted held", "record", "terminating held", "delete")
        assert names_late_cleaners(one)


async def test_cleaners_that_are_not_on_the_pod_are_not_waited_for() -> None:
    async with evicting(OnePod(BEFORE, (OTHER,))) as one:
        await reaches(one, "record", "terminating held", "delete")
