"""What preempting a pod costs, in device-hours."""

import math
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.config.namespace import WORKLOAD_TYPE_CLASS
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.kube.objects import PodView, pod_views
from reprieve_policy.lifecycle.eviction import Device, RecordedCost
from reprieve_policy.preemption import cost
from reprieve_policy.preemption.cost import WEIGHTS, Cost, WorkProgress
from reprieve_testing.objects.builders import NOW, PodBuilder, a_pod, after

SETTINGS = PolicySettings()  # a timeout of 10 min, a ceiling of 30
HOUR = 3600
GPUS = {"nvidia.com/gpu": "8", "cpu": "64"}
TRAINING = a_pod().asking(**GPUS)


class Parts(NamedTuple):
    """Device-hours."""

    checkpoint: float = 0.0
    recompute: float = 0.0
    walltime: float = 0.0


def cost_of(
    pod: PodBuilder, work: WorkProgress, workload_type: str | None = None, now: datetime = NOW
) -> Cost:
    (view,) = pod_views(pod.build())
    plan = checkpoint_plan.read_leniently(view.annotations, SETTINGS)
    return cost.decide_cost(view, plan, work, SETTINGS, now, workload_type=workload_type)


def estimating(estimate: str, strategy: str = "auto") -> PodBuilder:
    return TRAINING.with_checkpoint(strategy).annotated(keys.ESTIMATED_CHECKPOINT_TIME, estimate)


@dataclass(frozen=True, kw_only=True)
class Case:
    pod: PodBuilder = TRAINING
    started: float | None = None
    saved: float | None = None
    walltime_hours: float | None = None
    workload_type: str | None = None
    want: Parts

    @property
    def work(self) -> WorkProgress:
        started = None if self.started is None else after(-self.started * HOUR)
        saved = None if self.saved is None else after(-self.saved * HOUR)
        seconds = None if self.walltime_hours is None else int(self.walltime_hours * HOUR)
        bound = None if started is None or seconds is None else Walltime(started, seconds)
        return WorkProgress(started_at=started, saved_at=saved, walltime=bound)


