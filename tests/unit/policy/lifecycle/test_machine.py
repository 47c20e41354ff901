"""A victim's life as stories: which observations, at which times, lead to which phases."""

from dataclasses import dataclass, field, replace
from datetime import datetime

import pytest

from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.checkpointing.checkpoint_plan import CheckpointPlan
from reprieve_policy.checkpointing.contract import (
    ACCEPTED_WITHOUT_DOCUMENT,
    AnswerState,
    CheckpointAnswer,
)
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle import machine
from reprieve_policy.lifecycle.eviction import (
    AWAITING_WORKLOAD,
    WITH_DEADLINE,
    Checkpoint,
    CheckpointOutcome,
    Eviction,
    Phase,
    PreemptionCause,
    Protection,
    ProtectionReason,
    Source,
)
from reprieve_policy.lifecycle.machine import ObservedVictim
from reprieve_policy.lifecycle.mark import Mark
from reprieve_policy.lifecycle.transitions import TABLE, TERMINAL, Observation
from reprieve_testing.objects.builders import NOW, after, an_eviction

SETTINGS = PolicySettings()  # 10 min, 50 %, 5 min of deferral, 30 s of grace, a ceiling of 30 min
NOTHING = ObservedVictim()
UNMARKED = ObservedVictim(is_marked=False)
DELETED = ObservedVictim(is_being_deleted=True)
ENDED = ObservedVictim(containers_ended=True)
GONE = ObservedVictim(is_gone=True)
HELD = ObservedVictim(eviction_blocked=True)
REPLACED = ObservedVictim(is_gone=True, is_replaced=True)
LOST = ObservedVictim(hint_lost=True)
FORGOTTEN = ObservedVictim(request_forgotten=True)
PROTECTED = ObservedVictim(protection=Protection(ProtectionReason.NON_PREEMPTIBLE, None))
ALMOST_COMPLETE = ObservedVictim(
    protection=Protection(ProtectionReason.NEAR_COMPLETION, after(300))
)


def plan_of(**annotations: str) -> CheckpointPlan:
    known = {
        "checkpoint": keys.CHECKPOINT,
        "hint": keys.CHECKPOINT_HINT,
        "estimate": keys.ESTIMATED_CHECKPOINT_TIME,
        "timeout": keys.CHECKPOINT_TIMEOUT,
        "max_deferral": keys.MAX_DEFERRAL,
    }
    plan = checkpoint_plan.parse(
        {known[name]: text for name, text in annotations.items()}, SETTINGS
    )
    assert isinstance(plan, CheckpointPlan)
    return plan


AUTO = plan_of(checkpoint="auto")
NONE = plan_of(checkpoint="none")
ON_SIGTERM = plan_of(hint="sigterm:", estimate="5m")


def answers(state: AnswerState, *, may_go: bool = True, **fields: object) -> ObservedVictim:
    return ObservedVictim(answer=CheckpointAnswer(state=state, **fields), may_terminate=may_go)  # type: ignore[arg-type]


SAVING = answers(AnswerState.SAVING)
SAVED = answers(AnswerState.SAVED, step=4200, path="/ckpt/4200")
CANNOT = answers(AnswerState.CANNOT)
IDLE = answers(AnswerState.IDLE)
OTHERS_SAVE = ObservedVictim(may_terminate=False)
SET_SAVES = ObservedVictim(is_set_ready=False)
LEFT = ObservedVictim(has_preemptor_left=True)
SET_GROWS = ObservedVictim(may_set_grow=True)
CLEANERS = ObservedVictim(has_cleaners=True)
LOSES_LESS = ObservedVictim(loses_less_at_once=True)


