# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""A native Eviction (`lifecycle.k8s.io/v1alpha1`, feature gate EvictionRequestAPI), as the responder that Reprieve is reads one.

Whoever wants a pod gone writes an EvictionRequest; Kubernetes' evictionrequest-controller makes one Eviction of all that
there are for a pod, and activates the responders that the pod names, one after another. What a responder may write, and
when, is the API server's (pkg/apis/lifecycle/validation of 1.37). What Reprieve answers is `responder`'s.
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
"""Of the responder. The controller labels Evictions with the names of their responders."""
RESPONDER_ROLES = ("responder", "requester-responder")
"""Values of that label where we are one."""
RESPONDER_PRIORITY = 20_000
"""Before a managing controller (10,000 by convention), which deletes the pod: first the work is saved."""
MAX_RESPONDERS = 10
"""Of one pod; the API server refuses more."""

_RESPONDERS = "/spec/evictionResponders"
_ACTIVE, _CANCELED, _WITHDRAWN = "Active", "Canceled", "Withdrawn"
_FINAL = ("TargetEvicted", "Failed")
_NO_REQUESTERS = "CanceledDueToNoRequesters"


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionRequester:
    """Who wants the pod gone, or did."""

    name: str = ""
    intent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetResponder:
    """Whose turn it is: the controller's to write."""

    name: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponderStatus:
    """What a responder says; only the active one may write it."""

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
    """What is to go: so far, pods only."""

    pod: PodReference | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSpec:
    """What is to go."""

    target: EvictionTarget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionStatus:
    """How far it is."""

    conditions: Sequence[EvictionCondition] | None = None
    requesters: Sequence[EvictionRequester] | None = None
    targetResponders: Sequence[TargetResponder] | None = None
    responders: Sequence[ResponderStatus] | None = None


class ResponderTurn(Enum):
    """What an Eviction wants of us."""

    ACTIVE = auto()
    """We are active, and have not said that we are done."""
    CANCELLED = auto()
    """Nobody wants the pod gone any more: stand it down."""
    INACTIVE = auto()
    """Not yet, or no longer: nothing is begun, and what was begun goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedStatus:
    """What we have written so far. Times are aware UTC."""

    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    expected_at: datetime | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponderAssignment:
    """An Eviction that names us, as far as answering it depends on it."""

    uid: str
    pod: PodReference
    turn: ResponderTurn
    requesters: tuple[str, ...] = ()
    """Those who want the pod gone now."""
    reported: ReportedStatus = ReportedStatus()


def read(
    uid: str, spec: EvictionSpec | None, status: EvictionStatus | None
) -> ResponderAssignment | None:
    """Return what an Eviction asks of us, `None` where that is nothing: not of a pod, or we are none of its responders."""
    pod = spec.target.pod if spec is not None and spec.target is not None else None
    status = status or EvictionStatus()
    target = next(
        (found for found in status.targetResponders or () if found.name == RESPONDER_NAME), None
    )
    if pod is None or target is None:
        return None
    own = next(
        (found for found in status.responders or () if found.name == RESPONDER_NAME),
        ResponderStatus(),
    )
    return ResponderAssignment(
        uid=uid,
        pod=pod,
        turn=_turn(target, own, status),
        requesters=tuple(
            found.name for found in status.requesters or () if found.intent != _WITHDRAWN
        ),
        reported=ReportedStatus(
            started_at=timestamp.parse(own.startTime),
            heartbeat_at=timestamp.parse(own.heartbeatTime),
            expected_at=timestamp.parse(own.expectedCompletionTime),
            message=own.message or "",
        ),
    )


def _turn(target: TargetResponder, own: ResponderStatus, status: EvictionStatus) -> ResponderTurn:
    final = [
        found
        for found in status.conditions or ()
        if found.type in _FINAL and found.status == "True"
    ]
    intents = [found.intent for found in status.requesters or ()]
    # The controller says so in turn; a workload that may go on is told without waiting for it.
    is_withdrawn = bool(intents) and all(intent == _WITHDRAWN for intent in intents)
    if target.state == _CANCELED or any(found.reason == _NO_REQUESTERS for found in final):
        return ResponderTurn.CANCELLED
    if target.state != _ACTIVE or own.completionTime is not None or final:
        return ResponderTurn.INACTIVE
    return ResponderTurn.CANCELLED if is_withdrawn else ResponderTurn.ACTIVE


def wants_responder(pod: Resource, settings: PolicySettings) -> bool:
    """True for a new pod of which we are to be a responder, where such are served: one that wants to be told.

    Never in a native group: the API server refuses both together.
    """
    if pod.kind != "Pod" or not settings.eviction_responder:
        return False
    view = next(pod_views(pod))
    named = [found.name for found in view.spec.evictionResponders or ()]
    has_room = len(named) < MAX_RESPONDERS and RESPONDER_NAME not in named
    return (
        view.spec.schedulingGroup is None
        and has_room
        and checkpoint_plan.read_leniently(view.annotations, settings).gives_notice
    )


def decide_responder(pod: Resource, facts: Facts) -> Iterator[ListAddition]:
    """Yield what makes us a responder of a new pod."""
    if facts.eviction_api_served and wants_responder(pod, facts.settings):
        spec = next(pod_views(pod)).spec
        yield ListAddition(
            _RESPONDERS,
            {"name": RESPONDER_NAME, "priority": RESPONDER_PRIORITY},
            spec.evictionResponders is not None,
        )
