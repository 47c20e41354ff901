"""Which Jobs may be suspended, how far their pods must be, and what happens to suspended ones."""

from dataclasses import dataclass, replace

import pytest

from reprieve_policy.kube.conditions import Condition
from reprieve_policy.kube.jobs import Job, JobSpec, JobStatus
from reprieve_policy.kube.objects import OwnerReference, VersionedMeta
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import suspension
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase
from reprieve_policy.lifecycle.suspension import (
    SuspendedJobAction,
    SuspensionReadiness,
    SuspensionRecord,
)
from reprieve_testing.objects.builders import after, an_eviction


def owned_by(kind: str, api_version: str) -> VersionedMeta:
    owner = OwnerReference(apiVersion=api_version, kind=kind, name="o", uid="u", controller=True)
    return VersionedMeta(ownerReferences=[owner])


JOBS = {
    "a Job without an owner": (VersionedMeta(), None, True),
    "a Job with managedBy of the Job controller": (
        VersionedMeta(),
        "kubernetes.io/job-controller",
        True,
    ),
    "a Job of a CronJob": (owned_by("CronJob", "batch/v1"), None, True),
    "a Job of another project's CronJob": (owned_by("CronJob", "example.com/v1"), None, False),
    "a Job with managedBy of another controller": (
        VersionedMeta(),
        "kueue.x-k8s.io/multikueue",
        False,
    ),
    "a Job in a queue of Kueue": (
        VersionedMeta(labels={"kueue.x-k8s.io/queue-name": "team"}),
        None,
        False,
    ),
    "a Job of a JobSet, which would resume it": (
        owned_by("JobSet", "jobset.x-k8s.io/v1alpha2"),
        None,
        False,
    ),
    "a Job that is being deleted": (
        VersionedMeta(deletionTimestamp="2026-11-21T12:00:00Z"),
        None,
        False,
    ),
}


@pytest.mark.parametrize(("metadata", "managed_by", "want"), JOBS.values(), ids=JOBS)
def test_may_be_suspended(metadata: VersionedMeta, managed_by: str | None, *, want: bool) -> None:
    job = Job(metadata=metadata, spec=JobSpec(managedBy=managed_by))
    assert suspension.may_suspend(job) is want


def test_a_job_with_a_manual_selector_may_not_be_suspended() -> None:
    assert not suspension.may_suspend(Job(spec=JobSpec(manualSelector=True)))


def ended(outcome: CheckpointOutcome) -> Eviction:
    return an_eviction().ended(outcome).build()


STANDINGS = {
    "no victim": (None, False, SuspensionReadiness.PREVENTS_SUSPENSION),
    "a victim whose answer is awaited": (
        an_eviction().hinted(deadline=after(60)).build(),
        False,
        SuspensionReadiness.SAVING,
    ),
    "a requested eviction": (an_eviction().build(), True, SuspensionReadiness.SAVING),
    "a victim that must be evicted": (
        replace(ended(CheckpointOutcome.SAVED), must_evict=True),
        True,
        SuspensionReadiness.PREVENTS_SUSPENSION,
    ),
    "a victim without a checkpoint at its deadline": (
        ended(CheckpointOutcome.TIMED_OUT),
        True,
        SuspensionReadiness.PREVENTS_SUSPENSION,
    ),
    "a victim whose eviction is cancelled": (
        ended(CheckpointOutcome.CANCELLED),
        False,
        SuspensionReadiness.PREVENTS_SUSPENSION,
    ),
    "a victim that has saved and waits": (
        Eviction(
            eviction_id="e",
            phase=Phase.SAVED,
            requested_at=after(0),
            outcome=CheckpointOutcome.SAVED,
        ),
        False,
        SuspensionReadiness.SAVING,
    ),
    "a victim that is reprieved": (
        Eviction(
            eviction_id="e", phase=Phase.REPRIEVED, requested_at=after(0), deadline=after(300)
        ),
        False,
        SuspensionReadiness.PREVENTS_SUSPENSION,
    ),
    "a victim that may be deleted": (
        ended(CheckpointOutcome.SAVED),
        False,
        SuspensionReadiness.READY,
    ),
    "a victim that may be deleted, with its condition": (
        ended(CheckpointOutcome.SKIPPED),
        True,
        SuspensionReadiness.READY_WITH_CONDITION,
    ),
}


