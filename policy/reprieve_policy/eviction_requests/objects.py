# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""A native Eviction (`lifecycle.k8s.io/v1alpha1`, EvictionRequestAPI), as a responder reads it.

A client that wants a pod to leave creates an EvictionRequest. Kubernetes'
evictionrequest-controller makes one Eviction of all requests for a pod, and activates the
responders that the pod names, one after another. The API server decides what a responder may write,
and when (pkg/apis/lifecycle/validation of 1.37). What Reprieve writes is in `responder`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto

from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import Resource, pod_views
from reprieve_policy.verdict import ListAddition

RESPONDER_NAME = "reprieve.dev/operator"
"""Our name as a responder. The controller labels Evictions with the names of their responders."""
RESPONDER_ROLES = ("responder", "requester-responder")
"""Values of that label if we are one of the responders."""
RESPONDER_PRIORITY = 20_000
"""Before a managing controller (10,000 by convention), which deletes the pod: the work is saved
first."""
MAX_RESPONDERS = 10
"""Of one pod; the API server refuses more."""

_RESPONDERS = "/spec/evictionResponders"
_ACTIVE, _CANCELED, _WITHDRAWN = "Active", "Canceled", "Withdrawn"
_FINAL = ("TargetEvicted", "Failed")
_NO_REQUESTERS = "CanceledDueToNoRequesters"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRequester:
    """A client that wants the pod to leave, or has withdrawn its request."""

    name: str = ""
    intent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResponder:
    """A responder's turn, written by the controller."""

    name: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponderStatus:
    """A responder's report; only the active responder may write it."""

    name: str = ""
    startTime: str | None = None
    heartbeatTime: str | None = None
    expectedCompletionTime: str | None = None
    completionTime: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionCondition:
    """One of the conditions that the controller writes."""

    type: str = ""
    status: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodReference:
    """A pod of the same namespace."""

    name: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionTarget:
    """What is to be evicted: so far, pods only."""

    pod: PodReference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSpec:
    """What is to be evicted."""

    target: EvictionTarget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionStatus:
    """How far the eviction is."""

    conditions: Sequence[EvictionCondition] | None = None
    requesters: Sequence[EvictionRequester] | None = None
    targetResponders: Sequence[TargetResponder] | None = None
    responders: Sequence[ResponderStatus] | None = None


class ResponderTurn(Enum):
    """What an Eviction wants of us."""

    ACTIVE = auto()
    """We are active, and have not reported completion."""
    CANCELLED = auto()
    """No requester wants the pod to leave any more: cancel its eviction."""
    INACTIVE = auto()
    """Our turn has not come or is over: nothing is begun, and what was begun continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStatus:
    """Our report as it is in the status. Times are aware UTC."""

    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    expected_at: datetime | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponderAssignment:
    """An Eviction that names us, as far as our answer depends on it."""

    uid: str
    pod: PodReference
    turn: ResponderTurn
    requesters: tuple[str, ...] = ()
    """The clients that want the pod to leave now."""
    reported: ReportedStatus = ReportedStatus()


def read(
    uid: str, spec: EvictionSpec | None, status: EvictionStatus | None
) -> ResponderAssignment | None:
    """Return what an Eviction wants of us.

    `None`: its target is not a pod, or we are not one of its responders.
    """
    pod = spec.target.pod if spec is not None and spec.target is not None else None
    status = status or EvictionStatus()
    target = next(
        (row for row in status.targetResponders or () if row.name == RESPONDER_NAME), None
    )
    if pod is None or target is None:
        return None
    own = next(
        (row for row in status.responders or () if row.name == RESPONDER_NAME),
        ResponderStatus(),
    )
    return ResponderAssignment(
        uid=uid,
        pod=pod,
        turn=_turn(target, own, status),
        requesters=tuple(row.name for row in status.requesters or () if row.intent != _WITHDRAWN),
        reported=ReportedStatus(
            started_at=timestamp.parse(own.startTime),
            heartbeat_at=timestamp.parse(own.heartbeatTime),
            expected_at=timestamp.parse(own.expectedCompletionTime),
            message=own.message or "",
        ),
    )


def _turn(target: TargetResponder, own: ResponderStatus, status: EvictionStatus) -> ResponderTurn:
    final = [
        condition
        for condition in status.conditions or ()
        if condition.type in _FINAL and condition.status == "True"
    ]
    intents = [requester.intent for requester in status.requesters or ()]
    # The controller will report this too, but a workload that may go on must not wait for that.
    is_withdrawn = bool(intents) and all(intent == _WITHDRAWN for intent in intents)
    is_cancelled = any(condition.reason == _NO_REQUESTERS for condition in final)
    if target.state == _CANCELED or is_cancelled:
        return ResponderTurn.CANCELLED
    if target.state != _ACTIVE or own.completionTime is not None or final:
        return ResponderTurn.INACTIVE
    return ResponderTurn.CANCELLED if is_withdrawn else ResponderTurn.ACTIVE


def wants_responder(pod: Resource, settings: PolicySettings) -> bool:
    """True for a new pod that wants to be notified, so that we are to be one of its responders.

    Never for a pod in a native group: the API server refuses both together.
    """
    if pod.kind != "Pod" or not settings.eviction_responder:
        return False
    view = next(pod_views(pod))
    names = [responder.name for responder in view.spec.evictionResponders or ()]
    has_room = len(names) < MAX_RESPONDERS and RESPONDER_NAME not in names
    return (
        view.spec.schedulingGroup is None
        and has_room
        and checkpoint_plan.read_leniently(view.annotations, settings).gives_notice
    )


def decide_responder(pod: Resource, facts: Facts) -> Iterator[ListAddition]:
    """Yield the change that makes us a responder of a new pod, if the API server serves them."""
    if facts.eviction_api_served and wants_responder(pod, facts.settings):
        spec = next(pod_views(pod)).spec
        yield ListAddition(
            _RESPONDERS,
            {"name": RESPONDER_NAME, "priority": RESPONDER_PRIORITY},
            spec.evictionResponders is not None,
        )
