"""The records on a victim's owner, for each way a victim ends: the ledger, or the time it saved."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.leader_election import LeaderElection
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.replacements.bare_pods import BarePodController
from reprieve_operator.replacements.ledger_writer import LedgerWriter
from reprieve_operator.replacements.owner_jobs import OwnerJobs
from reprieve_operator.victims.cleaner_report import CleanerReport
from reprieve_operator.victims.reporter import Reporter
from reprieve_operator.victims.termination.deletion_wait import DeletionWait
from reprieve_operator.victims.termination.eviction_retry import EvictionRetry
from reprieve_operator.victims.termination.handover import ReplacementHandover
from reprieve_operator.victims.termination.job_suspension import JobSuspension
from reprieve_operator.victims.termination.state_writer import TerminationStateWriter
from reprieve_operator.victims.termination.termination import Termination
from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle import ledger
from reprieve_policy.lifecycle.eviction import Checkpoint, CheckpointOutcome, Eviction, Phase
from reprieve_policy.lifecycle.machine import LifecycleDecision
from reprieve_policy.lifecycle.transitions import Transition
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import NOW, after, an_eviction
from reprieve_testing.servers.stub_api import StubApi, stub_api

JOBS = "/apis/batch/v1/namespaces/team/jobs"
JOBS_OF_OTHERS = "/apis/batch/v1/namespaces/others/jobs"
HINTED = an_eviction().hinted(deadline=after(600)).build()
SAVED = replace(
    HINTED,
    phase=Phase.SAVED,
    outcome=CheckpointOutcome.SAVED,
    checkpoint=Checkpoint(saved_at=after(60)),
)
GOING = replace(SAVED, phase=Phase.TERMINATING, grace_seconds=30)
ENDED = replace(SAVED, phase=Phase.FINISHED)
STAYS = replace(SAVED, phase=Phase.CANCELLED, outcome=CheckpointOutcome.CANCELLED)


def a_pod(
    *, phase: str = "Running", owned: bool = True, owner_name: str = "train", **fields: Any
) -> VictimPod:
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": owner_name,
        "uid": "uid-of-train",
        "controller": True,
    }
    identity = {"name": "train-0", "namespace": "team", "uid": "u", "resourceVersion": "7"}
    metadata = {**identity, **fields, "ownerReferences": [owner] if owned else []}
    return msgspec.convert({"metadata": metadata, "status": {"phase": phase}}, VictimPod)


NEVER = {"annotations": {keys.REQUEUE: "never"}}


class Leading:
    """An election that this replica has won."""

    def require_leadership(self) -> float:
        return 60.0


@asynccontextmanager
async def a_ledger(
    directory: Path, **annotations: str
) -> AsyncIterator[tuple[StubApi, LedgerWriter]]:
    job = {
        "name": "train",
        "namespace": "team",
        "uid": "uid-of-train",
        "resourceVersion": "3",
        "annotations": annotations,
    }
    collections = {JOBS: {"train": {"metadata": job}}, JOBS_OF_OTHERS: {}}
    async with stub_api(directory, collections=collections) as (stub, api):
        effects = Writes(
            api,
            CallLimiter(32),
            cast("LeaderElection", Leading()),
            OperatorMetrics(),
            Clock(now=lambda: NOW),
        )
        yield stub, LedgerWriter(effects)


def publish(directory: Path, pod: VictimPod, saved_at: datetime, **annotations: str) -> StubApi:
    async def run() -> StubApi:
        async with a_ledger(directory, **annotations) as (stub, writer):
            await writer.publish_checkpoint(pod, saved_at)
            return stub

    return asyncio.run(run())


KNOWN = {
    "no time in the ledger": ({}, True),
    "an earlier time in the ledger": ({keys.LAST_CHECKPOINT_AT: "2026-11-21T12:00:59Z"}, True),
    "an unreadable time in the ledger": ({keys.LAST_CHECKPOINT_AT: "soon"}, True),
    "the same time in the ledger": ({keys.LAST_CHECKPOINT_AT: "2026-11-21T12:01:00Z"}, False),
    "another pod of the owner saved later": (
        {keys.LAST_CHECKPOINT_AT: "2026-11-21T12:01:01Z"},
        False,
    ),
}


@pytest.mark.parametrize(("annotations", "is_news"), KNOWN.values(), ids=KNOWN)
def test_the_owner_has_the_time_of_the_last_checkpoint_of_its_pods(
    tmp_path: Path, annotations: dict[str, str], *, is_news: bool
) -> None:
    stub = publish(tmp_path, a_pod(), after(60), **annotations)
    want = {
        "annotations": {keys.LAST_CHECKPOINT_AT: "2026-11-21T12:01:00Z"},
        "uid": "uid-of-train",
        "resourceVersion": "3",
    }
    assert stub.patches == ([(f"{JOBS}/train", {"metadata": want})] if is_news else [])


def test_a_pod_without_an_owner_costs_no_call(tmp_path: Path) -> None:
    stub = publish(tmp_path, a_pod(owned=False), after(60))
    assert (stub.patches, dict(stub.calls)) == ([], {})


def test_a_pod_that_names_the_uid_of_anothers_owner_keeps_no_ledger_from_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with a_ledger(tmp_path) as (stub, writer):
            await writer.record(a_pod(namespace="others", owner_name="x"), GOING)
            await writer.record(a_pod(), GOING)
            assert [path for path, _ in stub.patches] == [f"{JOBS}/train"]

    asyncio.run(run())


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_that_no_object_has_is_no_path_to_a_collection(tmp_path: Path, name: str) -> None:
    async def run() -> None:
        async with a_ledger(tmp_path) as (stub, writer):
            await writer.record(a_pod(owner_name=name), GOING)
            assert (stub.patches, dict(stub.calls)) == ([], {})

    asyncio.run(run())


@pytest.mark.parametrize("known", ["2026-11-21T12:00:30Z", "2026-11-21T12:01:30Z"])
def test_counting_a_pod_costs_one_write_and_never_sets_an_earlier_time(
    tmp_path: Path, known: str
) -> None:
    async def run() -> None:
        async with a_ledger(tmp_path, **{keys.LAST_CHECKPOINT_AT: known}) as (stub, writer):
            await writer.record(a_pod(), GOING)
            ((_, body),) = stub.patches
            annotations = body["metadata"]["annotations"]
            assert (
                ledger.parse(annotations[keys.LEDGER])[ledger.SHARED_SLOT].checkpoint
                == SAVED.checkpoint
            )
            is_news = known < "2026-11-21T12:01:00Z"
            assert annotations.get(keys.LAST_CHECKPOINT_AT) == (
                "2026-11-21T12:01:00Z" if is_news else None
            )

    asyncio.run(run())


@dataclass
class TerminationCollaborators:
    """The collaborators of a `Termination`, and its actions in order."""

    done: list[str] = field(default_factory=list)
    refusal: int | None = None
    """The status with which writes to the owner are refused."""
    refuses: dict[str, ApiError] = field(default_factory=dict)
    """The errors of other writes."""
    seconds: float = 0.0
    events: list[str] = field(default_factory=list)
    current: PolicySettings = field(default_factory=PolicySettings)

    def departure(self) -> Termination:
        clock = Clock(now=lambda: after(self.seconds), monotonic=lambda: self.seconds)
        writes, recorder = cast("Writes", self), cast("EventRecorder", self)
        policy, reporter = cast("PolicySource", self), cast("Reporter", self)
        handover = ReplacementHandover(
            cast("LedgerWriter", self), cast("BarePodController", self), policy, recorder, clock
        )
        deletion_wait = DeletionWait(
            recorder,
            CleanerReport(recorder, policy, clock),
            clock,
            reread_seconds=30.0,
            cleanup_ceiling_seconds=300.0,
        )
        return Termination(
            writes=writes,
            state_writer=TerminationStateWriter(
                writes,
                policy,
                clock,
                adds_finalizer=lambda *_: False,
                on_pod_written=lambda _: None,
                on_state_written=lambda *_: None,
            ),
            job_suspension=JobSuspension(
                cast("OwnerJobs", None), policy, recorder, reporter, clock
            ),
            handover=handover,
            deletion_wait=deletion_wait,
            eviction_retry=EvictionRetry(writes, policy, recorder, clock),
            reporter=reporter,
            reread_seconds=30.0,
            on_pod_written=lambda _: None,
        )

    async def record(self, pod: VictimPod, state: Eviction) -> None:  # noqa: ARG002 - the ledger's interface
        self._write_owner("record")

    async def retract(self, pod: VictimPod, state: Eviction) -> None:  # noqa: ARG002
        self._write_owner("retract")

    async def publish_checkpoint(self, pod: VictimPod, saved_at: datetime) -> None:  # noqa: ARG002
        assert saved_at == after(60)
        self._write_owner("publish")

    def _write_owner(self, what: str) -> None:
        self.done.append(what)
        if self.refusal is not None:
            raise ApiError(self.refusal, "Refused", "no")

    def event(self, _: object, reason: str, note: str) -> None:  # noqa: ARG002 - the recorder's interface
        self.events.append(reason)

    async def write_finished(self, pod: VictimPod, state: Eviction) -> VictimPod:  # noqa: ARG002 - the effects' interface
        return self._write("finished", pod)

    async def write_cancelled(self, pod: VictimPod, state: Eviction) -> VictimPod:  # noqa: ARG002
        return self._write("cancelled", pod)

    async def write_disruption_target(
        self, pod: VictimPod, state: Eviction | None, **_: bool
    ) -> VictimPod:
        return self._write("disruption" if state is not None else "condition", pod)

    async def write_state(self, pod: VictimPod, *_: object, **__: object) -> VictimPod:
        return self._write("state", pod)

    async def delete_pod(self, pod: VictimPod, state: Eviction) -> bool:  # noqa: ARG002
        return bool(self._write("delete", pod))

    def _write(self, what: str, pod: VictimPod) -> VictimPod:
        self.done.append(what)
        if what in self.refuses:
            raise self.refuses[what]
        return pod

    async def store_replacement(self, pod: VictimPod, state: Eviction) -> None:  # noqa: ARG002
        if not pod.metadata.ownerReferences:
            self.done.append("preserve")

    def on_victim_gone(self, uid: str, *, has_finished: bool = False) -> None:
        """Do nothing: other tests show bare pods."""

    def report_deleted(self, pod: VictimPod, state: Eviction) -> None:
        """Do nothing: other tests show the metrics."""


async def proceed(departure: Termination, pod: VictimPod, state: Eviction) -> None:
    await departure.terminate(pod, LifecycleDecision(state))


async def overtake(departure: Termination, pod: VictimPod, state: Eviction) -> None:
    await departure.terminate(
        pod, LifecycleDecision(state, (Transition(Phase.TERMINATING, CheckpointOutcome.SAVED),))
    )


DELETED = {"deletionTimestamp": "2026-11-21T12:00:00Z"}
UNSAVED = {"checkpoint": None, "outcome": CheckpointOutcome.TIMED_OUT}
BARE = a_pod(phase="Failed", owned=False)
WAYS: dict[str, tuple[Any, VictimPod, Eviction, list[str]]] = {
    "deleted": (proceed, a_pod(), GOING, ["record", "disruption", "delete"]),
    "deleted, not requeued": (
        proceed,
        a_pod(**NEVER),
        GOING,
        ["publish", "disruption", "delete"],
    ),
    "deleted without a checkpoint, not requeued": (
        proceed,
        a_pod(**NEVER),
        replace(GOING, **UNSAVED),
        ["disruption", "delete"],
    ),
    "deleted by another client": (overtake, a_pod(**DELETED), GOING, ["record", "state"]),
    "deleted by another client, not requeued": (
        overtake,
        a_pod(**DELETED, **NEVER),
        GOING,
        ["publish", "state"],
    ),
    "deleted by another client after its notice, without a checkpoint": (
        overtake,
        a_pod(**DELETED),
        replace(GOING, **UNSAVED),
        ["record", "state"],
    ),
    "deleted by another client before its notice": (
        overtake,
        a_pod(**DELETED),
        replace(GOING, **UNSAVED, hinted_at=None),
        ["state"],
    ),
    "succeeded": (
        Termination.write_finished,
        a_pod(phase="Succeeded"),
        ENDED,
        ["publish", "finished"],
    ),
    "succeeded without a checkpoint": (
        Termination.write_finished,
        a_pod(phase="Succeeded"),
        replace(ENDED, **UNSAVED),
        ["finished"],
    ),
    "failed": (Termination.write_finished, a_pod(phase="Failed"), ENDED, ["record", "finished"]),
    "failed, not requeued": (
        Termination.write_finished,
        a_pod(phase="Failed", **NEVER),
        ENDED,
        ["publish", "finished"],
    ),
    "failed without notice, with an owner": (
        Termination.write_finished,
        a_pod(phase="Failed"),
        replace(ENDED, hinted_at=None),
        ["publish", "finished"],
    ),
    "failed, without an owner": (
        Termination.write_finished,
        BARE,
        ENDED,
        ["record", "preserve", "finished"],
    ),
    "failed, without an owner, not requeued": (
        Termination.write_finished,
        a_pod(phase="Failed", owned=False, **NEVER),
        ENDED,
        ["publish", "finished"],
    ),
    "failed without notice, without an owner": (
        Termination.write_finished,
        BARE,
        replace(ENDED, hinted_at=None),
        ["publish", "finished"],
    ),
    "succeeded, without an owner": (
        Termination.write_finished,
        a_pod(phase="Succeeded", owned=False),
        ENDED,
        ["publish", "finished"],
    ),
    "the eviction is cancelled": (
        Termination.write_cancelled,
        a_pod(),
        STAYS,
        ["publish", "cancelled"],
    ),
    "cancelled without a checkpoint": (
        Termination.write_cancelled,
        a_pod(),
        replace(STAYS, **UNSAVED),
        ["cancelled"],
    ),
    "cancelled after it was counted": (
        Termination.write_cancelled,
        a_pod(),
        replace(STAYS, grace_seconds=30),
        ["retract", "publish", "cancelled"],
    ),
}


@pytest.mark.parametrize(("way", "pod", "state", "want"), WAYS.values(), ids=WAYS)
def test_the_owner_has_the_time_of_the_checkpoint_before_the_victim_ends(
    way: Any, pod: VictimPod, state: Eviction, want: list[str]
) -> None:
    collaborators = TerminationCollaborators()
    asyncio.run(way(collaborators.departure(), pod, state))
    assert collaborators.done == want


def test_the_owner_is_written_once_in_a_termination() -> None:
    collaborators = TerminationCollaborators()
    departure = collaborators.departure()

    async def run() -> None:
        for _ in range(2):
            departure.on_reread()
            await proceed(departure, a_pod(**NEVER), GOING)

    asyncio.run(run())
    assert collaborators.done.count("publish") == 1


def test_a_pod_that_stayed_is_published_again_at_its_next_eviction() -> None:
    collaborators = TerminationCollaborators()
    departure = collaborators.departure()

    async def run() -> None:
        await departure.write_cancelled(a_pod(), STAYS)
        await departure.write_cancelled(a_pod(), STAYS)
        await proceed(departure, a_pod(), GOING)

    asyncio.run(run())
    assert collaborators.done == [
        "publish",
        "cancelled",
        "publish",
        "cancelled",
        "record",
        "disruption",
        "delete",
    ]


@pytest.mark.parametrize("status", [403, 422, 500])
def test_an_owner_that_refuses_the_write_blocks_no_cancellation(status: int) -> None:
    collaborators = TerminationCollaborators(refusal=status)
    asyncio.run(collaborators.departure().write_cancelled(a_pod(), STAYS))
    assert collaborators.done == ["publish", "cancelled"]


@pytest.mark.parametrize("status", [0, 409])
def test_a_conflict_on_the_owner_is_retried_before_the_pod_is_written(
    status: int,
) -> None:
    collaborators = TerminationCollaborators(refusal=status)
    with pytest.raises(ApiError):
        asyncio.run(collaborators.departure().write_cancelled(a_pod(), STAYS))
    assert collaborators.done == ["publish"]


BROKEN = ApiError(500, "InternalError", 'failed calling webhook "owners.example.com"')
FULL = ApiError(500, "", "etcdserver: request is too large")
GONE_SOON = a_pod(**DELETED)


async def again(departure: Termination, pod: VictimPod, state: Eviction) -> None:
    with pytest.raises(ApiError):
        await departure.terminate(pod, LifecycleDecision(state))


@pytest.mark.parametrize("status", [0, 409, 429, 500, 503])
def test_an_owner_that_refuses_writes_for_a_minute_does_not_block_the_end(status: int) -> None:
    """With an unavailable webhook for owners, the API server answers 500, or too late."""
    collaborators = TerminationCollaborators(refusal=status)
    departure = collaborators.departure()

    async def run() -> None:
        for collaborators.seconds in (0.0, 30.0, 59.0):
            await again(departure, a_pod(), GOING)
        collaborators.seconds = 60.0
        await proceed(departure, a_pod(), GOING)

    asyncio.run(run())
    assert collaborators.done == ["record"] * 4 + ["disruption", "delete"]
    assert collaborators.events == ["SoftEvictionNotCounted"]


@pytest.mark.parametrize("status", [0, 500])
def test_after_a_general_failure_of_the_api_server_the_owner_is_still_written(status: int) -> None:
    collaborators = TerminationCollaborators(refusal=status, refuses={"disruption": BROKEN})
    departure = collaborators.departure()

    async def run() -> None:
        for collaborators.seconds in (0.0, 60.0, 75.0):
            await again(departure, a_pod(), GOING)
        collaborators.refusal, collaborators.refuses = None, {}
        await proceed(departure, a_pod(), GOING)

    asyncio.run(run())
    assert collaborators.done == [
        "record",
        "record",
        "disruption",
        "record",
        "disruption",
        "record",
        "disruption",
        "delete",
    ]


def test_each_success_restarts_the_minute_of_refusals() -> None:
    collaborators = TerminationCollaborators(refusal=500, refuses={"disruption": BROKEN})
    departure = collaborators.departure()

    async def run() -> None:
        await again(departure, a_pod(), GOING)
        collaborators.refusal, collaborators.seconds = None, 50.0
        await again(departure, a_pod(), GOING)
        collaborators.refusal, collaborators.refuses, collaborators.seconds = 500, {}, 70.0
        with pytest.raises(ApiError):
            await departure.write_cancelled(a_pod(), replace(STAYS, grace_seconds=30))

    asyncio.run(run())
    assert collaborators.done[-1] == "retract"


def test_a_pod_that_is_too_large_for_writes_is_deleted_without_them() -> None:
    """A pod at etcd's size limit has no room for the condition either."""
    collaborators = TerminationCollaborators(refuses={"disruption": FULL, "condition": FULL})
    asyncio.run(proceed(collaborators.departure(), a_pod(), GOING))
    assert collaborators.done == ["record", "disruption", "condition", "delete"]


