"""Jobs that are suspended instead of losing their pods one by one, and resumed after a back-off.

Whether a Job may be suspended, how far its pods must be, the record on the Job meanwhile, and what
happens to that. `termination` decides when a Job is suspended.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from reprieve_policy import keys
from reprieve_policy.kube import conditions
from reprieve_policy.kube.jobs import Job
from reprieve_policy.kube.objects import annotations_of, controller_of, is_of_kind, labels_of
from reprieve_policy.kube.values import json_document, timestamp

from .eviction import CheckpointOutcome, Eviction, Phase

_OWN_CONTROLLER = "kubernetes.io/job-controller"
_MAX_TEXT = 256
_LAG = timedelta(seconds=60)
"""The job controller notices a suspension within this time. A later transition is not ours."""
_SUSPENDING = (
    CheckpointOutcome.SAVED,
    CheckpointOutcome.SKIPPED,
    CheckpointOutcome.LOSES_LESS,
)
"""Outcomes that allow a suspension. Document 001: a workload that did not answer has failed, and is
not suspended."""


class SuspensionReadiness(Enum):
    """How far a live pod of a Job is, as far as suspending the Job depends on it."""

    PREVENTS_SUSPENSION = auto()
    """It is not a victim, is reprieved, has failed, or may only be evicted: the Job must not be
    suspended."""
    SAVING = auto()
    """A victim that may still have work to save."""
    READY = auto()
    """It may be deleted; what its replacement inherits is written."""
    READY_WITH_CONDITION = auto()
    """In addition, its pod condition is written."""


@dataclass(frozen=True, slots=True)
class SuspensionRecord:
    """The record on a Job that Reprieve has suspended."""

    since: datetime
    until: datetime
    generation: int
    """The Job's generation when it was suspended. While it has this one, its spec is unchanged."""


class SuspendedJobAction(Enum):
    """What to do with a Job that has our label."""

    KEEP = auto()
    RESUME = auto()
    DROP_RECORD = auto()
    """The Job has been resumed by another client."""
    RELEASE_OWNERSHIP = auto()
    """Another client has suspended it since, or our record cannot be read: we must not resume
    it."""


def may_suspend(job: Job) -> bool:
    """True for a Job whose suspension no other controller, queue or owner decides on.

    With a selector of its author's own (`manualSelector`), its pods lack the label by which we find
    all of them. Without this, a Job would be suspended of which only one pod is a victim, and the
    others would lose their work.
    """
    owner = controller_of(job.metadata)
    return (
        job.metadata.deletionTimestamp is None
        and not job.spec.manualSelector
        and job.spec.managedBy in (None, "", _OWN_CONTROLLER)
        and keys.KUEUE_QUEUE not in labels_of(job.metadata)
        and (owner is None or is_of_kind(owner, "batch", "CronJob"))
    )


def ends_by_suspension(eviction: Eviction) -> bool:
    """True for a victim that may be ended by suspending its Job."""
    return eviction.outcome in _SUSPENDING


def readiness_of(
    eviction: Eviction | None, *, has_disruption_condition: bool
) -> SuspensionReadiness:
    """Return how far a live pod is; `None`: it is not a victim."""
    if (
        eviction is None
        or eviction.must_evict
        or eviction.phase is Phase.REPRIEVED
        or (eviction.outcome is not None and not ends_by_suspension(eviction))
    ):
        return SuspensionReadiness.PREVENTS_SUSPENSION
    if eviction.phase is not Phase.TERMINATING:
        return SuspensionReadiness.SAVING
    return (
        SuspensionReadiness.READY_WITH_CONDITION
        if has_disruption_condition
        else SuspensionReadiness.READY
    )


def decide(job: Job, now: datetime) -> SuspendedJobAction:
    """Return what to do with a Job that has our label."""
    if not job.is_suspended:
        return SuspendedJobAction.DROP_RECORD
    record = parse(annotations_of(job.metadata).get(keys.SUSPENDED, ""))
    if record is None:
        return SuspendedJobAction.RELEASE_OWNERSHIP
    since = _noticed_at(job)
    is_changed = job.metadata.generation != record.generation
    if is_changed and (since is None or since > record.since + _LAG):
        return SuspendedJobAction.RELEASE_OWNERSHIP
    return SuspendedJobAction.RESUME if now >= record.until else SuspendedJobAction.KEEP


def _noticed_at(job: Job) -> datetime | None:
    """Return when the job controller noticed the suspension, by its own account."""
    suspended = conditions.find_true(job.status.conditions, "Suspended")
    return None if suspended is None else timestamp.parse(suspended.lastTransitionTime)


def render(record: SuspensionRecord) -> str:
    """Return the record as compact JSON."""
    document = {
        "v": 1,
        "since": timestamp.render(record.since),
        "until": timestamp.render(record.until),
    }
    return json.dumps(document | {"generation": record.generation}, separators=(",", ":"))


def parse(text: str) -> SuspensionRecord | None:
    """Return the record, `None` if the text is not one."""
    document = json_document.read(text, _MAX_TEXT)
    if not isinstance(document, dict) or document.get("v") != 1:
        return None
    since, until = timestamp.parse(document.get("since")), timestamp.parse(document.get("until"))
    generation = document.get("generation")
    if (
        since is None
        or until is None
        or not isinstance(generation, int)
        or isinstance(generation, bool)
    ):
        return None
    return SuspensionRecord(since, until, generation)
