"""The metrics and Events of a victim: once each, with labels of few values."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import REASONS, EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import NamespacePolicies
from reprieve_operator.history import History, NamespaceTotals
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.victims.reporter import Reporter
from reprieve_policy.checkpointing.checkpoint_plan import AnnotationHint, CheckpointPlan, Strategy
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.values.timestamp import render
from reprieve_policy.lifecycle import machine
from reprieve_policy.lifecycle.eviction import (
    Checkpoint,
    CheckpointOutcome,
    Device,
    Eviction,
    Phase,
    PreemptionCause,
    ProtectionReason,
    RecordedCost,
)
from reprieve_policy.lifecycle.machine import LifecycleDecision, ObservedVictim
from reprieve_policy.lifecycle.transitions import Transition
from reprieve_testing.objects.builders import NOW, after, an_eviction

POD = msgspec.convert({"metadata": {"name": "p", "namespace": "team", "uid": "u"}}, VictimPod)
ENDED = replace(
    an_eviction().build(),
    phase=Phase.TERMINATING,
    hinted_at=NOW,
    grace_seconds=30,
    outcome=CheckpointOutcome.SAVED,
)
HINTED = an_eviction().hinted(deadline=after(600)).build()
SAVING = an_eviction().answered(Phase.CHECKPOINTING, deadline=after(600)).build()
PLAN = CheckpointPlan(
    strategy=Strategy.AUTO, hint=AnnotationHint(), timeout_seconds=600, max_deferral_seconds=300
)
REFUSED = replace(
    an_eviction().asked_by_scheduler().build(),
    refused_on=ProtectionReason.NEAR_COMPLETION,
    deadline=after(60),
)


@dataclass
class RecordedReports:
    """The metrics, and the Events that are recorded."""

    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)
    policy: NamespacePolicy = field(default_factory=NamespacePolicy)
    told: list[tuple[str, bool]] = field(default_factory=list)
    told_owner: list[tuple[ObjectReference, str, str]] = field(default_factory=list)

    def event(self, about: ObjectReference, reason: str, note: str, *, once: bool = False) -> None:
        assert note
        assert reason in REASONS
        if about.kind != "Pod":
            self.told_owner.append((about, reason, note))
            return
        self.told.append((reason, once))

    def get(self, name: str | None) -> NamespacePolicy:
        assert name == "team"
        return self.policy

    def reporter(self) -> Reporter:
        return Reporter(cast("EventRecorder", self), self.metrics, cast("NamespacePolicies", self))

    def value(self, name: str, **labels: str) -> Any:
        return self.metrics.registry.get_sample_value(name, labels)

    def ends(self, **fields: Any) -> "RecordedReports":
        self.reporter().report_deleted(POD, replace(ENDED, **fields))
        return self

    def refuses(self, phase: Phase) -> "RecordedReports":
        state = replace(REFUSED, phase=phase)
        self.reporter().report_transitions(POD, LifecycleDecision(state, (Transition(phase),)))
        return self


@pytest.mark.parametrize("cause", PreemptionCause)
def test_a_deletion_is_counted_by_namespace_and_cause(cause: PreemptionCause) -> None:
    assert (
        RecordedReports()
        .ends(cause=cause)
        .value("reprieve_preemptions_total", namespace="team", reason=cause)
        == 1
    )


def test_the_history_counts_a_deletion_with_the_work_that_it_kept() -> None:
    reports = RecordedReports()
    history = History(Clock(now=lambda: NOW))
    reporter = Reporter(
        cast("EventRecorder", reports), reports.metrics, cast("NamespacePolicies", reports), history
    )
    pod = replace(POD, status=replace(POD.status, startTime=render(after(-7200))))
    reporter.report_transitions(pod, LifecycleDecision(HINTED))
    saved = replace(ENDED, checkpoint=Checkpoint(saved_at=NOW))
    reporter.report_deleted(pod, saved)
    assert history.totals() == [NamespaceTotals("team", victims=1, saved=1, kept_hours=2.0)]


def test_a_state_of_an_earlier_version_has_no_cause_and_no_cost() -> None:
    recorded = RecordedReports().ends()
    assert recorded.value("reprieve_preemptions_total", namespace="team", reason="request") == 1
    assert recorded.value("reprieve_preemption_cost_count", workload_type="unset") is None


OWNED = msgspec.convert(
    {
        "metadata": {
            "name": "p",
            "namespace": "team",
            "uid": "u",
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "Job",
                    "name": "j",
                    "uid": "uj",
                    "controller": True,
                }
            ],
        }
    },
    VictimPod,
)
JOB = ObjectReference("Job", "team", "j", "uj", "batch/v1")
NOT_WORTH_IT = "a save would take as long as the work that it keeps, or longer"
NOT_SENT = (
    "the checkpoint hint was not sent, because calls to other workloads took all the time that "
    "there was; the workload did nothing wrong"
)
NO_ANSWER = "the workload did not answer the checkpoint hint in time"
SAVED_AT_7 = Checkpoint(saved_at=after(0), step=7, path="/data/7")
ENDS_OF_OWNER: dict[str, tuple[dict[str, Any], str, str]] = {
    "a preemption after a save": (
        {"cause": PreemptionCause.PRIORITY, "checkpoint": SAVED_AT_7},
        "PodPreempted",
        'pod p was preempted; its workload saved a checkpoint at step 7 in "/data/7"',
    ),
    "a request, at a cost": (
        {
            "cause": PreemptionCause.REQUEST,
            "cost": RecordedCost(hours=12.5, device=Device.GPU),
        },
        "PodEvicted",
        "pod p was evicted; its workload saved a checkpoint; that costs about 12.50 GPU-hours",
    ),
    "a state without a cause": (
        {"outcome": CheckpointOutcome.SKIPPED},
        "PodEvicted",
        "pod p was evicted; no checkpoint was asked for",
    ),
    "a save that is not worth its time": (
        {"cause": PreemptionCause.RECLAIM, "outcome": CheckpointOutcome.LOSES_LESS},
        "PodPreempted",
        f"pod p was preempted; it was not asked to save: {NOT_WORTH_IT}",
    ),
    "a save on SIGTERM": (
        {"cause": PreemptionCause.PRIORITY, "outcome": CheckpointOutcome.ON_SIGTERM},
        "PodPreempted",
        "pod p was preempted; its workload saves on SIGTERM; whether it did is not known",
    ),
    "no answer": (
        {"cause": PreemptionCause.PRIORITY, "outcome": CheckpointOutcome.UNRESPONSIVE},
        "PodEndedWithoutCheckpoint",
        f"pod p was preempted; {NO_ANSWER}: work since the last checkpoint may be lost",
    ),
    "no call": (
        {
            "cause": PreemptionCause.PRIORITY,
            "outcome": CheckpointOutcome.UNRESPONSIVE,
            "hinted_at": None,
        },
        "PodEndedWithoutCheckpoint",
        f"pod p was preempted; {NOT_SENT}: work since the last checkpoint may be lost",
    ),
    "an outcome that is not known": (
        {"outcome": None},
        "PodEvicted",
        "pod p was evicted; its checkpoint ended as unknown",
    ),
}


@pytest.mark.parametrize("case", ENDS_OF_OWNER)
@pytest.mark.parametrize("is_suspended", [False, True])
def test_the_owner_is_told_once_what_became_of_its_pod(case: str, *, is_suspended: bool) -> None:
    fields, reason, note = ENDS_OF_OWNER[case]
    recorded = RecordedReports()
    reporter = recorded.reporter()
    report = reporter.report_suspended if is_suspended else reporter.report_deleted
    report(OWNED, replace(ENDED, **fields))
    assert recorded.told_owner == [(JOB, reason, note)]
    assert recorded.told == [("SoftEvictionDeleting", False)]


DELETED_BY_OTHERS: dict[str, tuple[Eviction, Transition, str]] = {
    "before its checkpoint was acknowledged": (
        replace(ENDED, outcome=CheckpointOutcome.OVERTAKEN),
        Transition(Phase.TERMINATING, CheckpointOutcome.OVERTAKEN),
        "pod p was preempted; another client deleted it before its checkpoint was acknowledged",
    ),
    "after it had nothing to save": (
        replace(ENDED, outcome=CheckpointOutcome.SKIPPED),
        Transition(Phase.TERMINATING),
        "pod p was preempted; no checkpoint was asked for",
    ),
    "and the watch shows only that it is gone": (
        replace(ENDED, phase=Phase.GONE, outcome=CheckpointOutcome.OVERTAKEN),
        Transition(Phase.GONE, CheckpointOutcome.OVERTAKEN),
        "pod p was preempted; another client deleted it before its checkpoint was acknowledged",
    ),
}


@pytest.mark.parametrize("case", DELETED_BY_OTHERS)
def test_the_owner_is_told_of_a_pod_that_another_client_deleted(case: str) -> None:
    state, move, note = DELETED_BY_OTHERS[case]
    state = replace(state, cause=PreemptionCause.PRIORITY)
    recorded = RecordedReports()
    metadata = replace(OWNED.metadata, deletionTimestamp="2026-01-01T00:00:00Z")
    deleted = replace(OWNED, metadata=metadata)
    recorded.reporter().report_transitions(deleted, LifecycleDecision(state, (move,)))
    assert recorded.told_owner == [(JOB, "PodPreempted", note)]


@pytest.mark.parametrize("move", [Transition(Phase.TERMINATING), Transition(Phase.GONE)])
def test_the_owner_is_told_of_a_delete_of_the_operator_only_when_it_is_sent(
    move: Transition,
) -> None:
    recorded = RecordedReports()
    state = replace(ENDED, phase=move.to, outcome=CheckpointOutcome.SKIPPED)
    recorded.reporter().report_transitions(OWNED, LifecycleDecision(state, (move,)))
    assert recorded.told_owner == []


def test_a_bare_pod_has_no_owner_to_tell() -> None:
    assert RecordedReports().ends().told_owner == []


FAILURES = {
    CheckpointOutcome.SAVED: (None, 0),
    CheckpointOutcome.SKIPPED: (None, 0),
    CheckpointOutcome.LOSES_LESS: (None, 0),
    CheckpointOutcome.REFUSED: (1, 0),
    CheckpointOutcome.TIMED_OUT: (1, 0),
    CheckpointOutcome.UNRESPONSIVE: (1, 1),
}


@pytest.mark.parametrize(
    ("outcome", "want"), FAILURES.items(), ids=[outcome.value for outcome in FAILURES]
)
def test_only_lost_work_counts_as_a_failure_and_only_no_answer_as_an_escalation(
    outcome: CheckpointOutcome, want: tuple[int | None, int]
) -> None:
    recorded = RecordedReports().ends(outcome=outcome)
    assert recorded.value("reprieve_preemption_outcomes_total", outcome=outcome) == 1
    failed = recorded.value(
        "reprieve_preemption_failed_checkpoint_total", namespace="team", reason=outcome
    )
    assert (failed, recorded.value("reprieve_preemption_escalations_total")) == want


@pytest.mark.parametrize(
    ("workload_type", "shown"), [("ml-training", "ml-training"), (None, "unset")]
)
def test_a_cost_is_observed_under_the_namespaces_workload_type(
    workload_type: str | None, shown: str
) -> None:
    recorded = RecordedReports(policy=NamespacePolicy(workload_type=workload_type))
    recorded.ends(cost=RecordedCost(hours=12.5, device=Device.GPU))
    assert recorded.value("reprieve_preemption_cost_sum", workload_type=shown) == 12.5
    assert recorded.told == [("SoftEvictionDeleting", False)]


@pytest.mark.parametrize(("phase", "once"), [(Phase.REPRIEVED, False), (Phase.SPARED, True)])
def test_each_refusal_is_counted_and_a_permanent_one_has_one_event(
    phase: Phase, *, once: bool
) -> None:
    recorded = RecordedReports().refuses(phase).refuses(phase)
    assert recorded.value("reprieve_preemption_refusals_total", reason="near-completion") == 2
    assert recorded.told == [("PreemptionRefused", once)] * 2


def test_an_eviction_that_continues_is_not_counted_as_a_refusal() -> None:
    recorded = RecordedReports()
    hinted: Eviction = replace(REFUSED, phase=Phase.HINTED, attempt=1)
    recorded.reporter().report_transitions(
        POD, LifecycleDecision(hinted, (Transition(Phase.REQUESTED), Transition(Phase.HINTED)))
    )
    assert recorded.value("reprieve_preemption_refusals_total", reason="near-completion") is None


def answering(state: AnswerState, **fields: Any) -> ObservedVictim:
    return ObservedVictim(
        answer=CheckpointAnswer(state=state, eviction_id=HINTED.eviction_id, **fields)
    )


@dataclass(frozen=True)
class Counts:
    """The counters of transitions, and the histogram of checkpoints."""

    extensions: int = 0
    deferrals: int = 0
    cancellations: int = 0
    requeued_by_owner: int | None = None
    saved: int = 0
    saved_within: float = 0.0
    """The sum of all seconds."""


CEILING = after(PolicySettings().ceiling_seconds)
STEPS = {
    "a hint that is answered": (HINTED, answering(AnswerState.SAVING), after(1), Counts()),
    "a deadline that is put off, once": (
        SAVING,
        ObservedVictim(),
        after(600),
        Counts(extensions=1),
    ),
    "no extension at the ceiling": (
        replace(SAVING, deadline=CEILING),
        ObservedVictim(),
        CEILING,
        Counts(),
    ),
    "a second extension is not counted": (
        replace(SAVING, phase=Phase.EXTENDED),
        ObservedVictim(),
        after(600),
        Counts(),
    ),
    "a deferral": (
        HINTED,
        answering(AnswerState.DEFER, defer_seconds=60),
        after(1),
        Counts(deferrals=1),
    ),
    "a hint that is sent again in an extension": (
        replace(SAVING, phase=Phase.EXTENDED, answered_at=after(5)),
        ObservedVictim(request_forgotten=True),
        after(1),
        Counts(),
    ),
    "a removed mark": (
        HINTED,
        ObservedVictim(is_marked=False),
        after(1),
        Counts(cancellations=1),
    ),
    "a mark that is removed after the deletion": (
        ENDED,
        ObservedVictim(is_marked=False, is_being_deleted=True),
        after(1),
        Counts(),
    ),
    "a checkpoint in the first answer": (
        HINTED,
        answering(AnswerState.SAVED),
        after(42.5),
        Counts(saved=1, saved_within=42.5),
    ),
    "a checkpoint in a later answer, timed from the hint": (
        replace(SAVING, answered_at=after(5)),
        answering(AnswerState.SAVED),
        after(590),
        Counts(saved=1, saved_within=590.0),
    ),
    "a checkpoint that cannot be made": (HINTED, answering(AnswerState.CANNOT), after(1), Counts()),
    "a victim that is gone, and was the last": (
        ENDED,
        ObservedVictim(is_gone=True),
        after(31),
        Counts(),
    ),
    "a victim that its owner replaces": (
        ENDED,
        ObservedVictim(is_gone=True, is_replaced=True),
        after(31),
        Counts(requeued_by_owner=1),
    ),
}


@pytest.mark.parametrize(("state", "seen", "now", "want"), STEPS.values(), ids=STEPS)
def test_each_transition_is_counted_once_in_its_own_metric(
    state: Eviction, seen: ObservedVictim, now: datetime, want: Counts
) -> None:
    recorded = RecordedReports()
    recorded.reporter().report_transitions(
        POD, machine.decide(state, seen, PLAN, PolicySettings(), now)
    )
    assert want == Counts(
        extensions=recorded.value("reprieve_preemption_extensions_total"),
        deferrals=recorded.value("reprieve_preemption_deferrals_total"),
        cancellations=recorded.value("reprieve_preemption_cancellations_total"),
        requeued_by_owner=recorded.value(
            "reprieve_preemption_victim_requeue_total", namespace="team", by="owner"
        ),
        saved=recorded.value("reprieve_preemption_checkpoint_duration_seconds_count"),
        saved_within=recorded.value("reprieve_preemption_checkpoint_duration_seconds_sum"),
    )
