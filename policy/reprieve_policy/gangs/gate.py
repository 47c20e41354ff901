# ruff: noqa: N815 - a status's field names are the API's own, so that JSON decodes into them directly
"""The gang gate: pods of a gang wait until `min-available` of them exist, and then go to the scheduler together.

It stands in for PreFilter of document 004, which a stock scheduler does not have: "the total number of pods, excluding
terminating ones, belonging to the same PodGroup; if the result is less than minAvailable, the scheduling process is
terminated directly". The webhook adds the gate, the operator takes it away; who waits and for how long is decided here.

A gate that nobody takes away is worse than none. So it is added only where somebody is there to take it away and the
owner is sure to make the others meanwhile, and whatever cannot be justified (any more) is released.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.keys import GANG_GATE, GANG_GATE_LABEL
from reprieve_policy.kube import pod_requests
from reprieve_policy.kube.objects import ObjectMeta, Resource, Spec, labels_of, pod_views
from reprieve_policy.verdict import GateAddition, MetadataChange

from . import membership

WAITING = "waiting"
"""The label's value."""
MIN_GANG_SIZE = 2
"""Nobody waits for a gang of one."""

_FAILED = "Failed"
_PARALLEL = "Parallel"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulSetStatus:
    """Which template a StatefulSet's pods are of; the two differ during a rollout."""

    currentRevision: str = ""
    updateRevision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodController(Resource):
    """A pod's controller."""

    status: StatefulSetStatus = field(default_factory=StatefulSetStatus)


def count_created_together(owner: PodController) -> int:
    """Return how many pods `owner` makes without waiting for one of them to run."""
    if owner.kind == "StatefulSet" and not _creates_all_at_once(owner):
        return 1
    return pod_requests.pods_of(owner) or 1


def _creates_all_at_once(stateful_set: PodController) -> bool:
    """False for OrderedReady, and during a rollout, in which a pod is made only once the one before it is ready."""
    spec, status = stateful_set.spec or Spec(), stateful_set.status
    return spec.podManagementPolicy == _PARALLEL and status.currentRevision == status.updateRevision


def may_be_gated(resource: Resource, settings: PolicySettings) -> bool:
    """True where the gate is a question: what the pod's owner makes, and whether the operator is there, decide it."""
    return settings.gang_gate and resource.kind == "Pod" and _wanted(resource) is not None


def decide_gate(pod: Resource, facts: Facts) -> tuple[MetadataChange | GateAddition, ...]:
    """Return what makes a new pod wait for its gang; nothing where it should not."""
    if has_gang_gate(pod.spec):
        # From the template, or from our own first pass. Without the label, no watch would ever find it.
        return () if GANG_GATE_LABEL in labels_of(pod.metadata) else (_LABEL,)
    wanted = _wanted(pod) if facts.settings.gang_gate and facts.operator_is_live else None
    is_sure = wanted is not None and facts.pods_created_together >= wanted
    return (_LABEL, GateAddition(GANG_GATE)) if is_sure else ()


def _wanted(pod: Resource) -> int | None:
    """Return how many must exist before this pod is scheduled; `None` where it does not wait for others."""
    spec = pod.spec or Spec()
    if spec.nodeName or spec.schedulingGroup is not None or has_gang_gate(spec):
        # The API server refuses a gate beside a node name. The scheduler knows the gangs of a schedulingGroup by itself.
        return None
    found = membership.read(next(pod_views(pod)))
    if found is None or found.min_available is None or found.min_available < MIN_GANG_SIZE:
        return None
    return found.min_available


_LABEL = MetadataChange("labels", GANG_GATE_LABEL, WAITING)


def has_gang_gate(spec: Spec | None) -> bool:
    """True where our gate holds the pod, whoever else's does."""
    gates = spec.schedulingGates if spec is not None else None
    return any(gate.name == GANG_GATE for gate in gates or ())


def counts_towards_minimum(metadata: ObjectMeta, phase: str) -> bool:
    """True for a pod that counts towards `min-available`.

    One that succeeded has done its part: without it, the last pods of a Job would wait for ones that never come. One that
    failed is replaced by its owner, and it is the replacement that counts.
    """
    return metadata.deletionTimestamp is None and phase != _FAILED


class GateReleaseReason(StrEnum):
    """Why pods are released."""

    COMPLETE = "complete"
    """As many members exist as the gang wants."""
    TIMED_OUT = "timed-out"
    NOT_NEEDED = "unwanted"
    """Nothing to wait for: no gang, or the gate is switched off."""


@dataclass(frozen=True, slots=True)
class GatedPod:
    """A member that the gate holds."""

    created_at: datetime
    min_available: int | None


def decide_release(
    waiting: Sequence[GatedPod], others: int, settings: PolicySettings, now: datetime
) -> GateReleaseReason | None:
    """Return why the members of one gang that wait are released now; `None`: they wait on.

    `others` are its members that do not wait. Of several numbers the lowest holds: nobody waits for more than it said.
    """
    wanted = [0 if pod.min_available is None else pod.min_available for pod in waiting]
    if not settings.gang_gate or min(wanted) < MIN_GANG_SIZE:
        return GateReleaseReason.NOT_NEEDED
    if len(waiting) + others >= min(wanted):
        return GateReleaseReason.COMPLETE
    return GateReleaseReason.TIMED_OUT if now >= deadline(waiting, settings) else None


def deadline(waiting: Sequence[GatedPod], settings: PolicySettings) -> datetime:
    """Return when the members that wait are released in any case: counted from the oldest, so that none waits longer."""
    oldest = min(pod.created_at for pod in waiting)
    return oldest + timedelta(seconds=settings.gang_gate_timeout_seconds)
