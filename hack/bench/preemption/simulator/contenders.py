"""The ways to preempt that are compared, each a row of a table.

The first three and the bound are references. The others are Reprieve as it was in version 0.1, and
its redesign, with one property changed at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from .model import POLL_SECONDS


class Rules(Enum):
    """Which pods may be victims of a preemptor of higher priority."""

    PRIORITY = "all"
    CLASSES = "of a lower class, and without a toleration that still protects them"


class Order(Enum):
    """Which of the possible sets of victims is preempted."""

    STOCK = "kube-scheduler's: priority, number, age"
    COST = "priority, number, class, estimated cost"
    LOSS = "least expected loss"
    PRIORITY_THEN_LOSS = "priority of the most important victim, then least expected loss"


class Knowledge(Enum):
    """What is known when losses are estimated."""

    DECLARED = "the start, and the declared time of a save"
    REPORTED = "also the last checkpoint, and how long saves took"


class NoticePolicy(Enum):
    """Which victims are asked to save before they get SIGTERM."""

    NEVER = "none"
    ALWAYS = "those that can"
    WHERE_IT_PAYS = "those that lose less by a save than by going at once"


class Mechanism(Enum):
    """How the scheduler's DELETE of a victim is answered."""

    INSTANT = "200: the victim gets SIGTERM"
    REFUSED = "429: the scheduler repeats the DELETE and tries the preemptor no more until then"
    GUARD_ONLY = "429, and the guard also refuses victims that its rules do not allow"
    HELD = "404: the preemptor stays nominated, and the scheduler does not ask again"


class Waiting(Enum):
    """When a preemptor takes no victims because room is coming."""

    FOR_ITS_OWN = "its own victims are leaving"
    FOR_ANY = "pods are leaving some node, also one to which another pod is nominated"
    FOR_UNCLAIMED = "pods are leaving some node, and no other pod is nominated to it"
    """The preemptor is nominated to it."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way to preempt."""

    key: str
    title: str
    rules: Rules = Rules.PRIORITY
    order: Order = Order.STOCK
    knowledge: Knowledge = Knowledge.REPORTED
    notice: NoticePolicy = NoticePolicy.NEVER
    saves_on_sigterm: bool = False
    """Give pods that save on SIGTERM a grace period that is long enough."""
    mechanism: Mechanism = Mechanism.INSTANT
    waiting: Waiting = Waiting.FOR_ITS_OWN
    most_victims: int | None = None
    """Victims of one preemption; None: any number."""
    weighs_devices: bool = False
    """Count a victim's expected loss in device-seconds, not in pod-seconds."""
    goes_together: bool = False
    """Victims without notice go when the slowest of their set has saved, not before."""
    takes_back: bool = False
    """Take a notice back when the preemptor was placed elsewhere."""
    patience_seconds: float = 0.0
    """A preemptor waits for so long while pods terminate, if those of its victims that do not save
    would lose more than its own devices lose by that; with `weighs_devices`."""
    asks_extender: bool = False
    """An extender of the scheduler is asked for victims."""
    longest_back_off_seconds: float = 10.0
    """`podMaxBackoffSeconds` of kube-scheduler."""
    poll_seconds: float = POLL_SECONDS
    is_pooled: bool = False
    """All nodes are one: no room is lost because it is scattered."""


STOCK = Contender(key="stock", title="stock scheduler")
POLICY_ONLY = Contender(
    key="policy-only",
    title="classes and tolerations, no notice",
    rules=Rules.CLASSES,
    most_victims=3,
    asks_extender=True,
)
LEAST_LOSS_ONLY = replace(
    POLICY_ONLY,
    key="least-loss-only",
    title="the same, least loss first",
    order=Order.LOSS,
    waiting=Waiting.FOR_UNCLAIMED,
    longest_back_off_seconds=1.0,
)
GUARD = Contender(
    key="guard",
    title="Reprieve 0.1 (guard)",
    notice=NoticePolicy.ALWAYS,
    mechanism=Mechanism.GUARD_ONLY,
)
EXTENDER = replace(
    POLICY_ONLY,
    key="extender",
    title="Reprieve 0.1 (guard + extender)",
    order=Order.COST,
    notice=NoticePolicy.ALWAYS,
    mechanism=Mechanism.REFUSED,
    waiting=Waiting.FOR_ANY,
)
REDESIGN = replace(
    LEAST_LOSS_ONLY,
    key="redesign",
    title="redesign: least loss, held, notice",
    notice=NoticePolicy.WHERE_IT_PAYS,
    mechanism=Mechanism.HELD,
    saves_on_sigterm=True,
    goes_together=True,
    takes_back=True,
)
BY_DEVICE = replace(
    REDESIGN, key="by-device", title="redesign, loss in device-seconds", weighs_devices=True
)
PATIENT = replace(BY_DEVICE, key="patient", title="the same, with patience", patience_seconds=2.0)
"""What Reprieve does by default, but that a preemptor here may wait at its first attempt, too."""
BOUND = replace(
    REDESIGN,
    key="bound",
    title="one pool of room, all known",
    is_pooled=True,
    most_victims=None,
    waiting=Waiting.FOR_ITS_OWN,
    goes_together=False,
    poll_seconds=0.0,
)
CONTENDERS = (
    STOCK,
    POLICY_ONLY,
    LEAST_LOSS_ONLY,
    GUARD,
    EXTENDER,
    REDESIGN,
    replace(
        REDESIGN, key="hints-only", title="redesign, no grace on SIGTERM", saves_on_sigterm=False
    ),
    replace(
        REDESIGN,
        key="declared-only",
        title="redesign, only declared is known",
        knowledge=Knowledge.DECLARED,
    ),
    replace(
        REDESIGN,
        key="priority-first",
        title="redesign, priority before loss",
        order=Order.PRIORITY_THEN_LOSS,
    ),
    BY_DEVICE,
    PATIENT,
    BOUND,
)
"""`bound` is what the same choice reaches where no room is lost because it is scattered.

It proves no optimum: a pool also places more preemptors, and each may need victims.
"""
BY_KEY = {contender.key: contender for contender in CONTENDERS}
