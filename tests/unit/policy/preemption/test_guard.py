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
    GuardDecision,
    Requester,
    RequestKind,
    TargetPod,
)
from reprieve_policy.preemption.selection import Refusal
from reprieve_policy.verdict import MetadataChange, Violation, ViolationKind
from reprieve_testing.builders import NOW, PodBuilder, a_pod, after

HINTING = a_pod().with_hint()
PLAIN = a_pod().in_class(4)
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
    namespace: NamespacePolicy = ALL_CLASSES
    settings: PolicySettings = BY_DEFAULT
    operator_is_there: bool = True
    want: str = "allowed"
    until: datetime | None = None


CASES = {
    "a pod that can save is told first": Case(want="told", until=after(600)),
    "within the time that it asks for": Case(
        pod=HINTING.annotated(keys.CHECKPOINT_TIMEOUT, "90s"), want="told", until=after(90)
    ),
    "so it is where it is drained": Case(requester=EVICTED, want="told", until=after(600)),
    "one that wants no checkpoint goes at once, as if no guard were there": Case(pod=PLAIN),
    "drained as well": Case(pod=PLAIN, requester=EVICTED),
    ("one of a gang that goes as a whole goes with all of it"): Case(
        pod=PLAIN, evicted_as_a_unit=True, want="joined"
    ),
    "alone where it is drained": Case(pod=PLAIN, evicted_as_a_unit=True, requester=EVICTED),
    "beside victims that save it leaves with them": Case(
        pod=PLAIN, leaves_with_others=True, want="together"
    ),
    "but not where it is drained": Case(pod=PLAIN, leaves_with_others=True, requester=EVICTED),
    "nor does one that wants a checkpoint save later for that": Case(
        leaves_with_others=True, want="told", until=after(600)
    ),
    "one that has not started has nothing to save": Case(has_started=False),
    "but its gang may have": Case(has_started=False, evicted_as_a_unit=True, want="joined"),
    "one that is leaving is left alone": Case(
        is_leaving=True, state=in_phase(Phase.HINTED, left=600)
    ),
    "without a leading operator it is allowed": Case(operator_is_there=False),
    "nor does a pod wait for one that has gone": Case(
        operator_is_there=False, state=in_phase(Phase.CHECKPOINTING, left=600)
    ),
    ("where nothing is enforced nothing is guarded"): Case(
        namespace=NamespacePolicy(enforcement="off")
    ),
    ("where it is only warned of the pod goes"): Case(
        namespace=NamespacePolicy(enforcement="warn"), want="warned"
    ),
    "nothing is warned of a pod that may go": Case(
        pod=PLAIN, namespace=NamespacePolicy(enforcement="warn")
    ),
    # Under way.
    "one that was marked is waited for": Case(is_marked=True, want="waits"),
    "also without a checkpoint": Case(pod=PLAIN, is_marked=True, want="waits"),
    "for a while": Case(
        is_marked=True, requester=replace(PREEMPTED, unprocessed_mark_seconds=59.9), want="waits"
    ),
    "not for ever where the operator takes no notice": Case(
        is_marked=True, requester=replace(PREEMPTED, unprocessed_mark_seconds=60)
    ),
    "one that was told is waited for until its deadline": Case(
        state=in_phase(Phase.HINTED, ago=5, left=595), want="waits", until=after(595)
    ),
    "one that saves too": Case(
        state=in_phase(Phase.CHECKPOINTING, ago=5, left=10),
        requester=EVICTED,
        want="waits",
        until=after(10),
    ),
    "one that has saved is deleted by the operator, with its ledger, and with its gang": Case(
        state=in_phase(Phase.SAVED, left=1700, outcome=CheckpointOutcome.SAVED), want="waits"
    ),
    "one that settled as well": Case(state=in_phase(Phase.SETTLED, left=1700), want="waits"),
    ("and one whose deletion a budget holds up"): Case(
        state=in_phase(Phase.TERMINATING), want="waits"
    ),
    "one that was only just taken up too": Case(state=in_phase(Phase.REQUESTED), want="waits"),
    ("a minute after the ceiling every requester may delete it"): Case(
        state=in_phase(Phase.TERMINATING, ago=1860)
    ),
    "not before": Case(state=in_phase(Phase.TERMINATING, ago=1859), want="waits"),
    "a budget that holds its eviction no longer than the ceiling": Case(
        state=in_phase(Phase.TERMINATING, ago=1800, must_evict=True)
    ),
    "until then it holds": Case(
        state=in_phase(Phase.TERMINATING, ago=1799, must_evict=True), want="waits"
    ),
    (
        "one that is asked anew after a budget held it is waited for no longer than another ceiling"
    ): Case(
        state=in_phase(Phase.HINTED, ago=60, left=540, must_evict=True, held_since=after(-1800))
    ),
    "until then it has its notice": Case(
        state=in_phase(Phase.HINTED, ago=60, left=540, must_evict=True, held_since=after(-1799)),
        want="waits",
        until=after(540),
    ),
    "against an eviction it has it always": Case(
        state=in_phase(Phase.HINTED, ago=60, left=540, must_evict=True, held_since=after(-(10**6))),
        requester=EVICTED,
        want="waits",
        until=after(540),
    ),
    "what a budget had stood down is a pod like any other": Case(
        state=in_phase(Phase.CANCELLED, ago=1800, must_evict=True), want="told", until=after(600)
    ),
    "it is not notified while the budget holds it": Case(
        state=in_phase(Phase.CANCELLED, ago=1800, must_evict=True), requester=HELD, want="held"
    ),
    "what protected it does so still": Case(
        pod=HINTING.in_class(10),
        state=in_phase(Phase.TERMINATING, ago=10**6, must_evict=True),
        want="class",
    ),
    "also against this preemptor": Case(
        state=in_phase(Phase.TERMINATING, ago=10**6, must_evict=True),
        requester=replace(PREEMPTED, refusal=TOLERATED),
        want="priority",
    ),
    "another eviction is the budget's to judge": Case(
        pod=HINTING.in_class(10),
        state=in_phase(Phase.TERMINATING, ago=1860, must_evict=True),
        requester=EVICTED,
    ),
    "whatever an extension says": Case(state=in_phase(Phase.DEFERRED, ago=1860, left=100)),
    "one whose eviction was taken back is told anew": Case(
        state=in_phase(Phase.CANCELLED, ago=60), want="told", until=after(600)
    ),
    "and is waited for once it is marked anew": Case(
        state=in_phase(Phase.CANCELLED, ago=6000), is_marked=True, want="waits"
    ),
    "one that was spared is judged anew": Case(
        state=in_phase(Phase.SPARED, ago=60), want="told", until=after(600)
    ),
    # Protected.
    "class 10 is never preempted": Case(pod=HINTING.in_class(10), want="class"),
    "nor class 7 that cannot save": Case(pod=a_pod().in_class(7), want="class"),
    "drained it goes, after notice": Case(
        pod=HINTING.in_class(10), requester=EVICTED, want="told", until=after(600)
    ),
    "and at once where it wants none": Case(pod=a_pod().in_class(7), requester=EVICTED),
    ("one that is almost complete is let finish"): Case(
        ends_in=120, want="walltime", until=after(120)
    ),
    "one of a gang that goes as a whole is not complete by itself": Case(
        ends_in=120, evicted_as_a_unit=True, want="told", until=after(600)
    ),
    "but not by a drain": Case(ends_in=120, requester=EVICTED, want="told", until=after(600)),
    "one that the operator reprieved as well": Case(
        state=in_phase(
            Phase.REPRIEVED, ago=5, left=100, refused_on=ProtectionReason.NEAR_COMPLETION
        ),
        want="walltime",
        until=after(100),
    ),
    "on whatever ground": Case(
        state=in_phase(Phase.REPRIEVED, left=100, refused_on=ProtectionReason.NON_PREEMPTIBLE),
        want="class",
        until=after(100),
    ),
    "a drain waits for it as well, and changes nothing of it": Case(
        state=in_phase(Phase.REPRIEVED, left=100),
        requester=EVICTED,
        want="finishes",
        until=after(100),
    ),
    "whichever requester marked it": Case(
        state=in_phase(Phase.REPRIEVED, left=100),
        is_marked=True,
        requester=EVICTED,
        want="finishes",
        until=after(100),
    ),
    # A budget.
    "a pod that a budget holds now is not notified": Case(requester=HELD, want="held"),
    "one that wants no checkpoint is the API server's to refuse": Case(pod=PLAIN, requester=HELD),
    "one that was told before is waited for": Case(
        state=in_phase(Phase.HINTED, left=9), requester=HELD, want="waits", until=after(9)
    ),
    "where it is only warned of the API server decides": Case(
        requester=HELD, namespace=NamespacePolicy(enforcement="warn"), want="warned"
    ),
    # Kubernetes' own.
    "a system-critical pod preempts a non-preemptible pod after notice": Case(
        pod=HINTING.in_class(10), requester=EXEMPT, want="told", until=after(600)
    ),
    "at once where it wants none": Case(pod=a_pod().in_class(7), requester=EXEMPT),
    "with all of its gang": Case(
        pod=PLAIN, evicted_as_a_unit=True, requester=EXEMPT, want="joined"
    ),
    "one that is almost complete as well": Case(
        ends_in=120, requester=EXEMPT, want="told", until=after(600)
    ),
    "and one that was reprieved": Case(
        state=in_phase(Phase.REPRIEVED, left=100), requester=EXEMPT, want="told", until=after(600)
    ),
    "and then it waits": Case(
        state=in_phase(Phase.REPRIEVED, left=100), is_marked=True, requester=EXEMPT, want="waits"
    ),
    "until a minute after the ceiling": Case(
        state=in_phase(Phase.CHECKPOINTING, ago=1860, left=9), requester=EXEMPT
    ),
    # The preemptor.
    ("one that its preemptor may not have stays"): Case(
        requester=replace(PREEMPTED, refusal=TOLERATED), want="priority"
    ),
    "until what keeps it from him ends": Case(
        requester=replace(PREEMPTED, refusal=TOLERATED._replace(until=after(60))),
        want="until",
        until=after(60),
    ),
    "whatever it is about": Case(
        requester=replace(
            PREEMPTED, refusal=Refusal(selection.RefusalReason.QUOTA, "of pod secret")
        ),
        want="quota",
    ),
    "also one that wants no checkpoint": Case(
        pod=PLAIN, requester=replace(PREEMPTED, refusal=TOLERATED), want="priority"
    ),
    "an eviction that has begun is finished for every requester": Case(
        state=in_phase(Phase.HINTED, left=9),
        requester=replace(PREEMPTED, refusal=TOLERATED),
        want="waits",
        until=after(9),
    ),
    "no preemptor gets a second victim set while the first is unfinished": Case(
        requester=replace(PREEMPTED, has_victims_elsewhere=True), want="busy"
    ),
    # Where preempted pods should be deleted.
    "a scheduler that deletes a pod has it at once": Case(settings=DELETING),
    "so have Kubernetes' own": Case(pod=HINTING.in_class(10), requester=EXEMPT, settings=DELETING),
    "not an eviction": Case(requester=EVICTED, settings=DELETING, want="told", until=after(600)),
    "nor a pod that is not preemptible": Case(
        pod=HINTING.in_class(10), settings=DELETING, want="class"
    ),
    "nor one that is almost complete": Case(
        ends_in=120, settings=DELETING, want="walltime", until=after(120)
    ),
    "nor one that its preemptor may not have": Case(
        requester=replace(PREEMPTED, refusal=TOLERATED), settings=DELETING, want="priority"
    ),
    "nor a marked pod": Case(is_marked=True, settings=DELETING, want="waits"),
    "nor one that was told before": Case(
        state=in_phase(Phase.HINTED, left=9), settings=DELETING, want="waits", until=after(9)
    ),
    ("nor a part of a gang that goes as a whole"): Case(
        evicted_as_a_unit=True, settings=DELETING, want="joined"
    ),
}