CASES = {
    "a pod that has not started costs nothing": Case(want=Parts()),
    "auto: the estimated time of a save": Case(
        pod=estimating("3m"), want=Parts(checkpoint=8 * 0.05)
    ),
    "auto without an estimate: the whole timeout": Case(
        pod=TRAINING.with_hint(), want=Parts(checkpoint=8 / 6)
    ),
    "manual: the timeout, despite an estimate": Case(
        pod=estimating("3m", "manual"), want=Parts(checkpoint=8 / 6)
    ),
    "no estimate lasts longer than a victim waits": Case(
        pod=estimating("1000h"), want=Parts(checkpoint=8 * 0.5)
    ),
    "without a hint: the time since the start": Case(started=5, want=Parts(recompute=8 * 5)),
    "without a hint: the time since the last checkpoint": Case(
        started=5, saved=2, want=Parts(recompute=8 * 2)
    ),
    "a checkpoint of an earlier pod is no longer ago than the start": Case(
        started=5, saved=9, want=Parts(recompute=8 * 5)
    ),
    "a checkpoint in the future leaves nothing to lose": Case(started=5, saved=-1, want=Parts()),
    "a pod that saves first loses nothing": Case(
        pod=TRAINING.with_hint(), started=5, want=Parts(checkpoint=8 / 6, recompute=0)
    ),
    "below 10 % of the walltime, no time counts": Case(
        pod=estimating("1s"), started=1, walltime_hours=10, want=Parts(checkpoint=8 / 3600)
    ),
    "at half of the walltime, half of the time counts": Case(
        pod=estimating("1s"),
        started=5,
        walltime_hours=10,
        want=Parts(checkpoint=8 / 3600, walltime=8 * 2.5),
    ),
    "above 90 % of the walltime, all of the time counts": Case(
        pod=estimating("1s"),
        started=9.5,
        walltime_hours=10,
        want=Parts(checkpoint=8 / 3600, walltime=8 * 9.5),
    ),
    "after the end of the walltime, no more time counts": Case(
        pod=estimating("1s"),
        started=99,
        walltime_hours=10,
        want=Parts(checkpoint=8 / 3600, walltime=8 * 10),
    ),
    "a walltime of nothing": Case(
        pod=estimating("1s"), started=5, walltime_hours=0, want=Parts(checkpoint=8 / 3600)
    ),
    "machine learning: its checkpoints weigh three times": Case(
        pod=TRAINING.with_hint(),
        started=9.5,
        walltime_hours=10,
        workload_type="ml-training",
        want=Parts(checkpoint=3 * 8 / 6, walltime=8 * 9.5),
    ),
    "a service has nothing to compute again": Case(
        started=5, walltime_hours=6, workload_type="service", want=Parts()
    ),
    "interactive: half": Case(started=4, workload_type="interactive", want=Parts(recompute=8 * 2)),
    "an unknown type has even weights": Case(
        started=5, workload_type="other", want=Parts(recompute=8 * 5)
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_cost_is_the_sum_of_three_parts(case: Case) -> None:
    found = cost_of(case.pod, case.work, case.workload_type)
    assert Parts(found.checkpoint, found.recompute, found.walltime) == pytest.approx(case.want)
    assert found.hours == pytest.approx(sum(case.want))


DEVICES = {
    "GPUs": ({"nvidia.com/gpu": "8", "cpu": "64"}, Device.GPU, 8),
    "a device of another vendor": ({"amd.com/gpu": "2"}, Device.GPU, 2),
    "accelerators with other names": (
        {"google.com/tpu": "4", "aws.amazon.com/neuron": "1"},
        Device.GPU,
        5,
    ),
    "slices of a GPU": ({"nvidia.com/mig-1g.5gb": "2"}, Device.GPU, 2),
    "CPUs where there are none": ({"cpu": "1500m", "memory": "1Gi"}, Device.CPU, 1.5),
    "zero GPUs": ({"nvidia.com/gpu": "0", "cpu": "2"}, Device.CPU, 2),
    "a resource that only sounds like one": (
        {"gpu": "3", "example.com/gpu-hours": "7"},
        Device.CPU,
        0,
    ),
    "nothing": ({}, Device.CPU, 0),
    "a negative quantity, which no API server admits": ({"cpu": "-2"}, Device.CPU, 0),
}


@pytest.mark.parametrize(("requests", "device", "count"), DEVICES.values(), ids=DEVICES)
def test_devices_are_counted_in(requests: dict[str, str], device: Device, count: float) -> None:
    (view,) = pod_views(a_pod().asking(**requests).build())
    assert cost.devices_of(view.spec) == (device, count)


def test_every_workload_type_has_weights() -> None:
    assert set(WEIGHTS) == set(WORKLOAD_TYPE_CLASS)


def test_a_stated_cost_takes_precedence_over_an_estimate() -> None:
    cheap = cost_of(
        TRAINING.annotated(keys.EVICTION_COST, "-1"), WorkProgress(started_at=after(-HOUR))
    )
    dear = cost_of(TRAINING.annotated(keys.EVICTION_COST, "1"), WorkProgress())
    assert cheap.hours > dear.hours
    assert cheap.sort_key < dear.sort_key


def test_a_state_records_four_digits_of_the_cost() -> None:
    assert cost_of(TRAINING, WorkProgress(started_at=after(-12345))).recorded == RecordedCost(
        hours=27.43, device=Device.GPU
    )


SECONDS = st.integers(min_value=0, max_value=10**8)
ANY_SECONDS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
PODS = st.sampled_from(
    [TRAINING, TRAINING.with_hint(), estimating("90s"), estimating("5m", "manual")]
)
TYPES = st.sampled_from([None, *WEIGHTS])


@st.composite
def works(draw: st.DrawFn) -> WorkProgress:
    moments = st.none() | SECONDS.map(lambda seconds: after(-seconds))
    bound = st.none() | st.builds(
        Walltime, SECONDS.map(lambda seconds: after(-seconds)), ANY_SECONDS
    )
    return WorkProgress(started_at=draw(moments), saved_at=draw(moments), walltime=draw(bound))


@given(PODS, works(), TYPES, SECONDS)
def test_a_cost_never_falls_while_nothing_is_saved(
    pod: PodBuilder, work: WorkProgress, workload_type: str | None, later: int
) -> None:
    before, then = (
        cost_of(pod, work, workload_type),
        cost_of(pod, work, workload_type, after(later)),
    )
    assert 0 <= before.hours <= then.hours < math.inf


@given(PODS, works(), TYPES, SECONDS)
def test_a_checkpoint_never_makes_a_pod_dearer(
    pod: PodBuilder, work: WorkProgress, workload_type: str | None, ago: int
) -> None:
    """So a user who sets the annotation of their own pod only makes it a likelier victim."""
    saved = replace(work, saved_at=after(-ago))
    unsaved = replace(work, saved_at=None)
    assert cost_of(pod, saved, workload_type).hours <= cost_of(pod, unsaved, workload_type).hours


@given(PODS, works(), TYPES, st.integers(min_value=0, max_value=1000))
def test_more_devices_never_cost_less(
    pod: PodBuilder, work: WorkProgress, workload_type: str | None, gpus: int
) -> None:
    fewer = pod.asking(**{"nvidia.com/gpu": str(gpus + 1)})
    more = pod.asking(**{"nvidia.com/gpu": str(gpus + 2)})
    assert cost_of(fewer, work, workload_type).hours <= cost_of(more, work, workload_type).hours


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=20)), st.text(max_size=10), works())
def test_any_pod_has_a_cost(annotations: dict[str, str], amount: str, work: WorkProgress) -> None:
    (found,) = pod_views(a_pod().asking(cpu=amount).build())
    view = PodView("", {}, annotations, found.spec, is_template=False)
    plan = checkpoint_plan.read_leniently(annotations, SETTINGS)
    assert 0 <= cost.decide_cost(view, plan, work, SETTINGS, NOW).recorded.hours < math.inf