@pytest.mark.parametrize(
    ("eviction", "has_disruption_condition", "want"), STANDINGS.values(), ids=STANDINGS
)
def test_the_progress_of_a_pod(
    eviction: Eviction | None,
    *,
    has_disruption_condition: bool,
    want: SuspensionReadiness,
) -> None:
    assert (
        suspension.readiness_of(eviction, has_disruption_condition=has_disruption_condition) is want
    )


HOLD = SuspensionRecord(since=after(0), until=after(300), generation=3)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A Job with our label, so many seconds after it was suspended."""

    hold: SuspensionRecord | None = HOLD
    seconds: float = 60
    generation: int = 3
    transition: float | None = 1
    is_suspended: bool = True
    want: SuspendedJobAction


FATES = {
    "a Job stays suspended for the back-off": Case(want=SuspendedJobAction.KEEP),
    "a Job is resumed after the back-off": Case(seconds=300, want=SuspendedJobAction.RESUME),
    "a Job that another client has resumed is left to it": Case(
        is_suspended=False, want=SuspendedJobAction.DROP_RECORD
    ),
    "a Job that another client has resumed and suspended again is left to it": Case(
        generation=5, transition=120, seconds=400, want=SuspendedJobAction.RELEASE_OWNERSHIP
    ),
    "a Job that changed before the job controller saw it suspended is left to other clients": Case(
        generation=4, transition=None, want=SuspendedJobAction.RELEASE_OWNERSHIP
    ),
    "a Job whose spec was changed meanwhile is resumed nevertheless": Case(
        generation=4, seconds=400, want=SuspendedJobAction.RESUME
    ),
    "a Job with an unreadable record is not resumed": Case(
        hold=None, want=SuspendedJobAction.RELEASE_OWNERSHIP
    ),
}


@pytest.mark.parametrize("case", FATES.values(), ids=FATES)
def test_what_happens_to_a_suspended_job(case: Case) -> None:
    text = "" if case.hold is None else suspension.render(case.hold)
    metadata = VersionedMeta(
        generation=case.generation, annotations={"reprieve.dev/suspended": text}
    )
    transitions = () if case.transition is None else (after(case.transition),)
    conditions = [
        Condition(type="Suspended", status="True", lastTransitionTime=timestamp.render(moment))
        for moment in transitions
    ]
    job = Job(
        metadata=metadata,
        spec=JobSpec(suspend=case.is_suspended),
        status=JobStatus(conditions=conditions),
    )
    assert suspension.decide(job, after(case.seconds)) is case.want


def test_a_rendered_record_is_read_back() -> None:
    assert suspension.parse(suspension.render(HOLD)) == HOLD
    assert suspension.parse(HELD) is not None


HELD = '{"v":1,"since":"2026-11-21T12:00:00Z","until":"2026-11-21T12:05:00Z","generation":1}'

NO_RECORDS = {
    "nothing": "",
    "no JSON": "{",
    "no object": "[]",
    "another version": HELD.replace('"v":1', '"v":2'),
    "no beginning": '{"v":1,"until":"2026-11-21T12:05:00Z","generation":1}',
    "no end": '{"v":1,"since":"2026-11-21T12:00:00Z","generation":1}',
    "no generation": '{"v":1,"since":"2026-11-21T12:00:00Z","until":"2026-11-21T12:05:00Z"}',
    "a generation that is not a number": HELD.replace('"generation":1', '"generation":true'),
    "much": '{"v":1,"x":"' + "y" * 300 + '"}',
    "a deep one": "[" * 200,
}


@pytest.mark.parametrize("text", NO_RECORDS.values(), ids=NO_RECORDS)
def test_an_unreadable_record_is_none(text: str) -> None:
    assert suspension.parse(text) is None