WORDS = {
    "told": (
        "metadata.labels[reprieve.dev/soft-eviction]: Forbidden: it is asked to "
        "save a checkpoint first"
    ),
    "joined": (
        "metadata.labels[reprieve.dev/soft-eviction]: Forbidden: its whole gang "
        "is marked for eviction first"
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
        "finish, until 12:01:40Z"
    ),
    "walltime": (
        "spec.activeDeadlineSeconds: Forbidden: it is almost complete and may finish, until 12:0"
    ),
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
    assert ruling.sets_mark == (case.want in ("told", "joined", "together"))
    assert ruling.is_postponed == (case.want in ("told", "joined", "together", "waits", "finishes"))
    assert ruling.has_victims_elsewhere == (case.want == "busy")
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
    )


def facts(case: Case) -> Facts:
    return Facts(
        settings=case.settings, namespace=case.namespace, operator_is_live=case.operator_is_there
    )


REFUSAL = Violation("spec", ViolationKind.FORBIDDEN, None, "no")


def put_off(left: float | None) -> GuardDecision:
    return GuardDecision(
        violation=REFUSAL, until=None if left is None else after(left), is_postponed=True
    )


def refused(left: float | None) -> GuardDecision:
    return replace(put_off(left), is_postponed=False)


RETRIES: dict[str, tuple[GuardDecision, int, int]] = {
    "what is left is waited for": (put_off(12), 1, 12),
    "a part of a second is one": (put_off(11.2), 1, 12),
    "for half a minute at most": (put_off(600), 1, 30),
    "for four seconds at least": (put_off(0.1), 1, 4),
    "also where the time is over": (put_off(-5), 1, 4),
    "and without a known time": (put_off(None), 1, 4),
    "several of a node have each their own client": (put_off(600), 3, 12),
    "however many": (put_off(1), 40, 30),
    "where a preemption is refused its preemptor may look elsewhere soon": (refused(600), 1, 5),
    "sooner where that ends": (refused(3.5), 1, 4),
    "but no sooner than others": (refused(1), 1, 4),
    "for good too": (refused(None), 1, 5),
    "and with others": (refused(None), 4, 16),
    "no refused victim": (put_off(2), 0, 4),
}


