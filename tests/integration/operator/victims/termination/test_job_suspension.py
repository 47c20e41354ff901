"""The end of a pod whose Job is suspended: reported once, also where only its absence is seen."""

import asyncio
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.victims.termination.job_suspension import JobSuspension
from reprieve_operator.victims.termination.termination import Termination
from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase
from reprieve_policy.lifecycle.machine import LifecycleDecision
from reprieve_policy.lifecycle.termination import EvictionMethod
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import after, an_eviction

STATE = replace(an_eviction().ended(CheckpointOutcome.SAVED).build(), phase=Phase.TERMINATING)
POD = msgspec.convert(
    {
        "metadata": {
            "name": "p",
            "namespace": "team",
            "uid": "u",
            "annotations": {keys.EVICTION: eviction.render(STATE)},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "j",
                    "uid": "uj",
                    "controller": True,
                }
            ],
        }
    },
    VictimPod,
)


@dataclass
class SuspendedJob:
    """The collaborators of a `Termination` whose Job can be suspended, and what is reported."""

    current: PolicySettings = field(default_factory=PolicySettings)
    reported: list[str] = field(default_factory=list)
    is_retracted: bool = False
    is_answer_lost: bool = False

    def __post_init__(self) -> None:
        clock = Clock(now=lambda: after(0), monotonic=lambda: 0.0)
        itself = cast("Any", self)
        self.suspension = JobSuspension(itself, itself, itself, itself, clock)

    def termination(self) -> Termination:
        itself = cast("Any", self)
        return Termination(
            writes=itself,
            state_writer=itself,
            job_suspension=self.suspension,
            handover=itself,
            deletion_wait=itself,
            eviction_retry=itself,
            reporter=itself,
            reread_seconds=30.0,
            on_pod_written=lambda _: None,
        )

    def event(self, *_: object) -> None:
        """Record nothing: the Job's own Event is not what is tested."""

    async def suspend(self, pod: VictimPod, backoff: timedelta) -> datetime:  # noqa: ARG002
        if self.is_answer_lost:
            raise ApiError(0, "ClientOSError", "the connection was closed")
        return after(0) + backoff

    def report_finalizers(self, pod: VictimPod, state: Eviction) -> float:  # noqa: ARG002
        return 1.0

    def may_remove_finalizer(self, pod: VictimPod) -> bool:  # noqa: ARG002
        return False

    def on_victim_gone(self, uid: str, *, has_finished: bool = False) -> None:
        """Do nothing: no bare pod."""

    async def delete_pod(self, *_: object) -> bool:
        return True

    def report_deleted(self, pod: VictimPod, state: Eviction) -> None:  # noqa: ARG002
        self.reported.append(f"{pod.metadata.name} deleted")

    def report_suspended(self, pod: VictimPod, state: Eviction) -> None:
        self.reported.append(f"{pod.metadata.name} {state.outcome}")


def test_a_pod_that_is_gone_before_its_deletion_was_seen_is_reported() -> None:
    job = SuspendedJob()
    termination = job.termination()
    asyncio.run(job.suspension.suspend(POD, STATE))
    termination.on_pod_gone("u", POD)
    assert job.reported == ["p saved"]


def test_a_pod_whose_jobs_suspension_had_no_answer_is_reported() -> None:
    job = SuspendedJob(is_answer_lost=True)
    termination = job.termination()
    with pytest.raises(ApiError):
        asyncio.run(job.suspension.suspend(POD, STATE))
    termination.on_pod_gone("u", POD)
    assert job.reported == ["p saved"]


def test_a_deletion_that_was_seen_is_not_reported_again_when_the_pod_is_gone() -> None:
    job = SuspendedJob()
    termination = job.termination()
    deleted = replace(POD, metadata=replace(POD.metadata, deletionTimestamp="2026-11-24T12:00:00Z"))

    async def run() -> None:
        await job.suspension.suspend(POD, STATE)
        await termination.terminate(deleted, LifecycleDecision(STATE))

    asyncio.run(run())
    termination.on_pod_gone("u", deleted)
    assert job.reported == ["p saved"]


def test_a_pod_that_waited_for_its_job_and_is_deleted_by_itself_is_reported_once() -> None:
    job = SuspendedJob()
    termination = job.termination()
    job.suspension.wait(STATE)
    asyncio.run(termination._delete(POD, STATE))
    termination.on_pod_gone("u", POD)
    assert job.reported == ["p deleted"]


def test_a_pod_whose_job_was_not_suspended_is_not_reported() -> None:
    job = SuspendedJob()
    job.termination().on_pod_gone("u", POD)
    assert job.reported == []


def test_the_pause_between_two_reads_of_a_job_grows_and_ends_at_the_ceiling() -> None:
    """Without this, a thousand Jobs would be read 500 times a second."""
    pauses = [SuspendedJob().suspension.wait(STATE)]
    suspension = SuspendedJob().suspension
    pauses.extend(suspension.wait(STATE) for _ in range(10))
    assert pauses[0] <= 2.4
    assert 10 <= pauses[-1] <= 15
    ends = replace(STATE, requested_at=after(3 - PolicySettings().ceiling_seconds))
    assert suspension.wait(ends) == 3


async def test_beyond_its_ceiling_a_victim_waits_for_no_list() -> None:
    ended = replace(STATE, requested_at=after(-PolicySettings().ceiling_seconds))
    job = SuspendedJob(PolicySettings(suspend_jobs=True))
    assert await job.suspension.decide_method(POD, ended) is EvictionMethod.DELETE