def test_a_pod_whose_writes_get_no_answer_for_a_minute_after_the_ceiling_is_deleted() -> None:
    """A first one says little: it may be the first call after an outage of the API server."""
    unanswered = ApiError(0, "TimeoutError", "no answer")
    collaborators = TerminationCollaborators(
        refuses={"disruption": unanswered, "condition": unanswered}
    )
    departure = collaborators.departure()

    async def run() -> None:
        for collaborators.seconds in (5000.0, 5059.0):
            await again(departure, a_pod(), GOING)
        collaborators.seconds = 5060.0
        await proceed(departure, a_pod(), GOING)

    asyncio.run(run())
    assert collaborators.done == ["record", *["disruption"] * 3, "condition", "delete"]


@pytest.mark.parametrize(("seconds", "goes"), [(1859.0, False), (1860.0, True)])
def test_a_pod_whose_writes_are_refused_is_deleted_a_minute_after_the_ceiling(
    seconds: float, *, goes: bool
) -> None:
    collaborators = TerminationCollaborators(
        refuses={"disruption": BROKEN, "condition": BROKEN}, seconds=seconds
    )
    if goes:
        asyncio.run(proceed(collaborators.departure(), a_pod(), GOING))
    else:
        asyncio.run(again(collaborators.departure(), a_pod(), GOING))
    assert collaborators.done == [
        "record",
        "disruption",
        *(["condition", "delete"] if goes else []),
    ]


def test_a_pod_that_ends_before_its_cancellation_is_written_is_counted_again() -> None:
    collaborators = TerminationCollaborators(
        refuses={"cancelled": ApiError(409, "Conflict", "modified")}
    )
    departure = collaborators.departure()

    async def run() -> None:
        await proceed(departure, a_pod(), GOING)
        with pytest.raises(ApiError):
            await departure.write_cancelled(a_pod(), replace(STAYS, grace_seconds=30))
        for _ in range(2):
            await proceed(departure, GONE_SOON, GOING)

    asyncio.run(run())
    assert collaborators.done == [
        "record",
        "disruption",
        "delete",
        "retract",
        "cancelled",
        "record",
    ]