@pytest.mark.parametrize(("ruling", "fellows", "want"), RETRIES.values(), ids=RETRIES)
def test_an_asynchronous_scheduler_gets_a_retry_time(
    ruling: GuardDecision, fellows: int, want: int
) -> None:
    found = guard.retry_after(
        ruling, RequestKind.PREEMPTION, is_asynchronous=True, fellows=fellows, now=NOW
    )
    assert found == want


def test_if_the_retry_time_must_be_short_every_decision_gets_the_shortest() -> None:
    for ruling in (put_off(600), refused(600), refused(None)):
        for fellows, want in ((1, 4), (3, 12), (40, 30)):
            found = guard.retry_after(
                ruling,
                RequestKind.PREEMPTION,
                is_asynchronous=True,
                is_short=True,
                fellows=fellows,
                now=NOW,
            )
            assert found == want


def test_a_synchronous_scheduler_and_a_drain_get_no_retry_time() -> None:
    for kind, is_asynchronous in (
        (RequestKind.PREEMPTION, False),
        (RequestKind.EVICTION, False),
        (RequestKind.EVICTION, True),
    ):
        ruling = put_off(12)
        assert (
            guard.retry_after(ruling, kind, is_asynchronous=is_asynchronous, fellows=1, now=NOW)
            is None
        )


