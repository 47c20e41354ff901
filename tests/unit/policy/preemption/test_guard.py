"""The guard's decisions about requests to delete or evict a pod."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

import pytest

from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.preemption_class import ClassSet
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import pod_views
from reprieve_policy.lifecycle import cause, mark
from reprieve_policy.lifecycle.eviction import (
    CheckpointOutcome,
    Eviction,
    Phase,
    PreemptionCause,
    ProtectionReason,
    Source,
)
from reprieve_policy.preemption import guard, selection
from reprieve_policy.preemption.guard import (
    ALLOWED,
    Requester,
    RequestKind,
    TargetPod,
)
from reprieve_policy.preemption.selection import Refusal
from reprieve_policy.verdict import MetadataChange
from reprieve_testing.objects.builders import NOW, PodBuilder, a_pod, after

HINTING = a_pod().with_hint()
PLAIN = a_pod().in_class(4)
CLEANED = PLAIN.annotated(keys.CLEANERS_BEFORE, "example.com/disk")
ALL_CLASSES = NamespacePolicy(allowed_classes=ClassSet(frozenset(range(11))))
PREEMPTED = Requester(request_kind=RequestKind.PREEMPTION)
EVICTED = Requester(request_kind=RequestKind.EVICTION)
TOLERATED = Refusal(selection.RefusalReason.TOLERATION, "with figures")
HELD = Requester(request_kind=RequestKind.EVICTION, eviction_blocked=True)
EXEMPT = Requester(request_kind=RequestKind.PREEMPTION, is_exempt=True)
BY_DEFAULT, DELETING = PolicySettings(), PolicySettings(deletes_preempted=True)


def in_phase(
    phase: Phase, *, ago: float = 0, left: float | None = None, **fields: object
) -> Eviction:
    deadline = None if left is None else after(left)
    state = Eviction(eviction_id="e", phase=phase, requested_at=after(-ago), deadline=deadline)
    return replace(state, **fields)  # type: ignore[arg-type]  # named by this module only


@dataclass(frozen=True, kw_only=True)
class Case:
    pod: PodBuilder = HINTING
    requester: Requester = PREEMPTED
    state: Eviction | None = None
    is_marked: bool = False
    is_leaving: bool = False
    has_started: bool = True
    evicted_as_a_unit: bool = False
    leaves_with_others: bool = False
    ends_in: float | None = None
    refused: float | None = None
    """When it was first refused, in seconds from now."""
    namespace: NamespacePolicy = ALL_CLASSES
    settings: PolicySettings = BY_DEFAULT
    operator_is_there: bool = True
    want: str = "allowed"
    until: datetime | None = None
    is_renewable: bool = False


CASES = {
    "a pod that can save is notified first": Case(want="notified", until=after(600)),
    "a pod's own checkpoint timeout is its deadline": Case(
        pod=HINTING.annotated(keys.CHECKPOINT_TIMEOUT, "90s"), want="notified", until=after(90)
    ),
    "a pod that saves on SIGTERM gets the time for that": Case(
        pod=a_pod().with_hint("sigterm:"), want="on SIGTERM", until=after(600)
    ),
    "a drained pod that can save is notified first": Case(
        requester=EVICTED, want="notified", until=after(600)
    ),
    "a pod without a checkpoint is deleted at once": Case(pod=PLAIN),
    "a pod without a checkpoint waits for its cleaners before SIGTERM": Case(
        pod=CLEANED, want="cleaned", until=after(600)
    ),
    "a drained pod without a checkpoint waits for its cleaners": Case(
        pod=CLEANED, requester=EVICTED, want="cleaned", until=after(600)
    ),
    "a pod that has not started waits for no cleaner": Case(pod=CLEANED, has_started=False),
    "a pod that saved and waits for its cleaners is waited for": Case(
        state=in_phase(Phase.SAVED, left=1700, cleaners_until=after(60)),
        want="waits",
        until=after(60),
    ),
    "a drained pod without a checkpoint is evicted at once": Case(pod=PLAIN, requester=EVICTED),
    "a member of a gang that is evicted as a unit is evicted with its gang": Case(
        pod=PLAIN, evicted_as_a_unit=True, want="joined"
    ),
    "a drained member of a gang without a checkpoint is evicted alone": Case(
        pod=PLAIN, evicted_as_a_unit=True, requester=EVICTED
    ),
    "a pod without a checkpoint leaves with the victims beside it that save": Case(
        pod=PLAIN, leaves_with_others=True, want="together"
    ),
    "a drained pod without a checkpoint waits for no victims beside it": Case(
        pod=PLAIN, leaves_with_others=True, requester=EVICTED
    ),
    "a pod that can save is notified first, whatever is beside it": Case(
        leaves_with_others=True, want="notified", until=after(600)
    ),
    "a pod that has not started has nothing to save": Case(has_started=False),
    "the gang of a pod that has not started may have something to save": Case(
        has_started=False, evicted_as_a_unit=True, want="joined"
    ),
    "the deletion of a terminating pod is allowed": Case(
        is_leaving=True, state=in_phase(Phase.HINTED, left=600)
    ),
    "without a leading operator, the deletion is allowed": Case(operator_is_there=False),
    "without a leading operator, a saving pod is deleted": Case(
        operator_is_there=False, state=in_phase(Phase.CHECKPOINTING, left=600)
    ),
    "in a namespace without enforcement, the deletion is allowed": Case(
        namespace=NamespacePolicy(enforcement="off")
    ),
    "in a namespace that only warns, the deletion is allowed with a warning": Case(
        namespace=NamespacePolicy(enforcement="warn"), want="warned"
    ),
    "in a namespace that only warns, a pod without a checkpoint causes no warning": Case(
        pod=PLAIN, namespace=NamespacePolicy(enforcement="warn")
    ),
    # Under way.
    "a marked pod is waited for": Case(is_marked=True, want="waits"),
    "a marked pod without a checkpoint is waited for": Case(
        pod=PLAIN, is_marked=True, want="waits"
    ),
    "a mark that the operator has not processed for 59.9 s is waited for": Case(
        is_marked=True, requester=replace(PREEMPTED, unprocessed_mark_seconds=59.9), want="waits"
    ),
    "a mark that the operator has not processed for 60 s is not waited for": Case(
        is_marked=True, requester=replace(PREEMPTED, unprocessed_mark_seconds=60)
    ),
    "a notified pod is waited for until its deadline": Case(
        state=in_phase(Phase.HINTED, ago=5, left=595), want="waits", until=after(595)
    ),
    "a saving pod is waited for until its deadline": Case(
        state=in_phase(Phase.CHECKPOINTING, ago=5, left=10),
        requester=EVICTED,
        want="waits",
        until=after(10),
    ),
    "a pod that has saved is waited for: the operator writes its ledger and deletes it": Case(
        state=in_phase(Phase.SAVED, left=1700, outcome=CheckpointOutcome.SAVED), want="waits"
    ),
    "a settled pod is waited for": Case(state=in_phase(Phase.SETTLED, left=1700), want="waits"),
    "a pod whose deletion a budget delays is waited for": Case(
        state=in_phase(Phase.TERMINATING), want="waits"
    ),
    "a pod whose eviction has just been requested": Case(
        state=in_phase(Phase.REQUESTED), want="waits"
    ),
    "a minute after the ceiling every requester may delete it": Case(
        state=in_phase(Phase.TERMINATING, ago=1860)
    ),
    "until a minute after the ceiling, a terminating victim is waited for": Case(
        state=in_phase(Phase.TERMINATING, ago=1859), want="waits"
    ),
    "a budget delays an eviction until the ceiling and no longer": Case(
        state=in_phase(Phase.TERMINATING, ago=1800, must_evict=True)
    ),
    "until the ceiling, a budget delays an eviction": Case(
        state=in_phase(Phase.TERMINATING, ago=1799, must_evict=True), want="waits"
    ),
    "a victim notified again after a budget delayed it is waited for until another ceiling": Case(
        state=in_phase(Phase.HINTED, ago=60, left=540, must_evict=True, held_since=after(-1800))
    ),
    "until another ceiling, a victim notified again has its notice": Case(
        state=in_phase(Phase.HINTED, ago=60, left=540, must_evict=True, held_since=after(-1799)),
        want="waits",
        until=after(540),
    ),
    "an eviction always waits for a victim that was notified again": Case(
        state=in_phase(Phase.HINTED, ago=60, left=540, must_evict=True, held_since=after(-(10**6))),
        requester=EVICTED,
        want="waits",
        until=after(540),
    ),
    "a victim whose eviction a budget cancelled is notified again": Case(
        state=in_phase(Phase.CANCELLED, ago=1800, must_evict=True),
        want="notified",
        until=after(600),
    ),
    "a victim whose eviction a budget cancelled is not notified while the budget allows none": Case(
        state=in_phase(Phase.CANCELLED, ago=1800, must_evict=True), requester=HELD, want="held"
    ),
    "beyond the ceiling of a delayed eviction, class 10 still protects": Case(
        pod=HINTING.in_class(10),
        state=in_phase(Phase.TERMINATING, ago=10**6, must_evict=True),
        want="class",
    ),
    "beyond the ceiling of a delayed eviction, a toleration still protects": Case(
        state=in_phase(Phase.TERMINATING, ago=10**6, must_evict=True),
        requester=replace(PREEMPTED, refusal=TOLERATED),
        want="priority",
    ),
    "another eviction of a delayed victim is left to its budget": Case(
        pod=HINTING.in_class(10),
        state=in_phase(Phase.TERMINATING, ago=1860, must_evict=True),
        requester=EVICTED,
    ),
    "a deferral does not protect beyond a minute after the ceiling": Case(
        state=in_phase(Phase.DEFERRED, ago=1860, left=100)
    ),
    "a pod whose eviction was cancelled is notified again": Case(
        state=in_phase(Phase.CANCELLED, ago=60), want="notified", until=after(600)
    ),
    "a pod that is marked again after a cancellation is waited for": Case(
        state=in_phase(Phase.CANCELLED, ago=6000), is_marked=True, want="waits"
    ),
    "a spared pod is evaluated again and notified": Case(
        state=in_phase(Phase.SPARED, ago=60), want="notified", until=after(600)
    ),
    # Protected.
    "class 10 is never preempted": Case(pod=HINTING.in_class(10), want="class"),
    "class 7 without a checkpoint is never preempted": Case(pod=a_pod().in_class(7), want="class"),
    "a drained pod of class 10 is evicted after notice": Case(
        pod=HINTING.in_class(10), requester=EVICTED, want="notified", until=after(600)
    ),
    "a drained pod of class 7 without a checkpoint is evicted at once": Case(
        pod=a_pod().in_class(7), requester=EVICTED
    ),
    "a pod that is almost complete may finish": Case(
        ends_in=120, want="walltime", until=after(120), is_renewable=True
    ),
    "a pod that was refused as almost complete for the ceiling is notified": Case(
        ends_in=120, refused=-1800, want="notified", until=after(600)
    ),
    "a gang that is almost complete may finish": Case(
        evicted_as_a_unit=True,
        requester=replace(
            PREEMPTED,
            refusal=Refusal(selection.RefusalReason.GANG, "with names", is_renewable=True),
        ),
        want="gang",
        is_renewable=True,
    ),
    "a member of a gang that is evicted as a unit is not complete by itself": Case(
        ends_in=120, evicted_as_a_unit=True, want="notified", until=after(600)
    ),
    "a drained pod that is almost complete is notified": Case(
        ends_in=120, requester=EVICTED, want="notified", until=after(600)
    ),
    "a pod that the operator reprieved as almost complete may finish": Case(
        state=in_phase(
            Phase.REPRIEVED, ago=5, left=100, refused_on=ProtectionReason.NEAR_COMPLETION
        ),
        want="walltime",
        until=after(100),
        is_renewable=True,
    ),
    "a pod that the operator reprieved as non-preemptible stays": Case(
        state=in_phase(Phase.REPRIEVED, left=100, refused_on=ProtectionReason.NON_PREEMPTIBLE),
        want="class",
        until=after(100),
    ),
    "a drain waits for a reprieved pod and does not mark it": Case(
        state=in_phase(Phase.REPRIEVED, left=100),
        requester=EVICTED,
        want="finishes",
        until=after(100),
    ),
    "a drain waits for a reprieved pod that another requester marked": Case(
        state=in_phase(Phase.REPRIEVED, left=100),
        is_marked=True,
        requester=EVICTED,
        want="finishes",
        until=after(100),
    ),
    # A budget.
    "a pod whose budget allows no eviction now is not notified": Case(requester=HELD, want="held"),
    "the API server refuses the eviction of a pod without a checkpoint": Case(
        pod=PLAIN, requester=HELD
    ),
    "a pod notified before its budget allowed none is waited for": Case(
        state=in_phase(Phase.HINTED, left=9), requester=HELD, want="waits", until=after(9)
    ),
    "in a namespace that only warns, the API server decides about the budget": Case(
        requester=HELD, namespace=NamespacePolicy(enforcement="warn"), want="warned"
    ),
    # Kubernetes' own.
    "a system-critical pod preempts a non-preemptible pod after notice": Case(
        pod=HINTING.in_class(10), requester=EXEMPT, want="notified", until=after(600)
    ),
    "a system-critical pod preempts a pod without a checkpoint at once": Case(
        pod=a_pod().in_class(7), requester=EXEMPT
    ),
    "a system-critical pod preempts a gang as a unit": Case(
        pod=PLAIN, evicted_as_a_unit=True, requester=EXEMPT, want="joined"
    ),
    "a system-critical pod preempts a pod that is almost complete after notice": Case(
        ends_in=120, requester=EXEMPT, want="notified", until=after(600)
    ),
    "a system-critical pod preempts a reprieved pod after notice": Case(
        state=in_phase(Phase.REPRIEVED, left=100),
        requester=EXEMPT,
        want="notified",
        until=after(600),
    ),
    "a system-critical pod waits for a reprieved pod that is marked": Case(
        state=in_phase(Phase.REPRIEVED, left=100), is_marked=True, requester=EXEMPT, want="waits"
    ),
    "a system-critical pod waits until a minute after the ceiling": Case(
        state=in_phase(Phase.CHECKPOINTING, ago=1860, left=9), requester=EXEMPT
    ),
    # The preemptor.
    "a pod that its preemptor may not preempt stays": Case(
        requester=replace(PREEMPTED, refusal=TOLERATED), want="priority"
    ),
    "a pod with a toleration for a time stays until the toleration ends": Case(
        requester=replace(PREEMPTED, refusal=TOLERATED._replace(until=after(60))),
        want="until",
        until=after(60),
    ),
    "a pod of another quota stays": Case(
        requester=replace(
            PREEMPTED, refusal=Refusal(selection.RefusalReason.QUOTA, "of pod secret")
        ),
        want="quota",
    ),
    "a pod without a checkpoint that its preemptor may not preempt stays": Case(
        pod=PLAIN, requester=replace(PREEMPTED, refusal=TOLERATED), want="priority"
    ),
    "an eviction in progress is finished for every requester": Case(
        state=in_phase(Phase.HINTED, left=9),
        requester=replace(PREEMPTED, refusal=TOLERATED),
        want="waits",
        until=after(9),
    ),
    "no preemptor gets a second victim set while the first is unfinished": Case(
        requester=replace(PREEMPTED, has_victims_elsewhere=True), want="busy"
    ),
    # Where preempted pods should be deleted.
    "with deletion without notice, a scheduler's deletion is allowed at once": Case(
        settings=DELETING
    ),
    "with deletion without notice, a system-critical pod preempts class 10 at once": Case(
        pod=HINTING.in_class(10), requester=EXEMPT, settings=DELETING
    ),
    "with deletion without notice, an evicted pod is still notified": Case(
        requester=EVICTED, settings=DELETING, want="notified", until=after(600)
    ),
    "with deletion without notice, class 10 is still protected": Case(
        pod=HINTING.in_class(10), settings=DELETING, want="class"
    ),
    "with deletion without notice, a pod that is almost complete may still finish": Case(
        ends_in=120, settings=DELETING, want="walltime", until=after(120), is_renewable=True
    ),
    "with deletion without notice, a toleration still protects": Case(
        requester=replace(PREEMPTED, refusal=TOLERATED), settings=DELETING, want="priority"
    ),
    "with deletion without notice, a marked pod is still waited for": Case(
        is_marked=True, settings=DELETING, want="waits"
    ),
    "with deletion without notice, a notified pod is still waited for": Case(
        state=in_phase(Phase.HINTED, left=9), settings=DELETING, want="waits", until=after(9)
    ),
    "with deletion without notice, a gang is still evicted as a unit": Case(
        evicted_as_a_unit=True, settings=DELETING, want="joined"
    ),
}

MARKED = ("notified", "on SIGTERM", "cleaned", "joined", "together")
WORDS = {
    "notified": (
        "metadata.labels[reprieve.dev/soft-eviction]: Forbidden: it is asked to "
        "save a checkpoint first"
    ),
    "joined": (
        "metadata.labels[reprieve.dev/soft-eviction]: Forbidden: its whole gang "
        "is marked for eviction first"
    ),
    "on SIGTERM": (
        "metadata.labels[reprieve.dev/soft-eviction]: Forbidden: it is given the time "
        "to save a checkpoint on SIGTERM"
    ),
    "cleaned": (
        "metadata.labels[reprieve.dev/soft-eviction]: Forbidden: its cleaners are asked before "
        "SIGTERM"
    ),
    "together": (
        "metadata.labels[reprieve.dev/soft-eviction]: Forbidden: other victims of its preemptor "
        "save a checkpoint first"
    ),
    "waits": "metadata.labels[reprieve.dev/soft-eviction]: Forbidden: it ",
    "class": (
        "metadata.labels[reprieve.dev/preemption-class]: Forbidden: this pod is non-preemptible"
    ),
    "finishes": (
        "spec.activeDeadlineSeconds: Forbidden: it is almost complete and may "
        "finish, until 2026-11-21T12:01:40Z"
    ),
    "walltime": (
        "spec.activeDeadlineSeconds: Forbidden: it is almost complete and may finish, "
        "until 2026-11-21T12:0"
    ),
    "gang": "metadata: Forbidden: its gang is evicted as a unit, and one member may not be",
    "priority": (
        "spec.priorityClassName: Forbidden: its PriorityClass tolerates the preemptor's priority"
    ),
    "until": (
        "spec.priorityClassName: Forbidden: its PriorityClass tolerates the "
        "preemptor's priority, until 2026-11-21T12:01:00Z"
    ),
    "quota": "metadata: Forbidden: it uses another quota",
    "held": (
        "metadata.labels[reprieve.dev/soft-eviction]: Forbidden: its "
        "PodDisruptionBudget allows no eviction now"
    ),
    "busy": (
        "metadata.annotations[reprieve.dev/eviction]: Forbidden: the "
        "preemptor's victims on another node are not gone"
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_decision_on_a_deletion_or_eviction(case: Case) -> None:
    ruling = guard.decide(sought(case), case.requester, facts(case), NOW)
    assert ruling.is_allowed == (case.want in ("allowed", "warned"))
    assert bool(ruling.warning) == (case.want == "warned")
    assert ruling.sets_mark == (case.want in MARKED)
    assert ruling.is_postponed == (case.want in (*MARKED, "waits", "finishes"))
    assert ruling.has_victims_elsewhere == (case.want == "busy")
    assert ruling.is_renewable == case.is_renewable
    assert ruling.until == case.until
    if ruling.violation is not None:
        assert str(ruling.violation).startswith(WORDS[case.want])


def sought(case: Case) -> TargetPod:
    (view,) = pod_views(case.pod.build())
    walltime = None if case.ends_in is None else Walltime(after(case.ends_in - 3600), 3600)
    return TargetPod(
        view=view,
        state=case.state,
        is_marked=case.is_marked,
        is_terminating=case.is_leaving,
        has_started=case.has_started,
        evicted_as_a_unit=case.evicted_as_a_unit,
        leaves_with_others=case.leaves_with_others,
        walltime=walltime,
        refused_since=None if case.refused is None else after(case.refused),
    )


def facts(case: Case) -> Facts:
    return Facts(
        settings=case.settings, namespace=case.namespace, operator_is_live=case.operator_is_there
    )


def test_a_pod_that_cannot_be_marked_goes_one_ceiling_after_it_was_first_refused() -> None:
    put_off = guard.decide(sought(Case()), PREEMPTED, facts(Case()), NOW)
    for refused, want in (
        (None, replace(put_off, is_renewable=True)),
        (-1799, replace(put_off, is_renewable=True)),
        (-1800, ALLOWED),
    ):
        case = Case(refused=refused)
        assert guard.decide_unmarkable(put_off, sought(case), facts(case), NOW) == want


def test_an_allowed_request_has_no_mark_and_no_warning() -> None:
    assert ALLOWED.is_allowed
    assert (ALLOWED.sets_mark, ALLOWED.warning) == (False, "")


def test_the_mark_of_a_preemption_names_the_preemptor_by_its_uid_only() -> None:
    labels, annotations = marked(
        guard.mark_changes(RequestKind.PREEMPTION, "uid-of-high", NOW, victims=3)
    )
    assert labels == {keys.SOFT_EVICTION: "marked"}
    assert annotations[keys.PREEMPTOR] == "uid-of-high"
    assert mark.is_written_by_reprieve(annotations)
    found = mark.parse_annotation(annotations[keys.KOORDINATOR_SOFT_EVICTION], "")
    assert found == mark.Mark(
        initiator="kube-scheduler",
        reason="preempted by pod uid-of-high",
        requested_at=NOW,
        victims=3,
    )


def test_a_preemption_for_a_sensitive_workload_has_that_cause() -> None:
    _, annotations = marked(
        guard.mark_changes(RequestKind.PREEMPTION, "", NOW, is_for_sensitive=True)
    )
    found = mark.parse_annotation(annotations[keys.KOORDINATOR_SOFT_EVICTION], "")
    assert isinstance(found, mark.Mark)
    state = Eviction(
        eviction_id="e",
        phase=Phase.REQUESTED,
        requested_at=NOW,
        source=Source.KOORDINATOR,
        reason=found.reason,
    )
    assert cause.decide_cause(state, is_for_sensitive=False) is PreemptionCause.SENSITIVE


def test_a_mark_without_a_known_preemptor_replaces_an_earlier_preemptor() -> None:
    _, annotations = marked(guard.mark_changes(RequestKind.PREEMPTION, "", NOW))
    assert annotations[keys.PREEMPTOR] == ""


def test_the_mark_for_a_system_critical_preemptor_is_honoured_for_every_pod() -> None:
    labels, annotations = marked(
        guard.mark_changes(RequestKind.PREEMPTION, "uid-of-high", NOW, is_exempt=True)
    )
    assert labels == {keys.SOFT_EVICTION: "requested"}
    assert annotations[keys.PREEMPTOR] == "uid-of-high"
    found = mark.read(labels, annotations)
    assert isinstance(found, mark.Mark)
    assert found.reason == "preempted by pod uid-of-high"


def test_the_mark_of_an_eviction_requests_no_more_than_an_eviction() -> None:
    assert marked(guard.mark_changes(RequestKind.EVICTION, "", NOW)) == (
        {keys.SOFT_EVICTION: "evict"},
        {},
    )


def marked(changes: Iterable[MetadataChange]) -> tuple[dict[str, str], dict[str, str]]:
    said: dict[str, dict[str, str]] = {"labels": {}, "annotations": {}}
    for change in changes:
        said[change.field][change.key] = change.value
    return said["labels"], said["annotations"]


def a_victim(
    *,
    state: Eviction | None = None,
    is_marked: bool = False,
    leaves: bool = False,
    ends: float | None = None,
    of: str = "high",
) -> TargetPod:
    pod = (
        a_pod().annotated(keys.PREEMPTOR, f"uid-of-{of}")
        if of
        else a_pod().marked_by("kube-scheduler", FOR_HIGH)
    )
    (view,) = pod_views(pod.build())
    return TargetPod(
        view=view,
        state=state,
        is_marked=is_marked,
        is_terminating=leaves,
        deletion_ends_at=None if ends is None else after(ends),
    )


def going(phase: Phase = Phase.HINTED, source: Source = Source.KOORDINATOR) -> Eviction:
    return in_phase(phase, left=60, reason=FOR_HIGH, source=source)


FOR_HIGH = "preempted by pod uid-of-high"
ASKED_FOR = replace(going(source=Source.LABEL), initiator=mark.GUARD_INITIATOR)
BUSY = {
    "no pod": ([], False),
    "a victim that saves elsewhere": ([(a_victim(state=going()), "there")], True),
    "a victim on the same node belongs to the same set": (
        [(a_victim(state=going()), "here")],
        False,
    ),
    "a member that is evicted because of its gang": (
        [(a_victim(state=going(source=Source.GANG)), "there")],
        False,
    ),
    "a victim that a user has marked since": (
        [(a_victim(state=going(source=Source.LABEL)), "there")],
        False,
    ),
    "a victim that its owner asks for, too": (
        [
            (
                a_victim(state=replace(going(source=Source.LABEL), initiator=mark.GUARD_INITIATOR)),
                "there",
            )
        ],
        True,
    ),
    "a victim that is marked and not yet notified": ([(a_victim(is_marked=True), "there")], True),
    "a victim that was marked again after a cancellation": (
        [(a_victim(state=going(Phase.CANCELLED), is_marked=True), "there")],
        True,
    ),
    "a victim whose mark was removed": ([(a_victim(), "there")], False),
    "a mark and a state without a recorded preemptor, which the pod's owner may write": (
        [(a_victim(state=going(), of=""), "there"), (a_victim(is_marked=True, of=""), "there")],
        False,
    ),
    "a reprieved victim": ([(a_victim(state=going(Phase.REPRIEVED)), "there")], False),
    "a victim whose eviction was cancelled": (
        [(a_victim(state=going(Phase.CANCELLED)), "there")],
        False,
    ),
    "a victim that is being deleted": ([(a_victim(leaves=True, ends=30), "there")], True),
    "a victim whose grace period has just ended": (
        [(a_victim(leaves=True, ends=-59), "there")],
        True,
    ),
    "a victim whose grace period ends at the ceiling": (
        [(a_victim(leaves=True, ends=1800), "there")],
        True,
    ),
    "a victim that its owner deletes with a grace period of years": (
        [(a_victim(leaves=True, ends=10**8), "there")],
        False,
    ),
    "a victim that its node does not end": ([(a_victim(leaves=True, ends=-60), "there")], False),
    "a terminating victim of another preemptor": (
        [(a_victim(leaves=True, ends=30, of="higher"), "there")],
        False,
    ),
    "a terminating victim on the same node": ([(a_victim(leaves=True, ends=30), "here")], False),
    "a victim that has ended": (
        [(a_victim(state=going(Phase.TERMINATING), leaves=True), "there")],
        False,
    ),
    "a victim of another preemptor": ([(a_victim(state=going(), of="higher"), "there")], False),
}


@pytest.mark.parametrize(("victims", "want"), BUSY.values(), ids=BUSY)
def test_whether_the_first_victim_set_is_unfinished(
    victims: list[tuple[TargetPod, str]], *, want: bool
) -> None:
    assert guard.has_victims_elsewhere("uid-of-high", "here", victims, 1800, NOW) is want