def defers(seconds: int | None) -> ObservedVictim:
    return answers(AnswerState.DEFER, defer_seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Observations by second; the phases that the victim enters; how its checkpoint ended."""

    seen: tuple[tuple[float, ObservedVictim], ...]
    phases: tuple[Phase, ...]
    outcome: CheckpointOutcome | None = None
    plan: CheckpointPlan = AUTO
    settings: PolicySettings = field(default_factory=PolicySettings)
    deadline: datetime | None = None
    source: Source = Source.LABEL
    must_evict: bool = False
    cleaners_until: datetime | None = None
    """Until when it waits for its cleaners."""
    gives_up_cleaners: bool = False
    """The last observation ends the wait for cleaners that are not done."""


REQUESTED_AND_HINTED = (0, NOTHING)
HINTED, CHECKPOINTING, TERMINATING = Phase.HINTED, Phase.CHECKPOINTING, Phase.TERMINATING
EXTENDED, DEFERRED, CANCELLED = Phase.EXTENDED, Phase.DEFERRED, Phase.CANCELLED
SPARED, REPRIEVED, REQUESTED, SETTLED = (
    Phase.SPARED,
    Phase.REPRIEVED,
    Phase.REQUESTED,
    Phase.SETTLED,
)
SCHEDULER = Source.KOORDINATOR

SCENARIOS = {
    "a victim that wants no checkpoint waits for its cleaners before SIGTERM": Scenario(
        plan=NONE,
        seen=((0, CLEANERS), (599, CLEANERS)),
        phases=(SETTLED,),
        outcome=CheckpointOutcome.SKIPPED,
        deadline=after(1800),
        cleaners_until=after(600),
    ),
    "a victim is deleted once its cleaners are done": Scenario(
        plan=NONE,
        seen=((0, CLEANERS), (20, NOTHING)),
        phases=(SETTLED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.SKIPPED,
    ),
    "cleaners are waited for within the checkpoint's time": Scenario(
        plan=plan_of(checkpoint="none", timeout="90s"),
        seen=((0, CLEANERS), (89, CLEANERS), (90, CLEANERS)),
        phases=(SETTLED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.SKIPPED,
        gives_up_cleaners=True,
    ),
    "the time of cleaners counts from the notice": Scenario(
        seen=((0, CLEANERS), (60, replace(SAVED, has_cleaners=True)), (599, CLEANERS)),
        phases=(HINTED, Phase.SAVED),
        outcome=CheckpointOutcome.SAVED,
        deadline=after(1800),
        cleaners_until=after(600),
    ),
    "a saved victim is deleted once its cleaners are done": Scenario(
        seen=((0, CLEANERS), (60, replace(SAVED, has_cleaners=True)), (70, NOTHING)),
        phases=(HINTED, Phase.SAVED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
    ),
    "cleaners that are done before the workload are not waited for": Scenario(
        seen=((0, CLEANERS), (60, SAVED)),
        phases=(HINTED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a workload that used up its time leaves none to its cleaners": Scenario(
        seen=((0, CLEANERS), (600, CLEANERS)),
        phases=(HINTED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.UNRESPONSIVE,
        gives_up_cleaners=True,
    ),
    "a workload that saved at the end of its time leaves none to its cleaners": Scenario(
        seen=((0, CLEANERS), (600, replace(SAVED, has_cleaners=True))),
        phases=(HINTED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
        gives_up_cleaners=True,
    ),
    "a workload that used up its time and whose cleaners are done": Scenario(
        seen=((0, CLEANERS), (600, NOTHING)),
        phases=(HINTED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.UNRESPONSIVE,
    ),
    "a victim whose cleaners are done waits for its gang": Scenario(
        plan=NONE,
        seen=((0, replace(CLEANERS, may_terminate=False)), (20, OTHERS_SAVE)),
        phases=(SETTLED, SETTLED),
        outcome=CheckpointOutcome.SKIPPED,
        deadline=after(1800),
    ),
    "the ceiling bounds the wait for cleaners": Scenario(
        plan=NONE,
        settings=PolicySettings(ceiling_seconds=120),
        seen=((0, CLEANERS), (119, CLEANERS)),
        phases=(SETTLED,),
        outcome=CheckpointOutcome.SKIPPED,
        deadline=after(120),
        cleaners_until=after(120),
    ),
    "a removed mark cancels while cleaners are waited for": Scenario(
        plan=NONE,
        seen=((0, CLEANERS), (20, replace(UNMARKED, has_cleaners=True))),
        phases=(SETTLED, CANCELLED),
        outcome=CheckpointOutcome.CANCELLED,
    ),
    "a victim is notified, saves, is deleted, and is replaced": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (5, SAVING),
            (60, SAVED),
            (61, NOTHING),
            (90, GONE),
            (91, REPLACED),
        ),
        phases=(HINTED, CHECKPOINTING, Phase.SAVED, TERMINATING, Phase.GONE, Phase.REQUEUED),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a victim that saves at once need not answer before": Scenario(
        seen=(REQUESTED_AND_HINTED, (1, SAVED)),
        phases=(HINTED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a victim that has accepted has until its deadline": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (5, ObservedVictim(answer=ACCEPTED_WITHOUT_DOCUMENT)),
            (599, NOTHING),
        ),
        phases=(HINTED, CHECKPOINTING),
        deadline=after(600),
    ),
    "a victim without an answer is deleted at its deadline, as failed": Scenario(
        seen=(REQUESTED_AND_HINTED, (599, NOTHING), (600, NOTHING)),
        phases=(HINTED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.UNRESPONSIVE,
    ),
    "a victim that is still saving at its deadline is extended by 50 %": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (600, SAVING), (899, SAVING)),
        phases=(HINTED, CHECKPOINTING, EXTENDED),
        deadline=after(900),
    ),
    "a victim is extended only once": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (600, SAVING), (900, SAVING)),
        phases=(HINTED, CHECKPOINTING, EXTENDED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.TIMED_OUT,
    ),
    "an extended victim may still save": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (600, NOTHING), (890, SAVED)),
        phases=(HINTED, CHECKPOINTING, EXTENDED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a victim whose first answer comes at its deadline is extended": Scenario(
        seen=(REQUESTED_AND_HINTED, (600, SAVING)),
        phases=(HINTED, CHECKPOINTING, EXTENDED),
        deadline=after(900),
    ),
    "without an extension, a victim is deleted at its deadline": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (600, SAVING)),
        phases=(HINTED, CHECKPOINTING, EXTENDED, SETTLED, TERMINATING),
        settings=PolicySettings(extension_percent=0),
        outcome=CheckpointOutcome.TIMED_OUT,
    ),
    "an operator that was down beyond the extension deletes the victim at once": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (5000, NOTHING)),
        phases=(HINTED, CHECKPOINTING, EXTENDED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.TIMED_OUT,
    ),
    "a checkpoint saved by then counts, however late it is observed": Scenario(
        seen=(REQUESTED_AND_HINTED, (5000, SAVED)),
        phases=(HINTED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a deferral never shortens the time of a victim": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, defers(60))),
        phases=(HINTED, DEFERRED),
        deadline=after(600),
    ),
    "a deferral near the deadline moves it": Scenario(
        seen=(REQUESTED_AND_HINTED, (590, defers(60))),
        phases=(HINTED, DEFERRED),
        deadline=after(650),
    ),
    "a deferral is capped": Scenario(
        seen=(REQUESTED_AND_HINTED, (590, defers(10**6))),
        phases=(HINTED, DEFERRED),
        deadline=after(890),
    ),
    "a deferral without a time is the longest possible": Scenario(
        seen=(REQUESTED_AND_HINTED, (590, defers(None))),
        phases=(HINTED, DEFERRED),
        deadline=after(890),
    ),
    "a deferred victim is deleted at the end of its deferral": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (5, SAVING),
            (590, defers(60)),
            (640, defers(60)),
            (650, defers(60)),
        ),
        phases=(HINTED, CHECKPOINTING, DEFERRED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.TIMED_OUT,
    ),
    "a deferred victim may save": Scenario(
        seen=(REQUESTED_AND_HINTED, (590, defers(60)), (640, SAVED)),
        phases=(HINTED, DEFERRED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
    ),
    "an extended victim is not deferred too": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (5, SAVING),
            (600, NOTHING),
            (890, defers(60)),
            (900, defers(60)),
        ),
        phases=(HINTED, CHECKPOINTING, EXTENDED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.TIMED_OUT,
    ),
    "a victim that cannot save is deleted at once": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, CANNOT)),
        phases=(HINTED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.REFUSED,
    ),
    "a victim without a checkpoint is deleted at once": Scenario(
        seen=((0, NOTHING),),
        phases=(
            SETTLED,
            TERMINATING,
        ),
        plan=NONE,
        outcome=CheckpointOutcome.SKIPPED,
    ),
    "a mark removed before the hint cancels": Scenario(
        seen=((0, UNMARKED),), phases=(CANCELLED,), outcome=CheckpointOutcome.CANCELLED
    ),
    "a mark removed while the victim saves cancels": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (6, UNMARKED)),
        phases=(HINTED, CHECKPOINTING, CANCELLED),
        outcome=CheckpointOutcome.CANCELLED,
    ),
    "a mark removed at the deadline still cancels": Scenario(
        seen=(REQUESTED_AND_HINTED, (600, UNMARKED)),
        phases=(HINTED, CANCELLED),
        outcome=CheckpointOutcome.CANCELLED,
    ),
    "a mark removed while others save cancels": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (5, replace(SAVED, may_terminate=False)),
            (6, replace(UNMARKED, may_terminate=False)),
        ),
        phases=(HINTED, Phase.SAVED, CANCELLED),
        outcome=CheckpointOutcome.CANCELLED,
    ),
    "a mark removed after the DELETE has no effect": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVED), (6, replace(UNMARKED, is_being_deleted=True))),
        phases=(HINTED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a mark removed while a budget delays the eviction cancels": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVED), (6, UNMARKED)),
        phases=(HINTED, Phase.SAVED, TERMINATING, Phase.CANCELLED),
        outcome=CheckpointOutcome.CANCELLED,
    ),
    "a requested eviction is cancelled if a budget delays it at the ceiling": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVED), (6, HELD), (1799, HELD), (1800, HELD)),
        phases=(HINTED, Phase.SAVED, TERMINATING, CANCELLED),
        outcome=CheckpointOutcome.HELD_BY_BUDGET,
        must_evict=True,
    ),
    "an eviction that was not tried yet is not cancelled at the ceiling": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (5, replace(SAVED, may_terminate=False)),
            (1800, NOTHING),
            (1801, NOTHING),
        ),
        phases=(HINTED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
        must_evict=True,
    ),
    "a victim that is being deleted is not cancelled at the ceiling": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVED), (1800, replace(HELD, is_being_deleted=True))),
        phases=(HINTED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
        must_evict=True,
    ),
    "a victim that may be deleted at the ceiling is not cancelled": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVED), (1800, HELD)),
        phases=(HINTED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a victim that ends by itself while a budget delays its eviction keeps its outcome": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVED), (6, ENDED)),
        phases=(HINTED, Phase.SAVED, TERMINATING, Phase.FINISHED),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a victim that another client deletes is overtaken": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (6, DELETED), (9, GONE)),
        phases=(HINTED, CHECKPOINTING, TERMINATING, Phase.GONE),
        outcome=CheckpointOutcome.OVERTAKEN,
    ),
    "a victim that another client deletes after it has saved has saved": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (5, replace(SAVED, may_terminate=False)),
            (6, replace(DELETED, may_terminate=False)),
        ),
        phases=(HINTED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a victim that no longer exists at the first observation is overtaken": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, GONE)),
        phases=(HINTED, Phase.GONE),
        outcome=CheckpointOutcome.OVERTAKEN,
    ),
    "a victim that no longer exists after it has saved has saved": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, replace(SAVED, may_terminate=False)), (6, GONE)),
        phases=(HINTED, Phase.SAVED, Phase.GONE),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a victim whose containers ended by themselves is finished": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, ENDED)),
        phases=(HINTED, Phase.FINISHED),
        outcome=CheckpointOutcome.FINISHED,
    ),
    "a victim whose containers ended after it has saved has saved": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, replace(SAVED, may_terminate=False)), (6, ENDED)),
        phases=(HINTED, Phase.SAVED, Phase.FINISHED),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a victim that has saved waits for others": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (5, replace(SAVED, may_terminate=False)),
            (1799, ObservedVictim(may_terminate=False)),
        ),
        phases=(HINTED, Phase.SAVED),
        outcome=CheckpointOutcome.SAVED,
        deadline=after(1800),
    ),
    "a victim that has saved waits for others until the ceiling": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (5, replace(SAVED, may_terminate=False)),
            (1800, ObservedVictim(may_terminate=False)),
        ),
        phases=(HINTED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a victim that never answered waits for others until the ceiling": Scenario(
        seen=(REQUESTED_AND_HINTED, (600, OTHERS_SAVE), (1799, OTHERS_SAVE)),
        phases=(HINTED, SETTLED),
        outcome=CheckpointOutcome.UNRESPONSIVE,
        deadline=after(1800),
    ),
    "a victim that never answered is deleted with the others": Scenario(
        seen=(REQUESTED_AND_HINTED, (600, OTHERS_SAVE), (601, NOTHING)),
        phases=(HINTED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.UNRESPONSIVE,
    ),
    "a victim that never answered is deleted at the ceiling": Scenario(
        seen=(REQUESTED_AND_HINTED, (600, OTHERS_SAVE), (1800, OTHERS_SAVE)),
        phases=(HINTED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.UNRESPONSIVE,
    ),
    "a victim that cannot save waits for others": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, replace(CANNOT, may_terminate=False))),
        phases=(HINTED, SETTLED),
        outcome=CheckpointOutcome.REFUSED,
        deadline=after(1800),
    ),
    "a slow victim waits for others": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (600, OTHERS_SAVE), (900, OTHERS_SAVE)),
        phases=(HINTED, CHECKPOINTING, EXTENDED, SETTLED),
        outcome=CheckpointOutcome.TIMED_OUT,
        deadline=after(1800),
    ),
    "a victim without a checkpoint waits for others": Scenario(
        seen=((0, OTHERS_SAVE), (60, OTHERS_SAVE)),
        phases=(SETTLED,),
        plan=NONE,
        outcome=CheckpointOutcome.SKIPPED,
        deadline=after(1800),
    ),
    "a victim that has saved waits for the other victims of its preemptor": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, replace(SAVED, is_set_ready=False)), (60, SET_SAVES)),
        phases=(HINTED, Phase.SAVED),
        outcome=CheckpointOutcome.SAVED,
        deadline=after(1800),
    ),
    "a victim that waits for its set is ended when the set is ready": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, replace(SAVED, is_set_ready=False)), (60, NOTHING)),
        phases=(HINTED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a victim that waits for its set is ended at its own ceiling": Scenario(
        seen=((0, SET_SAVES), (1799, SET_SAVES), (1800, SET_SAVES)),
        phases=(SETTLED, TERMINATING),
        plan=NONE,
        outcome=CheckpointOutcome.SKIPPED,
    ),
    "a victim without a checkpoint waits while its set may grow": Scenario(
        seen=((0, SET_GROWS), (1, SET_SAVES), (60, NOTHING)),
        phases=(SETTLED, TERMINATING),
        plan=NONE,
        outcome=CheckpointOutcome.SKIPPED,
    ),
    "a victim that has saved does not wait for its set to grow": Scenario(
        seen=(REQUESTED_AND_HINTED, (0.5, replace(SAVED, may_set_grow=True))),
        phases=(HINTED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a victim that saves on SIGTERM does not wait for its set": Scenario(
        seen=((0, SET_SAVES),),
        phases=(SETTLED, TERMINATING),
        plan=ON_SIGTERM,
        outcome=CheckpointOutcome.ON_SIGTERM,
    ),
    "a victim that saves on SIGTERM waits for its gang": Scenario(
        seen=((0, OTHERS_SAVE), (60, OTHERS_SAVE)),
        phases=(SETTLED,),
        plan=ON_SIGTERM,
        outcome=CheckpointOutcome.ON_SIGTERM,
        deadline=after(1500),
    ),
    "a victim that saves on SIGTERM keeps time for the save before the ceiling": Scenario(
        seen=((0, OTHERS_SAVE), (1499, OTHERS_SAVE), (1500, OTHERS_SAVE)),
        phases=(SETTLED, TERMINATING),
        plan=ON_SIGTERM,
        outcome=CheckpointOutcome.ON_SIGTERM,
    ),
    "a scheduler's victim that loses less by ending at once is not asked": Scenario(
        seen=((0, LOSES_LESS),),
        phases=(SETTLED, TERMINATING),
        outcome=CheckpointOutcome.LOSES_LESS,
        source=SCHEDULER,
    ),
    "a victim that a person asked for is asked to save, even if it loses more": Scenario(
        seen=((0, LOSES_LESS),), phases=(HINTED,), deadline=after(600)
    ),
    "a protected victim is spared, even if it loses less by ending at once": Scenario(
        seen=((0, replace(PROTECTED, loses_less_at_once=True)),),
        phases=(SPARED,),
        outcome=CheckpointOutcome.SPARED,
        source=SCHEDULER,
    ),
    "a reprieved victim that a person asks for is asked to save, even if it loses more": Scenario(
        seen=(
            (0, ALMOST_COMPLETE),
            (60, replace(LOSES_LESS, is_requested_again=True)),
        ),
        phases=(REPRIEVED, REQUESTED, HINTED),
        source=SCHEDULER,
        deadline=after(660),
    ),
    "a victim without a checkpoint is skipped, even if it loses less by ending at once": Scenario(
        seen=((0, LOSES_LESS),),
        phases=(SETTLED, TERMINATING),
        plan=NONE,
        outcome=CheckpointOutcome.SKIPPED,
        source=SCHEDULER,
    ),
    "a victim that saves on SIGTERM gets no time for it if it loses less without": Scenario(
        seen=((0, LOSES_LESS),),
        phases=(SETTLED, TERMINATING),
        plan=ON_SIGTERM,
        outcome=CheckpointOutcome.LOSES_LESS,
        source=SCHEDULER,
    ),
    "a victim that a person asked for gets time to save on SIGTERM": Scenario(
        seen=((0, LOSES_LESS),),
        phases=(SETTLED, TERMINATING),
        plan=ON_SIGTERM,
        outcome=CheckpointOutcome.ON_SIGTERM,
    ),
    "a victim that was asked before it lost less is not ended at once": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, LOSES_LESS)),
        phases=(HINTED,),
        source=SCHEDULER,
        deadline=after(600),
    ),
    "a victim that loses less by ending at once waits for its set": Scenario(
        seen=((0, replace(LOSES_LESS, may_set_grow=True)), (1, SET_SAVES), (60, NOTHING)),
        phases=(SETTLED, TERMINATING),
        outcome=CheckpointOutcome.LOSES_LESS,
        source=SCHEDULER,
    ),
    "a victim that loses less by ending at once stays if its preemptor left its node": Scenario(
        seen=((0, replace(LOSES_LESS, is_set_ready=False)), (60, LEFT)),
        phases=(SETTLED, CANCELLED),
        outcome=CheckpointOutcome.NOT_NEEDED,
        source=SCHEDULER,
    ),
    "a victim whose preemptor left its node stays": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (60, LEFT)),
        phases=(HINTED, CHECKPOINTING, CANCELLED),
        outcome=CheckpointOutcome.NOT_NEEDED,
        source=SCHEDULER,
    ),
    "a victim that has saved stays if its preemptor left its node": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, replace(SAVED, is_set_ready=False)), (60, LEFT)),
        phases=(HINTED, Phase.SAVED, CANCELLED),
        outcome=CheckpointOutcome.NOT_NEEDED,
        source=SCHEDULER,
    ),
    "a reprieved victim stays if its preemptor left its node": Scenario(
        seen=((0, ALMOST_COMPLETE), (60, replace(ALMOST_COMPLETE, has_preemptor_left=True))),
        phases=(REPRIEVED, CANCELLED),
        outcome=CheckpointOutcome.NOT_NEEDED,
        source=SCHEDULER,
    ),
    "a victim whose preemptor left goes if another pod is nominated to its node": Scenario(
        seen=(REQUESTED_AND_HINTED, (60, replace(LEFT, is_node_wanted=True))),
        phases=(HINTED,),
        source=SCHEDULER,
        deadline=after(600),
    ),
    "a victim that a person asked for goes whatever its preemptor does": Scenario(
        seen=(REQUESTED_AND_HINTED, (60, LEFT)),
        phases=(HINTED,),
        deadline=after(600),
    ),
    "a reprieved victim that a person asks for goes whatever its preemptor does": Scenario(
        seen=((0, ALMOST_COMPLETE), (60, replace(LEFT, is_requested_again=True))),
        phases=(REPRIEVED, REQUESTED, HINTED),
        source=SCHEDULER,
        deadline=after(660),
    ),
    "a scheduler's victim that a person asks for goes whatever its preemptor does": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, replace(SAVING, is_requested_again=True)), (60, LEFT)),
        phases=(HINTED, CHECKPOINTING),
        source=SCHEDULER,
        deadline=after(600),
    ),
    "a drain's victim that a person asks for goes whatever a budget does": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (5, SAVED),
            (6, replace(HELD, is_requested_again=True)),
            (1800, HELD),
        ),
        phases=(HINTED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
        must_evict=True,
    ),
    "a drain's victim that a person asks for at the ceiling does not stay": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (5, SAVED),
            (1800, replace(HELD, is_requested_again=True)),
        ),
        phases=(HINTED, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
        must_evict=True,
    ),
    "a victim that saves on SIGTERM may be refused to a scheduler": Scenario(
        seen=((0, PROTECTED),),
        phases=(SPARED,),
        plan=ON_SIGTERM,
        outcome=CheckpointOutcome.SPARED,
        source=SCHEDULER,
    ),
    "a mark removed while the victim waits for others cancels": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (600, OTHERS_SAVE),
            (601, replace(UNMARKED, may_terminate=False)),
        ),
        phases=(HINTED, SETTLED, CANCELLED),
        outcome=CheckpointOutcome.CANCELLED,
    ),
    "a victim that finishes while it waits for others is finished": Scenario(
        seen=((0, OTHERS_SAVE), (1, replace(ENDED, may_terminate=False))),
        phases=(SETTLED, Phase.FINISHED),
        plan=NONE,
        outcome=CheckpointOutcome.FINISHED,
    ),
    "a lost hint is sent again, with a whole timeout": Scenario(
        seen=(REQUESTED_AND_HINTED, (60, LOST)), phases=(HINTED, HINTED), deadline=after(660)
    ),
    "a hint that is lost at its deadline is sent again": Scenario(
        seen=(REQUESTED_AND_HINTED, (600, LOST)), phases=(HINTED, HINTED), deadline=after(1200)
    ),
    "a lost hint is sent at most three times": Scenario(
        seen=(REQUESTED_AND_HINTED, (10, LOST), (20, LOST), (30, LOST), (40, LOST)),
        phases=(HINTED, HINTED, HINTED),
        deadline=after(620),
    ),
    "after three lost hints, the victim is deleted at its deadline": Scenario(
        seen=(REQUESTED_AND_HINTED, (10, LOST), (20, LOST), (620, LOST)),
        phases=(HINTED, HINTED, HINTED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.UNRESPONSIVE,
    ),
    "a workload that knows of no request is notified again": Scenario(
        seen=(REQUESTED_AND_HINTED, (10, replace(IDLE, hint_lost=True))),
        phases=(HINTED, HINTED),
        deadline=after(610),
    ),
    "a workload that has answered has not lost the hint": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (10, LOST)),
        phases=(HINTED, CHECKPOINTING),
        deadline=after(600),
    ),
    "a restarted workload that had answered is notified again, without more time": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (400, FORGOTTEN), (410, SAVING)),
        phases=(HINTED, CHECKPOINTING, CHECKPOINTING),
        deadline=after(600),
    ),
    "a restarted workload may still save": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (400, FORGOTTEN), (410, SAVED)),
        phases=(HINTED, CHECKPOINTING, CHECKPOINTING, Phase.SAVED, TERMINATING),
        outcome=CheckpointOutcome.SAVED,
    ),
    "a workload restarted in its extension is notified again, without more time": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (600, SAVING), (700, FORGOTTEN), (899, SAVING)),
        phases=(HINTED, CHECKPOINTING, EXTENDED, EXTENDED),
        deadline=after(900),
    ),
    "a workload restarted in its deferral is notified again": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (5, defers(700)),
            (60, FORGOTTEN),
            (70, defers(700)),
            (600, NOTHING),
        ),
        phases=(HINTED, DEFERRED, DEFERRED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.TIMED_OUT,
    ),
    "a workload that restarts repeatedly is notified at most three times": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (5, SAVING),
            *((10 * turn, FORGOTTEN) for turn in range(1, 9)),
            (900, NOTHING),
        ),
        phases=(
            HINTED,
            CHECKPOINTING,
            CHECKPOINTING,
            CHECKPOINTING,
            EXTENDED,
            SETTLED,
            TERMINATING,
        ),
        outcome=CheckpointOutcome.TIMED_OUT,
    ),
    "a lost hint counts among the three notices": Scenario(
        seen=(REQUESTED_AND_HINTED, (10, LOST), (20, SAVING), (30, FORGOTTEN), (40, FORGOTTEN)),
        phases=(HINTED, HINTED, CHECKPOINTING, CHECKPOINTING),
        deadline=after(610),
    ),
    "a workload restarted at its deadline is extended first": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (600, FORGOTTEN), (610, FORGOTTEN)),
        phases=(HINTED, CHECKPOINTING, EXTENDED, EXTENDED),
        deadline=after(900),
    ),
    "a workload restarted at its last deadline is deleted: no time is left to notify it": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (600, NOTHING), (900, FORGOTTEN)),
        phases=(HINTED, CHECKPOINTING, EXTENDED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.TIMED_OUT,
    ),
    "a workload that never reported this request is notified again, without more time": Scenario(
        seen=(REQUESTED_AND_HINTED, (400, FORGOTTEN)), phases=(HINTED, HINTED), deadline=after(600)
    ),
    "a workload that never reported this request is deleted at its deadline": Scenario(
        seen=(REQUESTED_AND_HINTED, (600, FORGOTTEN)),
        phases=(HINTED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.UNRESPONSIVE,
    ),
    "an observation of the last eviction's workload does not shorten this one's notice": Scenario(
        seen=((0, FORGOTTEN),), phases=(HINTED,), deadline=after(600)
    ),
    "an idle workload does not count as answering": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, IDLE), (600, IDLE)),
        phases=(HINTED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.UNRESPONSIVE,
    ),
    "an answer to another eviction does not count": Scenario(
        seen=(
            REQUESTED_AND_HINTED,
            (5, answers(AnswerState.SAVED, eviction_id="another")),
            (600, NOTHING),
        ),
        phases=(HINTED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.UNRESPONSIVE,
    ),
    "an answer from before the hint does not count": Scenario(
        seen=((0, SAVED), (60, LOST)), phases=(HINTED, HINTED), deadline=after(660)
    ),
    "a non-preemptible victim of a scheduler is spared": Scenario(
        seen=((0, PROTECTED),), phases=(SPARED,), outcome=CheckpointOutcome.SPARED, source=SCHEDULER
    ),
    "a non-preemptible victim of a user is deleted": Scenario(
        seen=((0, PROTECTED), (600, PROTECTED)),
        phases=(HINTED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.UNRESPONSIVE,
    ),
    "a victim that becomes protected after the notice is not spared": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, PROTECTED)),
        phases=(HINTED,),
        deadline=after(600),
        source=SCHEDULER,
    ),
    "a victim of a scheduler that is almost complete is reprieved": Scenario(
        seen=((0, ALMOST_COMPLETE), (299, ALMOST_COMPLETE)),
        phases=(REPRIEVED,),
        deadline=after(300),
        source=SCHEDULER,
    ),
    "a victim of a user that is almost complete is notified": Scenario(
        seen=((0, ALMOST_COMPLETE),), phases=(HINTED,), deadline=after(600)
    ),
    "a victim that is not complete after its reprieve is notified, with a whole timeout": Scenario(
        seen=((0, ALMOST_COMPLETE), (300, NOTHING)),
        phases=(REPRIEVED, REQUESTED, HINTED),
        deadline=after(900),
        source=SCHEDULER,
    ),
    "a pod is reprieved only once": Scenario(
        seen=(
            (0, ALMOST_COMPLETE),
            (
                300,
                ObservedVictim(protection=Protection(ProtectionReason.NEAR_COMPLETION, after(600))),
            ),
        ),
        phases=(REPRIEVED, REQUESTED, HINTED),
        deadline=after(900),
        source=SCHEDULER,
    ),
    "a reprieve that was over at the first observation does not count": Scenario(
        seen=((301, ALMOST_COMPLETE),), phases=(HINTED,), deadline=after(901), source=SCHEDULER
    ),
    "the ceiling bounds a reprieve": Scenario(
        seen=((0, ALMOST_COMPLETE),),
        phases=(REPRIEVED,),
        deadline=after(200),
        source=SCHEDULER,
        settings=PolicySettings(ceiling_seconds=200),
    ),
    "a reprieved victim that completes is finished": Scenario(
        seen=((0, ALMOST_COMPLETE), (100, ENDED)),
        phases=(REPRIEVED, Phase.FINISHED),
        outcome=CheckpointOutcome.FINISHED,
        source=SCHEDULER,
    ),
    "a removed mark of a reprieved victim cancels": Scenario(
        seen=((0, ALMOST_COMPLETE), (5, UNMARKED)),
        phases=(REPRIEVED, CANCELLED),
        outcome=CheckpointOutcome.CANCELLED,
        source=SCHEDULER,
    ),
    "a user's request to evict a reprieved victim is honoured": Scenario(
        seen=((0, ALMOST_COMPLETE), (5, replace(ALMOST_COMPLETE, is_requested_again=True))),
        phases=(REPRIEVED, REQUESTED, HINTED),
        deadline=after(605),
        source=SCHEDULER,
    ),
    "a victim that is not preemptible when its reprieve is over is spared": Scenario(
        seen=((0, ALMOST_COMPLETE), (300, PROTECTED)),
        phases=(REPRIEVED, REQUESTED, SPARED),
        outcome=CheckpointOutcome.SPARED,
        source=SCHEDULER,
    ),
    "the ceiling bounds the timeout": Scenario(
        seen=(REQUESTED_AND_HINTED,),
        phases=(HINTED,),
        settings=PolicySettings(ceiling_seconds=300),
        deadline=after(300),
    ),
    "the ceiling bounds the extension": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (600, NOTHING)),
        phases=(HINTED, CHECKPOINTING, EXTENDED),
        settings=PolicySettings(ceiling_seconds=700),
        deadline=after(700),
    ),
    "the ceiling bounds a deferral": Scenario(
        seen=(REQUESTED_AND_HINTED, (590, defers(300))),
        phases=(HINTED, DEFERRED),
        settings=PolicySettings(ceiling_seconds=700),
        deadline=after(700),
    ),
    "the ceiling bounds a hint that is sent again": Scenario(
        seen=(REQUESTED_AND_HINTED, (599, LOST)),
        phases=(HINTED, HINTED),
        settings=PolicySettings(ceiling_seconds=700),
        deadline=after(700),
    ),
    "a clock set back by an hour deletes no pod early": Scenario(
        seen=(REQUESTED_AND_HINTED, (5, SAVING), (-3600, SAVING)),
        phases=(HINTED, CHECKPOINTING),
        deadline=after(600),
    ),
    "a hint sent again after the clock went back does not shorten the time": Scenario(
        seen=(REQUESTED_AND_HINTED, (-3600, LOST)), phases=(HINTED, HINTED), deadline=after(600)
    ),
    "a clock set forward by an hour ends the wait": Scenario(
        seen=(REQUESTED_AND_HINTED, (3600, NOTHING)),
        phases=(HINTED, SETTLED, TERMINATING),
        outcome=CheckpointOutcome.UNRESPONSIVE,
    ),
}


def live(scenario: Scenario) -> tuple[Eviction, list[Phase]]:
    eviction, phases = (
        replace(an_eviction().build(), source=scenario.source, must_evict=scenario.must_evict),
        [],
    )
    decisions = []
    for second, seen in scenario.seen:
        decision = machine.decide(eviction, seen, scenario.plan, scenario.settings, after(second))
        eviction = decision.eviction
        phases.extend(move.to for move in decision.transitions)
        decisions.append(decision.gives_up_cleaners)
    assert decisions[-1] is scenario.gives_up_cleaners
    assert not any(decisions[:-1])
    return eviction, phases


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_the_life_of_a_victim(scenario: Scenario) -> None:
    eviction, phases = live(scenario)
    assert tuple(phases) == scenario.phases
    assert eviction.phase is scenario.phases[-1]
    assert eviction.outcome is scenario.outcome
    if eviction.phase in WITH_DEADLINE:
        assert eviction.deadline == scenario.deadline
        assert eviction.cleaners_until == scenario.cleaners_until
        assert machine.next_wake(eviction) == (scenario.cleaners_until or scenario.deadline)
    else:
        assert machine.next_wake(eviction) is None
    assert machine.awaits_workload(eviction.phase) is (eviction.phase in AWAITING_WORKLOAD)


def test_a_new_request_replaces_the_first() -> None:
    scenario = SCENARIOS["a user's request to evict a reprieved victim is honoured"]
    state, _ = live(scenario)
    assert (state.source, state.cause, state.refused_on) == (
        Source.LABEL,
        PreemptionCause.REQUEST,
        ProtectionReason.NEAR_COMPLETION,
    )


HINTED_BY = an_eviction().hinted(deadline=after(600))
BY_SCHEDULER = an_eviction().asked_by_scheduler().hinted(deadline=after(600)).build()
BY_DRAIN = replace(HINTED_BY.build(), must_evict=True)
BY_REQUEST = {"source": Source.LABEL, "cause": PreemptionCause.REQUEST, "must_evict": False}


@pytest.mark.parametrize(
    "begun",
    [BY_SCHEDULER, BY_DRAIN],
    ids=["a scheduler's", "a drain's"],
)
def test_a_request_replaces_an_eviction_after_which_the_pod_may_stay(begun: Eviction) -> None:
    asked = ObservedVictim(is_requested_again=True)
    decision = machine.decide(begun, asked, AUTO, SETTINGS, after(5))
    # The workload is not asked anew, and its deadline is the same.
    assert (decision.transitions, decision.eviction) == ((), replace(begun, **BY_REQUEST))
    assert machine.decide(decision.eviction, asked, AUTO, SETTINGS, after(6)).eviction == (
        decision.eviction
    )


@pytest.mark.parametrize(
    ("begun", "is_an_eviction"),
    [
        (replace(BY_SCHEDULER, gang="train"), False),
        (replace(BY_DRAIN, source=Source.GANG, gang="train"), False),
        (replace(HINTED_BY.build(), source=Source.GANG, gang="train"), False),
        (HINTED_BY.build(), False),
        (replace(BY_SCHEDULER, phase=CANCELLED), False),
        (BY_SCHEDULER, True),
        (BY_DRAIN, True),
    ],
    ids=[
        "of a gang that is preempted",
        "of a gang that is drained",
        "of another pod of a gang",
        "that a person asked for",
        "that is over",
        "of a scheduler's victim that a drain asks for, too",
        "that a drain asks for again",
    ],
)
def test_a_request_changes_no_other_eviction(begun: Eviction, *, is_an_eviction: bool) -> None:
    asked = ObservedVictim(is_requested_again=True, must_evict=is_an_eviction)
    assert machine.decide(begun, asked, AUTO, SETTINGS, after(5)).eviction == begun


def test_a_reprieved_pod_goes_with_its_gang_as_by_a_request() -> None:
    scheduled = an_eviction().asked_by_scheduler()
    reprieved = scheduled.in_phase(REPRIEVED, deadline=after(300)).build()
    asked = ObservedVictim(is_requested_again=True)
    joined = machine.decide(replace(reprieved, gang="train"), asked, AUTO, SETTINGS, after(5))
    assert joined.eviction.phase is HINTED
    assert joined.eviction == replace(joined.eviction, **BY_REQUEST)


def test_an_eviction_of_a_protected_pod_waits_and_changes_nothing() -> None:
    """It is not deleted before its protection is over, and then no budget holds it."""
    reprieved = an_eviction().asked_by_scheduler().in_phase(REPRIEVED, deadline=after(60)).build()
    seen = machine.ObservedVictim(is_requested_again=True, must_evict=True)
    assert machine.decide(reprieved, seen, AUTO, PolicySettings(), after(59)).transitions == ()
    later = machine.decide(reprieved, seen, AUTO, PolicySettings(), after(60)).eviction
    assert (later.phase, later.source, later.must_evict) == (
        Phase.HINTED,
        Source.KOORDINATOR,
        False,
    )


@pytest.mark.parametrize(
    ("is_gang_held", "outcome"),
    [(False, CheckpointOutcome.CANCELLED), (True, CheckpointOutcome.HELD_BY_BUDGET)],
)
def test_a_pod_that_stays_because_a_budget_holds_its_gang_was_held_itself(
    *, is_gang_held: bool, outcome: CheckpointOutcome
) -> None:
    hinted = an_eviction().in_phase(HINTED, deadline=after(60)).build()
    seen = ObservedVictim(is_marked=False, is_gang_held=is_gang_held)
    stays = machine.decide(hinted, seen, AUTO, SETTINGS, after(5)).eviction
    assert (stays.phase, stays.outcome) == (Phase.CANCELLED, outcome)


def test_a_gang_member_of_an_evicted_pod_is_evicted() -> None:
    origin = replace(an_eviction().build(), must_evict=True)
    assert machine.begin_as_gang_member(origin, "second", after(7)).must_evict


def test_lowering_the_ceiling_takes_no_time_from_a_notified_victim() -> None:
    hinted = an_eviction().hinted(deadline=after(600)).build()
    decision = machine.decide(
        hinted, defers(60), AUTO, PolicySettings(ceiling_seconds=10), after(5)
    )
    assert decision.eviction.deadline == after(600)


def test_a_checkpoint_has_the_workloads_answer_and_its_time() -> None:
    eviction, _ = live(Scenario(seen=(REQUESTED_AND_HINTED, (60, SAVED)), phases=()))
    assert eviction.checkpoint == Checkpoint(saved_at=after(60), step=4200, path="/ckpt/4200")
    assert (eviction.hinted_at, eviction.answered_at, eviction.attempt) == (NOW, after(60), 1)


def test_only_an_answer_counts_as_answered() -> None:
    stories = {
        name: scenario
        for name, scenario in SCENARIOS.items()
        if scenario.outcome is CheckpointOutcome.UNRESPONSIVE
    }
    assert stories
    assert all(live(scenario)[0].answered_at is None for scenario in stories.values())


NAMED = CheckpointAnswer(state=AnswerState.SAVING, eviction_id=an_eviction().build().eviction_id)
NOTES = {
    "a report of progress may be written later": (
        an_eviction().hinted(deadline=after(600)).build(),
        NAMED,
        True,
    ),
    "the first answer is written at once": (
        an_eviction().hinted(deadline=after(600)).build(),
        ACCEPTED_WITHOUT_DOCUMENT,
        False,
    ),
    "an answer that others wait for is written at once": (
        an_eviction().hinted(deadline=after(600)).build(),
        replace(NAMED, state=AnswerState.SAVED),
        False,
    ),
    "an answer at the deadline is written at once": (
        an_eviction().hinted(deadline=after(5)).build(),
        NAMED,
        False,
    ),
    "the notice is written at once": (an_eviction().build(), None, False),
}


@pytest.mark.parametrize(("state", "answer", "can_wait"), NOTES.values(), ids=NOTES)
def test_only_a_repeatable_answer_may_be_written_later(
    state: Eviction, answer: CheckpointAnswer | None, *, can_wait: bool
) -> None:
    decision = machine.decide(state, ObservedVictim(answer=answer), AUTO, SETTINGS, after(10))
    assert decision.transitions
    assert machine.may_postpone_write(decision, answer) is can_wait


@dataclass(frozen=True, kw_only=True)
class Grace:
    pod_seconds: int = 30
    mark_seconds: int | None = None
    cap_seconds: int = 30
    is_node_lost: bool = False
    may_be_forced: bool = False
    plan: CheckpointPlan = NONE
    ceiling_seconds: int = 1800
    want: int


GRACES = {
    "the pod's own grace": Grace(pod_seconds=20, want=20),
    "at most the admin's cap": Grace(pod_seconds=3600, want=30),
    "a cap may be longer than the usual": Grace(pod_seconds=3600, cap_seconds=120, want=120),
    "a mark may shorten it": Grace(mark_seconds=5, want=5),
    "a mark may not lengthen it": Grace(pod_seconds=20, mark_seconds=25, want=20),
    "a mark of 0 gives a grace of 1 s": Grace(mark_seconds=0, want=1),
    "a pod's grace of 0 becomes 1 s": Grace(pod_seconds=0, want=1),
    "a lost node has no effect unless the admin wants it": Grace(is_node_lost=True, want=30),
    "a grace of 0 that the admin allows is for lost nodes only": Grace(
        may_be_forced=True, mark_seconds=0, want=1
    ),
    "the grace is 0 on a lost node if the admin wants it": Grace(
        may_be_forced=True, is_node_lost=True, want=0
    ),
    "a save on SIGTERM gets the time that it takes": Grace(plan=ON_SIGTERM, want=300),
    "a mark does not shorten a save on SIGTERM": Grace(plan=ON_SIGTERM, mark_seconds=5, want=300),
    "a save on SIGTERM ends at the ceiling": Grace(plan=ON_SIGTERM, ceiling_seconds=120, want=120),
    "a short save on SIGTERM gets the usual grace": Grace(
        plan=plan_of(hint="sigterm:", estimate="5s"), want=30
    ),
    "the grace is 0 on a lost node for a save on SIGTERM, too": Grace(
        plan=ON_SIGTERM, may_be_forced=True, is_node_lost=True, want=0
    ),
}


@pytest.mark.parametrize("grace", GRACES.values(), ids=GRACES)
def test_grace_is_chosen_once(grace: Grace) -> None:
    begun = machine.begin_eviction(
        Mark(grace_seconds=grace.mark_seconds), Source.LABEL, "pod-uid", NOW
    )
    settings = PolicySettings(
        grace_cap_seconds=grace.cap_seconds,
        force_delete_on_lost_nodes=grace.may_be_forced,
        ceiling_seconds=grace.ceiling_seconds,
    )
    seen = ObservedVictim(pod_grace_seconds=grace.pod_seconds, is_node_lost=grace.is_node_lost)
    decision = machine.decide(begun, seen, grace.plan, settings, NOW)
    assert decision.eviction.grace_seconds == grace.want


def test_an_eviction_begins_with_the_marks_fields() -> None:
    asked = Mark(
        initiator="descheduler", reason="overload", requested_at=after(-3600), grace_seconds=5
    )
    assert machine.begin_eviction(asked, Source.KOORDINATOR, "uid", NOW) == Eviction(
        eviction_id="uid-1795262400000",
        phase=Phase.REQUESTED,
        requested_at=NOW,
        source=Source.KOORDINATOR,
        initiator="descheduler",
        reason="overload",
        mark_grace_seconds=5,
    )


def test_a_mark_set_again_within_the_second_begins_another_eviction() -> None:
    first, second = (
        machine.begin_eviction(Mark(), Source.LABEL, "uid", after(at)) for at in (0.2, 0.3)
    )
    assert first.eviction_id != second.eviction_id


def test_a_gang_members_state_names_the_initiator_and_counts_its_own_notice() -> None:
    first = replace(
        machine.begin_eviction(
            Mark(initiator="ops", reason="drain", grace_seconds=5), SCHEDULER, "first", NOW
        ),
        attempt=1,
    )
    joined = machine.begin_as_gang_member(first, "second", after(7))
    assert joined == Eviction(
        eviction_id="second-1795262407000",
        phase=Phase.REQUESTED,
        requested_at=after(7),
        source=Source.GANG,
        initiator="ops",
        reason="drain",
        mark_grace_seconds=5,
    )


def test_the_pods_of_a_gang_save_together_even_if_one_loses_less_by_ending_at_once() -> None:
    victim = replace(an_eviction().asked_by_scheduler().build(), gang="train")
    decision = machine.decide(victim, LOSES_LESS, AUTO, SETTINGS, NOW)
    assert decision.eviction.phase is HINTED


def test_a_repeated_request_changes_only_the_attempt() -> None:
    for seen in (SAVING, defers(700)):
        notified = machine.decide(
            an_eviction().hinted(deadline=after(600)).build(), seen, AUTO, SETTINGS, after(5)
        ).eviction
        decision = machine.decide(notified, FORGOTTEN, AUTO, SETTINGS, after(60))
        assert decision.eviction == replace(notified, attempt=notified.attempt + 1)
        assert [move.resends_hint for move in decision.transitions] == [True]


def test_only_a_resent_hint_keeps_phase_and_outcome() -> None:
    for phase, moves in TABLE.items():
        for observation, move in moves.items():
            assert move.resends_hint is (observation is Observation.REQUEST_FORGOTTEN)
            assert not move.resends_hint or (move.to, move.outcome) == (phase, None)


BEFORE_DELETE = (REQUESTED, *WITH_DEADLINE)

LEADS_ON = {
    Observation.PROTECTED: ((REQUESTED,), "once it was notified, it is ended"),
    Observation.PROTECTED_FOR_NOW: ((REQUESTED,), "once it was notified, it is ended"),
    Observation.PROTECTION_OVER: ((REPRIEVED,), "no other phase is protected"),
    Observation.REQUESTED_AGAIN: ((REPRIEVED,), "no other phase is protected"),
    Observation.CHECKPOINT_WANTED: ((Phase.REQUESTED,), "it is decided once, at the beginning"),
    Observation.CHECKPOINT_UNWANTED: ((Phase.REQUESTED,), "it is decided once, at the beginning"),
    Observation.CHECKPOINT_LOSES_MORE: ((Phase.REQUESTED,), "it is decided once, at the beginning"),
    Observation.CHECKPOINT_ON_SIGTERM: ((Phase.REQUESTED,), "it is decided once, at the beginning"),
    Observation.HINT_LOST: ((Phase.HINTED,), "a workload that has answered has the hint"),
    Observation.REQUEST_FORGOTTEN: (
        (CHECKPOINTING, EXTENDED, DEFERRED),
        "one that has not answered has lost the hint",
    ),
    Observation.ANSWERED: ((Phase.HINTED,), "a repeated answer changes nothing"),
    Observation.SAVED: (AWAITING_WORKLOAD, "before, no hint; afterwards, settled"),
    Observation.CANNOT: (AWAITING_WORKLOAD, "before, no hint; afterwards, settled"),
    Observation.DEFERRED: ((Phase.HINTED, Phase.CHECKPOINTING), "more time is given once"),
    Observation.DEADLINE_UNANSWERED: (
        (Phase.HINTED,),
        "every other phase that waits was reached by an answer",
    ),
    Observation.DEADLINE_ANSWERED: (
        (CHECKPOINTING, EXTENDED, DEFERRED),
        "one that is only hinted has not answered",
    ),
    Observation.HELD_BY_BUDGET: ((TERMINATING,), "nothing else waits for a budget"),
    Observation.CLEANERS_DONE: (
        (SETTLED, Phase.SAVED),
        "before, the workload has time as well; afterwards, SIGTERM was sent",
    ),
    Observation.RELEASED: (
        (SETTLED, Phase.SAVED),
        "only a victim without open questions waits for others",
    ),
    Observation.MARK_REMOVED: (
        (*BEFORE_DELETE, TERMINATING),
        "a finished eviction is not cancelled",
    ),
    Observation.NOT_NEEDED: (
        (*BEFORE_DELETE, TERMINATING),
        "a finished eviction is not cancelled",
    ),
    Observation.DELETED_BY_OTHERS: (BEFORE_DELETE, "afterwards it was us"),
    Observation.CONTAINERS_ENDED: (
        (*BEFORE_DELETE, TERMINATING),
        "afterwards that is the goal",
    ),
    Observation.OBJECT_GONE: ((*BEFORE_DELETE, Phase.TERMINATING), "it happens once"),
    Observation.REPLACED: ((Phase.GONE,), "a replacement comes after what it replaces"),
}
"""The phases in which each observation counts, and why it does not count elsewhere."""


@pytest.mark.parametrize("observation", Observation)
def test_every_pair_of_phase_and_observation_is_listed_or_explained(
    observation: Observation,
) -> None:
    phases, _why_nowhere_else = LEADS_ON[observation]
    assert {phase for phase in Phase if observation in TABLE[phase]} == set(phases)


def test_every_phase_has_a_row_and_is_reached() -> None:
    assert set(TABLE) == set(Phase)
    assert {move.to for row in TABLE.values() for move in row.values()} | {Phase.REQUESTED} == set(
        Phase
    )


def test_a_terminal_phase_stays_terminal() -> None:
    onward = {move.to for phase in TERMINAL for move in TABLE[phase].values()}
    assert onward == {Phase.REQUEUED}


def test_every_end_has_a_checkpoint_outcome() -> None:
    for phase in BEFORE_DELETE:
        for observation, move in TABLE[phase].items():
            ends = move.to not in BEFORE_DELETE or move.to in (SETTLED, Phase.SAVED)
            # A settled victim has its outcome already, unless another client was quicker.
            is_known = (phase, observation) == (SETTLED, Observation.RELEASED)
            is_known |= move.ends_cleaning
            assert (move.outcome is not None) is (ends and not is_known)


QUEUED = ObservedVictim(has_call_slot=False)


def test_the_time_of_a_workload_begins_when_it_can_be_called() -> None:
    begun = an_eviction().build()
    queued = machine.decide(begun, QUEUED, AUTO, SETTINGS, NOW).eviction
    assert machine.is_hint_queued(queued)
    assert (queued.phase, queued.attempt, queued.deadline) == (HINTED, 0, after(1800))
    assert machine.decide(queued, QUEUED, AUTO, SETTINGS, after(300)).transitions == ()
    decision = machine.decide(queued, NOTHING, AUTO, SETTINGS, after(300))
    assert machine.begins_call(queued, decision)
    called = decision.eviction
    assert not machine.is_hint_queued(called)
    assert (called.attempt, called.hinted_at, called.deadline) == (1, after(300), after(900))
    # It begins once.
    again = machine.decide(called, LOST, AUTO, SETTINGS, after(400))
    assert not machine.begins_call(called, again)


def test_the_time_of_a_workload_that_was_called_late_ends_at_the_ceiling() -> None:
    queued = machine.decide(an_eviction().build(), QUEUED, AUTO, SETTINGS, NOW).eviction
    called = machine.decide(queued, NOTHING, AUTO, SETTINGS, after(1700)).eviction
    assert called.deadline == after(1800)


def test_a_hint_that_no_call_was_free_for_ends_at_the_ceiling_unanswered() -> None:
    queued = machine.decide(an_eviction().build(), QUEUED, AUTO, SETTINGS, NOW).eviction
    ended = machine.decide(queued, QUEUED, AUTO, SETTINGS, after(1800)).eviction
    assert (ended.phase, ended.outcome) == (TERMINATING, CheckpointOutcome.UNRESPONSIVE)
    assert ended.hinted_at is None


def test_a_victim_that_waits_for_a_call_may_stay() -> None:
    queued = machine.decide(an_eviction().build(), QUEUED, AUTO, SETTINGS, NOW).eviction
    stays = replace(QUEUED, is_marked=False)
    assert machine.decide(queued, stays, AUTO, SETTINGS, NOW).eviction.phase is CANCELLED


def test_a_large_gang_waits_so_long_that_all_its_pods_are_deleted_by_the_ceiling() -> None:
    settings = PolicySettings(ceiling_seconds=600)
    begun = replace(an_eviction().build(), gang="train")
    hinted = machine.decide(begun, ObservedVictim(gang_size=1000), AUTO, settings, NOW).eviction
    assert hinted.deadline == after(570)
    alone = machine.decide(begun, NOTHING, AUTO, settings, NOW).eviction
    assert alone.deadline == after(600)
    waiting = ObservedVictim(gang_size=1000, may_terminate=False, answer=CANNOT.answer)
    settled = machine.decide(hinted, waiting, AUTO, settings, after(10)).eviction
    assert (settled.phase, settled.deadline) == (SETTLED, after(570))
    over = replace(waiting, answer=None)
    assert machine.decide(settled, over, AUTO, settings, after(570)).eviction.phase is TERMINATING
