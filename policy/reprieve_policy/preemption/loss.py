"""The work that preempting a pod is expected to lose, in device-seconds, and whether notice pays.

    loss = devices x seconds of work that must be computed again, or in which no work is done

| the pod saves | seconds |
|---|---|
| when it is asked | the save and the overhead of asking, or less: since the last save |
| on SIGTERM | the save, or less: since the last save |
| at times of its own choice, or never | since the last save |

The last save is `last-checkpoint-at`; without one, the start of the pod counts. How long a save
takes is declared (`estimated-checkpoint-time`), else learned from the pod that this one replaces
(`last-checkpoint-took`, up to the timeout), else assumed: the timeout.

By its loss a victim is chosen (`victimOrder: loss`) and asked, or not asked, to save. The cost of
document 001 (`cost`) is another figure: it weighs the parts by the workload type and includes the
invested walltime. It is recorded and shown, and bounded by `preemptorWorth`.

Pure and total: every pod has a loss, and it is never negative. An annotation raises it no further
than that of a pod without annotations, and a save counts for no longer than the admin's ceiling.
"""

from datetime import datetime
from enum import Enum
from typing import NamedTuple

from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.checkpointing.checkpoint_plan import CheckpointPlan
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.objects import PodView

from .cost import WorkProgress, devices_of

OVERHEAD_SECONDS = 1
"""Between the choice of a victim and its end, beside the save itself: the mark, the hint and the
DELETE. The operator asks a workload for its answer when its save is expected to end."""


class SaveWay(Enum):
    """When a pod saves its work."""

    WHEN_ASKED = "when it is asked"
    ON_SIGTERM = "on SIGTERM"
    NOT_AT_THE_END = "at times of its own choice, or never"


class LossInputs(NamedTuple):
    """The parts of a loss that do not depend on the time; many pods share one value."""

    devices: float = 0.0
    way: SaveWay = SaveWay.NOT_AT_THE_END
    save_seconds: int = 0
    """How long a save takes; 0 for a pod that does not save at its end."""
    is_save_time_known: bool = False
    """It is declared or learned, not assumed."""


NO_LOSS = LossInputs()


def loss_inputs_of(view: PodView, plan: CheckpointPlan, settings: PolicySettings) -> LossInputs:
    """Return the time-independent parts of a pod's loss."""
    devices = devices_of(view.spec)[1]
    if not plan.gives_notice or settings.deletes_preempted:
        return LossInputs(devices=devices)
    known = checkpoint_plan.known_save_seconds(plan, view.annotations)
    seconds = plan.timeout_seconds if known is None else known
    if plan.saves_on_sigterm:
        # Its grace period is no longer than that, whatever its saves by request took.
        known, seconds = plan.estimated_seconds, plan.save_seconds
    return LossInputs(
        devices=devices,
        way=SaveWay.ON_SIGTERM if plan.saves_on_sigterm else SaveWay.WHEN_ASKED,
        save_seconds=min(seconds, settings.ceiling_seconds),
        is_save_time_known=known is not None,
    )


def expected_loss(inputs: LossInputs, progress: WorkProgress, now: datetime) -> float:
    """Return what preempting a pod with these inputs loses now, in device-seconds."""
    unsaved = unsaved_seconds(progress, now)
    if inputs.way is SaveWay.NOT_AT_THE_END:
        return inputs.devices * unsaved
    return inputs.devices * min(unsaved, inputs.save_seconds + _overhead_seconds(inputs))


def loses_less_at_once(
    inputs: LossInputs, progress: WorkProgress, now: datetime, *, grace_seconds: int
) -> bool:
    """True if a pod that would get notice loses less, or as much, without it.

    Only where the time of a save is known. Without this, a pod that needs a second for its save,
    and does not say so, would lose up to a whole timeout. A pod that saves on SIGTERM begins its
    save in any case. Without notice it has no more than its usual grace period, `grace_seconds`.
    """
    if inputs.way is SaveWay.NOT_AT_THE_END or not inputs.is_save_time_known:
        return False
    unsaved = unsaved_seconds(progress, now)
    if inputs.way is SaveWay.ON_SIGTERM:
        unsaved += grace_seconds
    return unsaved <= inputs.save_seconds + _overhead_seconds(inputs)


def unsaved_seconds(progress: WorkProgress, now: datetime) -> float:
    """Return for how long the pod has worked since its last save, or else its start."""
    since = progress.started_at
    if since is None:
        return 0.0
    # A checkpoint saved before the start, by the replaced pod, counts as saved at the start.
    if progress.saved_at is not None and progress.saved_at > since:
        since = progress.saved_at
    return max(0.0, (now - since).total_seconds())


def _overhead_seconds(inputs: LossInputs) -> int:
    return OVERHEAD_SECONDS if inputs.way is SaveWay.WHEN_ASKED else 0
