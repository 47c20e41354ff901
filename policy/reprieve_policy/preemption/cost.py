"""What preempting a pod costs: document 001's formula, in device-hours.

    cost = checkpoint + recompute + walltime, each weighted by the Namespace's workload type

| part | hours | from |
|---|---|---|
| checkpoint | that the save takes: `estimated-checkpoint-time` for `auto`, the timeout for `manual` or where nothing is estimated | 001 `checkpoint_time` |
| recompute | since the last checkpoint, or the start: for `none` only, all others save first | 001 `recompute_if_no_checkpoint` |
| walltime | already used, times a share that rises from 0 at 10 % of the walltime to 1 at 90 % | 001 `remaining_walltime_value` |

times the devices that the pod requests: its GPUs, or its CPUs where it requests none. So a cost is in GPU-hours or in
CPU-hours, and says in which; victims are compared by the numbers alone.

Pure and total: any pod has one, never negative, and no annotation of a user's raises it beyond the admin's ceiling.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from reprieve_policy.checkpointing.checkpoint_plan import CheckpointPlan, Strategy
from reprieve_policy.config import koordinator
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.kube import pod_requests
from reprieve_policy.kube.objects import PodView, Spec
from reprieve_policy.kube.quantity import NANOS
from reprieve_policy.lifecycle.eviction import Device, RecordedCost

_HOUR = 3600.0
_LOW, _HIGH = 0.1, 0.9
"""Shares of the walltime: below the first a pod has invested little, above the second it is let finish (001)."""

_SIGNIFICANT = 4
"""Digits: an estimate has no more."""


class Weights(NamedTuple):
    """What each part counts."""

    checkpoint: float = 1.0
    recompute: float = 1.0
    walltime: float = 1.0


EQUAL_WEIGHTS = Weights()
WEIGHTS: Mapping[str, Weights] = {
    "hpc-batch": EQUAL_WEIGHTS,
    # 001 gives the checkpoint's cost w8 = 0.15 here and no number elsewhere: taken as three times the usual.
    "ml-training": Weights(checkpoint=3.0),
    # It has no end to come near to, and nothing to compute again.
    "service": Weights(recompute=0.0, walltime=0.0),
    # 001: "short-lived, low cost to preempt".
    "interactive": Weights(0.5, 0.5, 0.5),
    # Never preempted; it counts where an admin wants to know what a drain costs.
    "sensitive": EQUAL_WEIGHTS,
}
"""By workload type; one that is not said weighs evenly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkProgress:
    """What is known of a pod's work."""

    started_at: datetime | None = None
    saved_at: datetime | None = None
    """The last acknowledged checkpoint."""
    walltime: Walltime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The three parts, weighted, in hours of so many devices."""

    device: Device
    checkpoint: float
    recompute: float
    walltime: float
    stated: int = 0
    """Koordinator's `eviction-cost`: the workload's own word, without a unit."""

    @property
    def hours(self) -> float:
        """All of it."""
        return self.checkpoint + self.recompute + self.walltime

    @property
    def sort_key(self) -> tuple[int, float]:
        """By which victims of one class are chosen, cheapest first: what is stated goes before what is estimated."""
        return self.stated, self.hours

    @property
    def recorded(self) -> RecordedCost:
        """What a victim's state says of it."""
        return RecordedCost(hours=float(f"{self.hours:.{_SIGNIFICANT}g}"), device=self.device)


class CostInputs(NamedTuple):
    """All of a cost that does not move with the clock: many pods share one."""

    device: Device = Device.CPU
    devices: float = 0.0
    checkpoint_seconds: float = 0.0
    checkpoints_on_eviction: bool = False
    """It saves before it goes, and so computes nothing again."""
    weights: Weights = EQUAL_WEIGHTS
    stated: int = 0


NO_COST = CostInputs()


def decide_cost(
    view: PodView,
    plan: CheckpointPlan,
    work: WorkProgress,
    settings: PolicySettings,
    now: datetime,
    *,
    workload_type: str | None = None,
) -> Cost:
    """Return what it costs to preempt a pod now."""
    return cost_of(cost_inputs_of(view, plan, settings, workload_type), work, now)


def cost_inputs_of(
    view: PodView, plan: CheckpointPlan, settings: PolicySettings, workload_type: str | None
) -> CostInputs:
    """Return what a pod's cost is made of."""
    device, count = devices_of(view.spec)
    return CostInputs(
        device=device,
        devices=count,
        checkpoint_seconds=_checkpoint_seconds(plan, settings),
        checkpoints_on_eviction=plan.gives_notice,
        weights=WEIGHTS.get(workload_type or "", EQUAL_WEIGHTS),
        stated=koordinator.eviction_cost(view.annotations),
    )


def cost_of(stake: CostInputs, work: WorkProgress, now: datetime) -> Cost:
    """Return what it costs to preempt a pod with this stake now."""
    checkpoint, recompute, invested = (seconds / _HOUR for seconds in _parts(stake, work, now))
    return Cost(
        device=stake.device,
        checkpoint=checkpoint,
        recompute=recompute,
        walltime=invested,
        stated=stake.stated,
    )


def sort_key_of(stake: CostInputs, work: WorkProgress, now: datetime) -> tuple[int, float]:
    """Return by what such pods are ordered, as `Cost.order` but in device-seconds: whole numbers of them add up exactly."""
    return stake.stated, sum(_parts(stake, work, now))


def _parts(stake: CostInputs, work: WorkProgress, now: datetime) -> tuple[float, float, float]:
    """Return the three parts in device-seconds."""
    weights, devices = stake.weights, stake.devices
    return (
        weights.checkpoint * devices * stake.checkpoint_seconds,
        weights.recompute * devices * _recompute_seconds(stake, work, now),
        weights.walltime * devices * _invested_seconds(work.walltime, now),
    )


def devices_of(spec: Spec) -> tuple[Device, float]:
    """Return what a pod's work is counted in, and how many of them it requests."""
    amounts = pod_requests.of_pod(spec)
    accelerators = sum(amount for name, amount in amounts.items() if is_accelerator(name))
    if accelerators > 0:
        return Device.GPU, accelerators / NANOS
    return Device.CPU, max(0, amounts.get("cpu", 0)) / NANOS


def is_accelerator(resource: str) -> bool:
    """True for whole devices, of any vendor, and for NVIDIA's slices of one (MIG), which count as one each."""
    vendor, _, name = resource.rpartition("/")
    return bool(vendor) and (name in ("gpu", "tpu", "neuron") or name.startswith("mig-"))


def _checkpoint_seconds(plan: CheckpointPlan, settings: PolicySettings) -> float:
    if not plan.gives_notice:
        return 0.0
    if plan.strategy is Strategy.AUTO and plan.estimated_seconds is not None:
        return min(plan.estimated_seconds, settings.ceiling_seconds)
    return plan.timeout_seconds


def _recompute_seconds(stake: CostInputs, work: WorkProgress, now: datetime) -> float:
    if stake.checkpoints_on_eviction or work.started_at is None:
        return 0.0
    # What was saved before it started (by the pod that it replaces) is no longer ago than its start.
    since = max(work.started_at, work.saved_at or work.started_at)
    return max(0.0, (now - since).total_seconds())


def _invested_seconds(walltime: Walltime | None, now: datetime) -> float:
    if walltime is None or walltime.seconds <= 0:
        return 0.0
    used = min(walltime.used(now), walltime.seconds)
    share = (used / walltime.seconds - _LOW) / (_HIGH - _LOW)
    return used * min(1.0, max(0.0, share))
