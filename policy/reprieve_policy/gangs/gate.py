# ruff: noqa: N815 - a status's field names are the API's own, so that JSON decodes into them
# directly
"""The gang gate: which new pods wait, at a scheduling gate, for their gang to be startable.

It stands in for PreFilter and Permit of document 004, which a stock scheduler does not have. The
webhook adds the gate and the operator removes it; `gate_steps` and `gate_queue` decide when.

A gate that is never removed is worse than none. So it is added only if an operator is there to
remove it and the owner is sure to create the other pods meanwhile. A pod whose gate has no such
reason, or no longer has one, is released.
"""

from dataclasses import dataclass, field

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.keys import GANG_GATE, GANG_GATE_LABEL
from reprieve_policy.kube import pod_requests
from reprieve_policy.kube.objects import ObjectMeta, Resource, Spec, labels_of, pod_views
from reprieve_policy.kube.pods import FAILED
from reprieve_policy.verdict import GateAddition, MetadataChange

from . import membership, start_requirements

WAITING, RELEASED = "waiting", "released"
"""The values of the label: the gate holds the pod; the gate is removed, and the pod's gang is not
placed yet. The label goes once the gang is placed."""
MIN_GANG_SIZE = 2
"""A gang of one does not wait."""
_UNKNOWN = MIN_GANG_SIZE
"""The minimum of a PodGroup that is not read yet: its pods may have to wait."""

_PARALLEL = "Parallel"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatefulSetStatus:
    """The revisions of a StatefulSet's pods; the two differ during a rollout."""

    currentRevision: str = ""
    updateRevision: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodController(Resource):
    """A pod's controller."""

    status: StatefulSetStatus = field(default_factory=StatefulSetStatus)


def count_created_together(owner: PodController) -> int:
    """Return how many pods `owner` creates without waiting for one of them to run."""
    if owner.kind == "StatefulSet" and not _creates_all_at_once(owner):
        return 1
    return pod_requests.pods_of(owner) or 1


def _creates_all_at_once(stateful_set: PodController) -> bool:
    """False for OrderedReady, and during a rollout: each pod then waits for the one before it."""
    spec, status = stateful_set.spec or Spec(), stateful_set.status
    return spec.podManagementPolicy == _PARALLEL and status.currentRevision == status.updateRevision


def may_be_gated(resource: Resource, settings: PolicySettings) -> bool:
    """True if the pod may need the gate; its owner and the operator's liveness then decide."""
    return (
        settings.gang_gate and resource.kind == "Pod" and _minimum(resource, _UNKNOWN) is not None
    )


def decide_gate(pod: Resource, facts: Facts) -> tuple[MetadataChange | GateAddition, ...]:
    """Return the changes that make a new pod wait for its gang; empty if it does not wait."""
    if has_gang_gate(pod.spec):
        # From the template, or from our own first pass. Without the label, no watch would find the
        # pod.
        return () if GANG_GATE_LABEL in labels_of(pod.metadata) else (_LABEL,)
    is_on = facts.settings.gang_gate and facts.operator_opens_gates
    statement = facts.gang_statement
    of_group = None if statement is None else statement.min_member
    minimum = _minimum(pod, of_group) if is_on else None
    is_reachable = minimum is not None and facts.pods_created_together >= minimum
    return (_LABEL, GateAddition(GANG_GATE)) if is_reachable else ()


def _minimum(pod: Resource, of_group: int | None) -> int | None:
    """Return how many pods must exist before this one is scheduled; `None`: it does not wait.

    `of_group`: what its PodGroup states, if it names one.
    """
    spec = pod.spec or Spec()
    if spec.nodeName or spec.schedulingGroup is not None or has_gang_gate(spec):
        # The API server refuses a gate together with a node name. The scheduler itself knows the
        # gangs of a schedulingGroup.
        return None
    gang = membership.read(next(pod_views(pod)))
    from_group = of_group if start_requirements.group_name_of(gang) is not None else None
    minimum = None if gang is None else gang.min_available or from_group
    return None if minimum is None or minimum < MIN_GANG_SIZE else minimum


_LABEL = MetadataChange("labels", GANG_GATE_LABEL, WAITING)


def has_gang_gate(spec: Spec | None) -> bool:
    """True if our gate holds the pod, whether or not other gates do."""
    gates = spec.schedulingGates if spec is not None else None
    return any(gate.name == GANG_GATE for gate in gates or ())


def counts_towards_minimum(metadata: ObjectMeta, phase: str) -> bool:
    """True for a pod that counts towards `min-available`.

    A pod that succeeded has done its part: if it did not count, the last pods of a Job would wait
    for pods that never come. A pod that failed is replaced by its owner, and the replacement
    counts.
    """
    return metadata.deletionTimestamp is None and phase != FAILED
