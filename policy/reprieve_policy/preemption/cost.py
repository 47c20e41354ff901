"""What preempting a pod costs: document 001's formula, in device-hours.

    cost = checkpoint + recompute + walltime, each weighted by the Namespace's workload type

| part | hours | from |
|---|---|---|
| checkpoint | `estimated-checkpoint-time` for `auto`, else the timeout | `checkpoint_time` |
| recompute | since the last checkpoint or start, only `none` | `recompute_if_no_checkpoint` |
| walltime | used, times 0 at 10 % of the walltime to 1 at 90 % | `remaining_walltime_value` |

times the devices that the pod requests: its GPUs, or its CPUs if it requests no GPU. So a cost is
in GPU-hours or in CPU-hours and names the device; victims are compared by the numbers alone. For
`auto` without an estimate the timeout counts; a workload that saves first computes nothing again.

Pure and total: every pod has a cost, it is never negative, and no user annotation raises it beyond
the admin's ceiling.
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
from reprieve_policy.kube.values.quantity import NANOS
from reprieve_policy.lifecycle.eviction import Device, RecordedCost

_HOUR = 3600.0
_LOW, _HIGH = 0.1, 0.9
"""Shares of the walltime: below the first little is invested, above the second a pod may finish."""

_SIGNIFICANT = 4
"""Digits: an estimate is not more precise."""


class Weights(NamedTuple):
    """The factor of each part."""

    checkpoint: float = 1.0
    recompute: float = 1.0
    walltime: float = 1.0


EQUAL_WEIGHTS = Weights()
WEIGHTS: Mapping[str, Weights] = {
    "hpc-batch": EQUAL_WEIGHTS,
    # 001 gives the checkpoint's cost w8 = 0.15 here and no number elsewhere: taken as three times
    # the usual.
    "ml-training": Weights(checkpoint=3.0),
    # A service has no end to come near to, and nothing to compute again.
    "service": Weights(recompute=0.0, walltime=0.0),
    # 001: "short-lived, low cost to preempt".
    "interactive": Weights(0.5, 0.5, 0.5),
    # Never preempted; its cost matters to an admin who plans a drain.
    "sensitive": EQUAL_WEIGHTS,
}
"""By workload type; a pod without one weighs all parts equally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkProgress:
    """How far a pod's work is, as far as known."""

    started_at: datetime | None = None
    saved_at: datetime | None = None
    """The last acknowledged checkpoint."""
    walltime: Walltime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The three parts, weighted, in device-hours."""

    device: Device
    checkpoint: float
    recompute: float
    walltime: float
    stated: int = 0
    """Koordinator's `eviction-cost`: what the workload itself states, without a unit."""

    @property
    def hours(self) -> float:
        """The sum of the three parts."""
        return self.checkpoint + self.recompute + self.walltime

    @property
    def sort_key(self) -> tuple[int, float]:
        """Order victims of one class, cheapest first: a stated cost outranks an estimated one."""
        return self.stated, self.hours

    @property
    def recorded(self) -> RecordedCost:
        """The cost as a victim's state records it."""
        return RecordedCost(hours=float(f"{self.hours:.{_SIGNIFICANT}g}"), device=self.device)


class CostInputs(NamedTuple):
    """The parts of a cost that do not depend on the time; many pods share one value."""

    device: Device = Device.CPU
    devices: float = 0.0
    checkpoint_seconds: float = 0.0
    checkpoints_on_eviction: bool = False
    """The pod saves before it is deleted, and so computes nothing again."""
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
    """Return the time-independent parts of a pod's cost."""
    device, count = devices_of(view.spec)
    return CostInputs(
        device=device,
        devices=count,
        checkpoint_seconds=_checkpoint_seconds(plan, settings),
        checkpoints_on_eviction=plan.gives_notice,
        weights=WEIGHTS.get(workload_type or "", EQUAL_WEIGHTS),
        stated=koordinator.eviction_cost(view.annotations),
    )


def cost_of(inputs: CostInputs, work: WorkProgress, now: datetime) -> Cost:
    """Return what it costs to preempt a pod with these inputs now."""
    checkpoint, recompute, invested = (seconds / _HOUR for seconds in _parts(inputs, work, now))
    return Cost(
        device=inputs.device,
        checkpoint=checkpoint,
        recompute=recompute,
        walltime=invested,
        stated=inputs.stated,
    )


def sort_key_of(inputs: CostInputs, work: WorkProgress, now: datetime) -> tuple[int, float]:
    """Return `Cost.sort_key` in device-seconds: whole numbers of seconds add up exactly."""
    return inputs.stated, sum(_parts(inputs, work, now))


def _parts(inputs: CostInputs, work: WorkProgress, now: datetime) -> tuple[float, float, float]:
    """Return the three parts in device-seconds."""
    weights, devices = inputs.weights, inputs.devices
    return (
        weights.checkpoint * devices * inputs.checkpoint_seconds,
        weights.recompute * devices * _recompute_seconds(inputs, work, now),
        weights.walltime * devices * _invested_seconds(work.walltime, now),
    )


def devices_of(spec: Spec) -> tuple[Device, float]:
    """Return the device in which a pod's work is counted, and how many the pod requests."""
    amounts = pod_requests.of_pod(spec)
    accelerators = sum(amount for name, amount in amounts.items() if is_accelerator(name))
    if accelerators > 0:
        return Device.GPU, accelerators / NANOS
    return Device.CPU, max(0, amounts.get("cpu", 0)) / NANOS


def is_accelerator(resource: str) -> bool:
    """True for whole devices of any vendor, and for NVIDIA's MIG slices: each counts as one."""
    vendor, _, name = resource.rpartition("/")
    return bool(vendor) and (name in ("gpu", "tpu", "neuron") or name.startswith("mig-"))


def _checkpoint_seconds(plan: CheckpointPlan, settings: PolicySettings) -> float:
    if not plan.gives_notice:
        return 0.0
    if plan.strategy is Strategy.AUTO and plan.estimated_seconds is not None:
        return min(plan.estimated_seconds, settings.ceiling_seconds)
    return plan.timeout_seconds


def _recompute_seconds(inputs: CostInputs, work: WorkProgress, now: datetime) -> float:
    if inputs.checkpoints_on_eviction or work.started_at is None:
        return 0.0
    # A checkpoint saved before the start (by the replaced pod) counts as saved at the start.
    since = max(work.started_at, work.saved_at or work.started_at)
    return max(0.0, (now - since).total_seconds())


def _invested_seconds(walltime: Walltime | None, now: datetime) -> float:
    if walltime is None or walltime.seconds <= 0:
        return 0.0
    used = min(walltime.used(now), walltime.seconds)
    share = (used / walltime.seconds - _LOW) / (_HIGH - _LOW)
    return used * min(1.0, max(0.0, share))
