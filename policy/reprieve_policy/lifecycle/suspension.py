"""Jobs that are suspended instead of losing their pods one by one, and resumed after a back-off.

Whether a Job may be suspended at all, how far its pods must be, what is kept on it meanwhile, and what becomes of that.
`ending` says when suspending is the way.
"""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from reprieve_policy import keys
from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import ObjectMeta, controller_of, labels_of

from .eviction import CheckpointOutcome, Eviction, Phase

_OWN_CONTROLLER = "kubernetes.io/job-controller"
_MAX_TEXT = 256
_LAG = timedelta(seconds=60)
"""The job controller notices a suspension within this; a later transition is somebody else's."""
_SUSPENDING = (CheckpointOutcome.SAVED, CheckpointOutcome.SKIPPED)
"""Document 001: whoever did not answer has failed, and is not suspended."""


class SuspensionReadiness(Enum):
    """How far a living pod of a Job is, as far as suspending the Job depends on it."""

    PREVENTS_SUSPENSION = auto()
    """No victim, one that has failed, or one that may only be evicted: it keeps the Job from being suspended."""
    SAVING = auto()
    """A victim that may still have something to save."""
    READY = auto()
    """It may go; what its replacement inherits is written."""
    READY_WITH_CONDITION = auto()
    """Its disruption is announced as well."""


@dataclass(frozen=True, slots=True)
class SuspensionRecord:
    """What is kept on a Job that Reprieve has suspended."""

    since: datetime
    until: datetime
    generation: int
    """The Job's own as it was suspended: its spec is unchanged for as long as this is its generation."""


class SuspendedJobAction(Enum):
    """What becomes of a Job that carries our label."""

    KEEP = auto()
    RESUME = auto()
    DROP_RECORD = auto()
    """Somebody has resumed it."""
    RELEASE_OWNERSHIP = auto()
    """Somebody else has suspended it since, or our hold cannot be read: it is theirs to resume."""


def may_suspend(metadata: ObjectMeta, managed_by: str | None, *, selects_by_hand: bool) -> bool:
    """True for a Job whose suspension nobody else decides on: neither another controller, nor a queue, nor an owner.

    With a selector of its author's own (`manualSelector`), its pods lack the label by which all of them are found: without this,
    a Job would be suspended of which only one pod is a victim, and the others would lose their work.
    """
    owner = controller_of(metadata)
    return (
        metadata.deletionTimestamp is None
        and not selects_by_hand
        and managed_by in (None, "", _OWN_CONTROLLER)
        and keys.KUEUE_QUEUE not in labels_of(metadata)
        and (owner is None or owner.kind == "CronJob")
    )


def ends_by_suspension(eviction: Eviction) -> bool:
    """True for a victim whose end may be its Job's suspension."""
    return eviction.outcome in _SUSPENDING


def readiness_of(eviction: Eviction | None, *, is_announced: bool) -> SuspensionReadiness:
    """Return how far a living pod is; `None`: it is no victim."""
    if (
        eviction is None
        or eviction.must_evict
        or (eviction.outcome is not None and not ends_by_suspension(eviction))
    ):
        return SuspensionReadiness.PREVENTS_SUSPENSION
    if eviction.phase is not Phase.TERMINATING:
        return SuspensionReadiness.SAVING
    return SuspensionReadiness.READY_WITH_CONDITION if is_announced else SuspensionReadiness.READY


def decide(
    hold: SuspensionRecord | None,
    *,
    since: datetime | None,
    generation: int,
    is_suspended: bool,
    now: datetime,
) -> SuspendedJobAction:
    """Return what becomes of a Job with our label; `since`: when the job controller saw it suspended, as it says."""
    if not is_suspended:
        return SuspendedJobAction.DROP_RECORD
    if hold is None:
        return SuspendedJobAction.RELEASE_OWNERSHIP
    if generation != hold.generation and (since is None or since > hold.since + _LAG):
        return SuspendedJobAction.RELEASE_OWNERSHIP
    return SuspendedJobAction.RESUME if now >= hold.until else SuspendedJobAction.KEEP


def render(hold: SuspensionRecord) -> str:
    """Return the hold as compact JSON."""
    document = {
        "v": 1,
        "since": timestamp.render(hold.since),
        "until": timestamp.render(hold.until),
    }
    return json.dumps(document | {"generation": hold.generation}, separators=(",", ":"))


def parse(text: str) -> SuspensionRecord | None:
    """Return the hold, `None` where the text is not one."""
    try:
        document = json.loads(text) if len(text) <= _MAX_TEXT else None
    except (ValueError, RecursionError):
        return None
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
