"""Document 001, row by row: checkpoints, their timeouts, and the pods that are not preempted.

Each row is one whole life, by its observations and their times. The times are the document's own,
which are the defaults here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.checkpointing.contract import AnswerState, CheckpointAnswer
from reprieve_policy.config import preemption_class
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.preemption_class import ClassSet
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import pod_views
from reprieve_policy.lifecycle import machine
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase
from reprieve_policy.lifecycle.machine import ObservedVictim
from reprieve_policy.preemption import protection as reprieve
from reprieve_testing.objects.builders import PodBuilder, a_pod, after, an_eviction

MINUTE = 60
SETTINGS = PolicySettings()
EVERY_CLASS = NamespacePolicy(allowed_classes=ClassSet(frozenset(range(11))))
NOTHING = ObservedVictim()
SAVING = ObservedVictim(answer=CheckpointAnswer(state=AnswerState.SAVING))
SAVED = ObservedVictim(answer=CheckpointAnswer(state=AnswerState.SAVED))
DEFERS_FOR_EVER = ObservedVictim(
    answer=CheckpointAnswer(state=AnswerState.DEFER, defer_seconds=10**6)
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A pod that a scheduler asks for, the observations, and its phases with their minutes."""

    pod: PodBuilder
    seen: Sequence[tuple[float, ObservedVictim]] = ((0, NOTHING),)
    namespace: NamespacePolicy = EVERY_CLASS
    walltime: Walltime | None = None
    phases: Sequence[Phase]
    outcome: CheckpointOutcome | None
    is_failed: bool = False
    grace_seconds: int | None = None


AUTO, MANUAL = a_pod().with_checkpoint("auto"), a_pod().with_checkpoint("manual")
NONE = a_pod().with_checkpoint("none")
PROMPT = ((0, NOTHING), (1, SAVED))
HINTED, CHECKPOINTING, EXTENDED, DEFERRED = (
    Phase.HINTED,
    Phase.CHECKPOINTING,
    Phase.EXTENDED,
    Phase.DEFERRED,
)
SETTLED, ENDS = Phase.SETTLED, Phase.TERMINATING

ROWS = {
    "checkpoint auto: a hint, the checkpoint, then its deletion": Row(
        pod=AUTO,
        seen=PROMPT,
        phases=(HINTED, Phase.SAVED, ENDS),
        outcome=CheckpointOutcome.SAVED,
        grace_seconds=30,
    ),
    "checkpoint manual: likewise": Row(
        pod=MANUAL,
        seen=PROMPT,
        phases=(HINTED, Phase.SAVED, ENDS),
        outcome=CheckpointOutcome.SAVED,
        grace_seconds=30,
    ),
    "checkpoint none: SIGTERM at once, a grace period of 30 s": Row(
        pod=NONE, phases=(SETTLED, ENDS), outcome=CheckpointOutcome.SKIPPED, grace_seconds=30
    ),
    "timeout: 10 minutes": Row(
        pod=AUTO,
        seen=((0, NOTHING), (9.99, NOTHING)),
        phases=(HINTED,),
        outcome=None,
        grace_seconds=None,
    ),
    "unresponsive: SIGTERM, 30 s, SIGKILL; failed": Row(
        pod=AUTO,
        seen=((0, NOTHING), (10, NOTHING)),
        phases=(HINTED, SETTLED, ENDS),
        outcome=CheckpointOutcome.UNRESPONSIVE,
        is_failed=True,
        grace_seconds=30,
    ),
    "responds but slow: 50 % more": Row(
        pod=AUTO,
        seen=((0, NOTHING), (1, SAVING), (10, SAVING), (14.9, SAVED)),
        phases=(HINTED, CHECKPOINTING, EXTENDED, Phase.SAVED, ENDS),
        outcome=CheckpointOutcome.SAVED,
        grace_seconds=30,
    ),
    "once": Row(
        pod=AUTO,
        seen=((0, NOTHING), (1, SAVING), (10, SAVING), (15, SAVING)),
        phases=(HINTED, CHECKPOINTING, EXTENDED, SETTLED, ENDS),
        outcome=CheckpointOutcome.TIMED_OUT,
        is_failed=True,
        grace_seconds=30,
    ),
    "requests deferral: up to 5 minutes": Row(
        pod=AUTO,
        seen=((0, NOTHING), (9, DEFERS_FOR_EVER), (13.9, DEFERS_FOR_EVER)),
        phases=(HINTED, DEFERRED),
        outcome=None,
    ),
    "then force": Row(
        pod=AUTO,
        seen=((0, NOTHING), (9, DEFERS_FOR_EVER), (14, DEFERS_FOR_EVER)),
        phases=(HINTED, DEFERRED, SETTLED, ENDS),
        outcome=CheckpointOutcome.TIMED_OUT,
        is_failed=True,
        grace_seconds=30,
    ),
    "not preemptible: no checkpoint and class 7": Row(
        pod=NONE.in_class(7), phases=(Phase.SPARED,), outcome=CheckpointOutcome.SPARED
    ),
    "not preemptible: class 10": Row(
        pod=AUTO.in_class(10), phases=(Phase.SPARED,), outcome=CheckpointOutcome.SPARED
    ),
    "not preemptible: sensitive, always": Row(
        pod=AUTO.in_class(0),
        namespace=NamespacePolicy(workload_type="sensitive"),
        phases=(Phase.SPARED,),
        outcome=CheckpointOutcome.SPARED,
    ),
    "not preemptible: within 5 minutes of its walltime": Row(
        pod=AUTO,
        walltime=Walltime(after(-55 * MINUTE), 60 * MINUTE),
        seen=((0, NOTHING), (4.9, NOTHING)),
        phases=(Phase.REPRIEVED,),
        outcome=None,
    ),
    "6 minutes before it, it is": Row(
        pod=AUTO,
        walltime=Walltime(after(-54 * MINUTE), 60 * MINUTE),
        phases=(HINTED,),
        outcome=None,
    ),
}


def live(row: Row) -> tuple[Eviction, list[Phase]]:
    (view,) = pod_views(row.pod.build())
    known = Facts(settings=SETTINGS, namespace=row.namespace)
    plan = checkpoint_plan.read_leniently(view.annotations, SETTINGS)
    state, phases = an_eviction().asked_by_scheduler().build(), []
    for minute, seen in row.seen:
        now = after(minute * MINUTE)
        protection = reprieve.decide_protection(view, known, row.walltime, now)
        asked = ObservedVictim(answer=seen.answer, protection=protection)
        decision = machine.decide(state, asked, plan, SETTINGS, now)
        state = decision.eviction
        phases.extend(move.to for move in decision.transitions)
    return state, phases


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_each_row_of_document_001(row: Row) -> None:
    state, phases = live(row)
    assert phases == list(row.phases)
    assert state.outcome is row.outcome
    assert (state.outcome is not None and state.outcome.is_failure) is row.is_failed
    assert state.grace_seconds == row.grace_seconds


CLASSES = {
    "class 0 by any higher": (0, range(1, 11)),
    "5 by 6 and more": (5, range(6, 11)),
    "9 by 10": (9, (10,)),
    "10 by no class": (10, ()),
}


@pytest.mark.parametrize(("victim", "preemptors"), CLASSES.values(), ids=CLASSES)
def test_preemption_only_moves_down(victim: int, preemptors: Sequence[int]) -> None:
    assert [one for one in range(11) if preemption_class.may_preempt(one, victim)] == list(
        preemptors
    )
