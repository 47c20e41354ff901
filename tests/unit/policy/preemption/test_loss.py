"""The work that preempting a pod is expected to lose, and whether notice pays."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.objects import pod_views
from reprieve_policy.preemption import loss
from reprieve_policy.preemption.cost import WorkProgress
from reprieve_policy.preemption.loss import OVERHEAD_SECONDS, LossInputs, SaveWay
from reprieve_testing.objects.builders import NOW, PodBuilder, a_pod, after

SETTINGS = PolicySettings()  # a timeout of 10 min, a ceiling of 30
HOUR = 3600
GPUS = {"nvidia.com/gpu": "8", "cpu": "64"}
SILENT = a_pod().asking(**GPUS)


def inputs_of(pod: PodBuilder) -> LossInputs:
    (view,) = pod_views(pod.build())
    plan = checkpoint_plan.read_leniently(view.annotations, SETTINGS)
    return loss.loss_inputs_of(view, plan, SETTINGS)


def with_times(pod: PodBuilder, estimate: str | None, took: str | None) -> PodBuilder:
    """Return the pod with the time that a save takes: declared, and learned."""
    if estimate is not None:
        pod = pod.annotated(keys.ESTIMATED_CHECKPOINT_TIME, estimate)
    return pod if took is None else pod.annotated(keys.LAST_CHECKPOINT_TOOK, took)


def saving(
    estimate: str | None = None, strategy: str = "auto", took: str | None = None
) -> PodBuilder:
    return with_times(SILENT.with_checkpoint(strategy), estimate, took)


def saving_on_sigterm(estimate: str | None = None, took: str | None = None) -> PodBuilder:
    return with_times(SILENT.with_hint("sigterm:"), estimate, took)


@dataclass(frozen=True, kw_only=True)
class Case:
    pod: PodBuilder = SILENT
    started: float | None = HOUR
    """Seconds ago."""
    saved: float | None = None
    loses: float
    """Seconds of each of its eight devices."""
    loses_less_at_once: bool = False

    @property
    def progress(self) -> WorkProgress:
        return WorkProgress(
            started_at=None if self.started is None else after(-self.started),
            saved_at=None if self.saved is None else after(-self.saved),
        )


CASES = {
    "a pod that has not started loses nothing": Case(started=None, loses=0),
    "nor does one that would be asked, and it need not be": Case(
        pod=saving("2m"), started=None, loses=0, loses_less_at_once=True
    ),
    "a pod that never saves loses all since its start; it is not asked": Case(loses=HOUR),
    "how long a save took counts for nothing if the pod saves no more": Case(
        pod=with_times(SILENT, "2m", "45s"), loses=HOUR
    ),
    "a pod that saves in time loses what it did since its last save": Case(saved=90, loses=90),
    "a save from before its start was its predecessor's": Case(saved=2 * HOUR, loses=HOUR),
    "a save in the future counts as one of now": Case(saved=-60, loses=0),
    "a pod that saves when asked loses the save and the overhead": Case(
        pod=saving("2m"), loses=120 + OVERHEAD_SECONDS
    ),
    "so does one with a manual checkpoint": Case(
        pod=saving("2m", "manual"), loses=120 + OVERHEAD_SECONDS
    ),
    "a young pod loses less without a save": Case(
        pod=saving("2m"), started=60, loses=60, loses_less_at_once=True
    ),
    "at the very second at which both lose the same, it goes at once": Case(
        pod=saving("2m"), started=120 + OVERHEAD_SECONDS, loses=121, loses_less_at_once=True
    ),
    "a second later it is asked": Case(pod=saving("2m"), started=121 + OVERHEAD_SECONDS, loses=121),
    "a pod that has just saved loses less without a save": Case(
        pod=saving("2m"), saved=30, loses=30, loses_less_at_once=True
    ),
    "what the save of the replaced pod took counts where nothing is declared": Case(
        pod=saving(took="45s"), loses=45 + OVERHEAD_SECONDS
    ),
    "a young pod whose save time is learned loses less without a save": Case(
        pod=saving(took="45s"), started=40, loses=40, loses_less_at_once=True
    ),
    "what is declared counts before that": Case(
        pod=saving("2m", took="45s"), loses=120 + OVERHEAD_SECONDS
    ),
    "also if it is shorter": Case(pod=saving("30s", took="45s"), loses=30 + OVERHEAD_SECONDS),
    "a learned time that cannot be read counts as unknown": Case(
        pod=saving(took="soon"), loses=600 + OVERHEAD_SECONDS
    ),
    "an unknown save takes the timeout": Case(pod=saving(), loses=600 + OVERHEAD_SECONDS),
    "a young pod whose save takes an unknown time is asked": Case(
        pod=saving(), started=60, loses=60
    ),
    "also if no save could pay": Case(
        pod=saving(), started=OVERHEAD_SECONDS, loses=OVERHEAD_SECONDS
    ),
    "no save takes longer than a victim waits": Case(
        pod=saving("1000h"), started=100 * HOUR, loses=1800 + OVERHEAD_SECONDS
    ),
    "what is learned counts up to the timeout, as an unknown save does": Case(
        pod=saving(took="277h"), started=100 * HOUR, loses=600 + OVERHEAD_SECONDS
    ),
    "a pod that saves on SIGTERM loses the save": Case(pod=saving_on_sigterm("2m"), loses=120),
    "of which it gets no more time than pays": Case(
        pod=saving_on_sigterm("2m"), started=60, loses=60, loses_less_at_once=True
    ),
    "also in its usual grace period it loses work": Case(
        pod=saving_on_sigterm("2m"), started=90, loses=90, loses_less_at_once=True
    ),
    "a second later it gets the time for its save": Case(
        pod=saving_on_sigterm("2m"), started=91, loses=91
    ),
    "a young pod that saves on SIGTERM in an unknown time gets the timeout for it": Case(
        pod=saving_on_sigterm(took="45s"), started=60, loses=60
    ),
    "its grace period is the timeout, whatever a save by request took": Case(
        pod=saving_on_sigterm(took="45s"), loses=600
    ),
    "a declared save that takes longer than its timeout is cut short": Case(
        pod=saving_on_sigterm("20m"), loses=600
    ),
    "its unknown save takes the timeout": Case(pod=saving_on_sigterm(), loses=600),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_a_pod_loses_and_whether_it_loses_less_at_once(case: Case) -> None:
    inputs = inputs_of(case.pod)
    assert loss.expected_loss(inputs, case.progress, NOW) == 8 * case.loses
    at_once = loss.loses_less_at_once(inputs, case.progress, NOW, grace_seconds=30)
    assert at_once is case.loses_less_at_once


@pytest.mark.parametrize(
    ("pod", "way"),
    [
        (SILENT, SaveWay.NOT_AT_THE_END),
        (saving(), SaveWay.WHEN_ASKED),
        (saving_on_sigterm(), SaveWay.ON_SIGTERM),
    ],
    ids=[SaveWay.NOT_AT_THE_END, SaveWay.WHEN_ASKED, SaveWay.ON_SIGTERM],
)
def test_when_a_pod_saves(pod: PodBuilder, way: SaveWay) -> None:
    assert inputs_of(pod).way is way


def test_where_preempted_pods_get_no_notice_no_save_keeps_work() -> None:
    (view,) = pod_views(saving("1m").build())
    plan = checkpoint_plan.read_leniently(view.annotations, SETTINGS)
    settings = replace(SETTINGS, deletes_preempted=True)
    assert loss.loss_inputs_of(view, plan, settings) == LossInputs(devices=8)


def test_a_pod_without_gpus_loses_cpu_seconds() -> None:
    progress = WorkProgress(started_at=after(-60))
    assert loss.expected_loss(inputs_of(a_pod().asking(cpu="500m")), progress, NOW) == 30


TIMES = st.none() | st.integers(-(10**6), 10**6)
ANNOTATIONS = st.fixed_dictionaries(
    {},
    optional={
        keys.CHECKPOINT: st.sampled_from(["auto", "manual", "none", "?"]),
        keys.CHECKPOINT_HINT: st.sampled_from(["annotation:", "http://:80/", "sigterm:", "?"]),
        keys.CHECKPOINT_TIMEOUT: st.sampled_from(["1s", "30m", "90h", "?"]),
        keys.ESTIMATED_CHECKPOINT_TIME: st.sampled_from(["1s", "30m", "90h", "?"]),
        keys.LAST_CHECKPOINT_TOOK: st.sampled_from(["1s", "30m", "90h", "0s", "?", "9" * 5000]),
    },
)


@given(ANNOTATIONS, TIMES, TIMES)
def test_every_pod_has_a_loss_which_no_annotation_raises(
    annotations: dict[str, str], started: int | None, saved: int | None
) -> None:
    pod = SILENT
    for key, text in annotations.items():
        pod = pod.annotated(key, text)
    inputs = inputs_of(pod)
    progress = WorkProgress(
        started_at=None if started is None else after(started),
        saved_at=None if saved is None else after(saved),
    )
    lost = loss.expected_loss(inputs, progress, NOW)

    silent = replace(progress, saved_at=None)
    assert 0 <= lost <= loss.expected_loss(inputs_of(SILENT), silent, NOW)
    if inputs.way is SaveWay.WHEN_ASKED:
        assert lost <= 8 * (SETTINGS.ceiling_seconds + OVERHEAD_SECONDS)
    if inputs.way is SaveWay.ON_SIGTERM:
        assert lost <= 8 * SETTINGS.ceiling_seconds
    if loss.loses_less_at_once(inputs, progress, NOW, grace_seconds=0):
        assert lost == 8 * loss.unsaved_seconds(progress, NOW)


@given(ANNOTATIONS, TIMES, TIMES)
def test_what_a_replacement_says_of_its_saves_only_lowers_its_loss(
    annotations: dict[str, str], started: int | None, saved: int | None
) -> None:
    without = SILENT
    for key in annotations.keys() - {keys.LAST_CHECKPOINT_TOOK}:
        without = without.annotated(key, annotations[key])
    pod = with_times(without, None, annotations.get(keys.LAST_CHECKPOINT_TOOK))
    unsaved = WorkProgress(started_at=None if started is None else after(started))
    progress = replace(unsaved, saved_at=None if saved is None else after(saved))
    most = loss.expected_loss(inputs_of(without), unsaved, NOW)
    assert loss.expected_loss(inputs_of(pod), progress, NOW) <= most


@given(st.integers(0, 10**5), st.integers(0, 10**5), st.integers(0, 3000))
def test_once_a_pod_is_asked_it_is_asked_at_every_later_time(
    started: int, later: int, save: int
) -> None:
    inputs = LossInputs(
        devices=1, way=SaveWay.WHEN_ASKED, save_seconds=save, is_save_time_known=True
    )
    progress = WorkProgress(started_at=after(-started))
    if not loss.loses_less_at_once(inputs, progress, NOW, grace_seconds=0):
        assert not loss.loses_less_at_once(inputs, progress, after(later), grace_seconds=0)