NOT_FOUND = {
    "a victim that gets notice, also the last": (put_off(9), RequestKind.PREEMPTION, True, True),
    "one that has saved already": (put_off(None), RequestKind.PREEMPTION, True, True),
    "a synchronous scheduler nominates no pod": (put_off(9), RequestKind.PREEMPTION, False, False),
    "a pod that stays is there": (refused(9), RequestKind.PREEMPTION, True, False),
    "but not if its preemptor waits for other victims": (
        replace(refused(None), has_victims_elsewhere=True),
        RequestKind.PREEMPTION,
        True,
        True,
    ),
    "a drain waits for each": (put_off(9), RequestKind.EVICTION, True, False),
}


@pytest.mark.parametrize(
    ("ruling", "kind", "is_asynchronous", "want"), NOT_FOUND.values(), ids=NOT_FOUND
)
def test_which_refused_pods_are_answered_with_404(
    ruling: GuardDecision, kind: RequestKind, *, is_asynchronous: bool, want: bool
) -> None:
    found = guard.should_answer_not_found(ruling, kind, is_asynchronous=is_asynchronous)
    assert found is want


AT_ONCE = 16
"""Victims that kube-scheduler deletes at a time, however many a preemptor has (`parallelism`)."""
ANSWERS = [
    put_off(None),
    put_off(0),
    put_off(3),
    put_off(600),
    refused(None),
    refused(1),
    refused(600),
]


def calls_a_second(ruling: GuardDecision, *seen: int) -> float:
    """Return how often one preemptor's victims are asked for, of which each replica sees so many.

    A client asks eleven times. The first that is through ends the others' pauses, and all are asked
    for anew at once.
    """
    pauses = [
        guard.retry_after(
            ruling, RequestKind.PREEMPTION, is_asynchronous=True, fellows=fellows, now=NOW
        )
        or 0
        for fellows in seen
    ]
    lasts = 10 * min(pauses)
    return (
        sum(count * (1 + lasts // pause) for count, pause in zip(seen, pauses, strict=True)) / lasts
    )


@pytest.mark.parametrize("ruling", ANSWERS)
def test_the_victims_of_a_preemptor_cause_at_most_one_call_a_second(
    ruling: GuardDecision,
) -> None:
    """For every answer that there is."""
    for fellows in range(1, AT_ONCE + 1):
        assert calls_a_second(ruling, fellows) <= 0.6
    for fellows in range(AT_ONCE, 28):
        assert calls_a_second(ruling, fellows) <= 1


@pytest.mark.parametrize("ruling", ANSWERS)
def test_two_replicas_that_see_half_of_the_victims_get_at_most_one_call_a_second(
    ruling: GuardDecision,
) -> None:
    for fellows in range(2, AT_ONCE + 1):
        assert calls_a_second(ruling, fellows // 2, fellows - fellows // 2) <= 0.6


@pytest.mark.parametrize("ruling", ANSWERS)
def test_two_replicas_that_see_unequal_parts_get_at_most_one_call_a_second(
    ruling: GuardDecision,
) -> None:
    for fellows in range(2, AT_ONCE):
        for others in range(1, fellows):
            assert calls_a_second(ruling, others, fellows - others) <= 1


def test_an_allowed_request_has_no_mark_and_no_warning() -> None:
    assert ALLOWED.is_allowed
    assert (ALLOWED.sets_mark, ALLOWED.warning) == (False, "")


def test_the_mark_of_a_preemption_names_the_preemptor_by_its_uid_only() -> None:
    labels, annotations = marked(guard.mark_changes(RequestKind.PREEMPTION, "uid-of-high", NOW))
    assert labels == {keys.SOFT_EVICTION: "marked"}
    assert annotations[keys.PREEMPTOR] == "uid-of-high"
    assert mark.is_written_by_reprieve(annotations)
    found = mark.parse_annotation(annotations[keys.KOORDINATOR_SOFT_EVICTION], "")
    assert found == mark.Mark(
        initiator="kube-scheduler", reason="preempted by pod uid-of-high", requested_at=NOW
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
BUSY = {
    "no pod": ([], False),
    "a victim that saves elsewhere": ([(a_victim(state=going()), "there")], True),
    "one on the same node is of the same set": ([(a_victim(state=going()), "here")], False),
    "one that goes because its gang does": (
        [(a_victim(state=going(source=Source.GANG)), "there")],
        False,
    ),
    "one that a person asked for since": (
        [(a_victim(state=going(source=Source.LABEL)), "there")],
        False,
    ),
    "one that was only marked": ([(a_victim(is_marked=True), "there")], True),
    "one that was marked anew": (
        [(a_victim(state=going(Phase.CANCELLED), is_marked=True), "there")],
        True,
    ),
    "a mark that was taken back": ([(a_victim(), "there")], False),
    "what only its mark and its state say, which its owner may write": (
        [(a_victim(state=going(), of=""), "there"), (a_victim(is_marked=True, of=""), "there")],
        False,
    ),
    "one that is let finish": ([(a_victim(state=going(Phase.REPRIEVED)), "there")], False),
    "one that is over": ([(a_victim(state=going(Phase.CANCELLED)), "there")], False),
    "one that is being deleted": ([(a_victim(leaves=True, ends=30), "there")], True),
    "for a little longer than its grace period": (
        [(a_victim(leaves=True, ends=-59), "there")],
        True,
    ),
    "not one that its node does not end": ([(a_victim(leaves=True, ends=-60), "there")], False),
    "nor another preemptor's": (
        [(a_victim(leaves=True, ends=30, of="higher"), "there")],
        False,
    ),
    "nor one on the same node": ([(a_victim(leaves=True, ends=30), "here")], False),
    "one that has ended": (
        [(a_victim(state=going(Phase.TERMINATING), leaves=True), "there")],
        False,
    ),
    "another preemptor's": ([(a_victim(state=going(), of="higher"), "there")], False),
}


@pytest.mark.parametrize(("victims", "want"), BUSY.values(), ids=BUSY)
def test_whether_the_first_victim_set_is_unfinished(
    victims: list[tuple[TargetPod, str]], *, want: bool
) -> None:
    assert guard.has_victims_elsewhere("uid-of-high", "here", victims, NOW) is want
