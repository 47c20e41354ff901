"""What `reprieve explain` says would happen to a pod: from the same functions that decide it."""

from dataclasses import dataclass, field

import pytest

from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.kube.objects import pod_views
from reprieve_policy.preemption.cost import WorkProgress
from reprieve_policy.preemption.eviction_preview import EvictionPreview, PreviewedPod, preview
from reprieve_policy.preemption.loss import OVERHEAD_SECONDS
from reprieve_testing.objects.builders import NOW, PodBuilder, a_pod, after

DELETED = "it is deleted, with 30s between SIGTERM and SIGKILL"
EVICTED = (
    "it is evicted as soon as its PodDisruptionBudget allows that, and deleted if that is too late"
)
ALONE = "nothing replaces it: it has no controller"
NEVER = "nothing replaces it, because of reprieve.dev/requeue: never"
ANEW = (
    "if its Namespace lets Reprieve create pods, Reprieve creates it again; "
    "the replacement is informed of the preemption and the checkpoint"
)


def outlook_of(
    pod: PodBuilder,
    facts: Facts | None = None,
    *,
    has_started: bool = True,
    disruption: DisruptionMode = DisruptionMode.SINGLE,
    native_group: PodGroupInfo | None = None,
    work: WorkProgress | None = None,
) -> EvictionPreview:
    built = pod.build()
    (view,) = pod_views(built)
    subject = PreviewedPod(
        view=view,
        metadata=built.metadata,
        has_started=has_started,
        work=work or WorkProgress(),
        disruption_mode=disruption,
        native_group=native_group,
    )
    return preview(subject, facts or Facts(), NOW)


def test_the_preview_shows_how_many_pods_of_a_native_group_start_together() -> None:
    pod = a_pod().with_priority(100).in_gang("train")
    found = outlook_of(pod, native_group=PodGroupInfo(priority=7, min_count=4))
    assert 'its PodGroup "train" places 4 pods together, or none' in found.steps
    assert not any(
        "PodGroup" in step for step in outlook_of(pod, native_group=PodGroupInfo()).steps
    )


def test_the_preview_shows_the_cost_and_the_expected_loss() -> None:
    pod = a_pod().asking(cpu="2").with_hint().annotated(keys.ESTIMATED_CHECKPOINT_TIME, "1m")
    found = outlook_of(pod, work=WorkProgress(started_at=after(-3600)))
    assert found.cost.checkpoint == pytest.approx(2 / 60)
    assert found.loss_seconds == 2 * (60 + OVERHEAD_SECONDS)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pod, and each step as it is told."""

    pod: PodBuilder = field(default_factory=a_pod)
    settings: PolicySettings = field(default_factory=PolicySettings)
    has_started: bool = True
    disruption: DisruptionMode = DisruptionMode.SINGLE
    want: tuple[str, ...]


HINTED = a_pod().with_hint()
HINT_STEP = (
    'it is asked to save a checkpoint: POST to port 8080 of its own address, path "/checkpoint"'
)
ON_SIGTERM = a_pod().with_hint("sigterm:")
SIGTERM_STEP = "it is not asked: its workload saves a checkpoint on SIGTERM"
TIMES = (
    "it has 10m, 15m if it answers and is slow, up to 5m more where it asks "
    "for that; never more than 30m in all"
)


@pytest.mark.parametrize(
    "case",
    [
        Case(
            want=(
                "it gets no notice: it wants no checkpoint",
                DELETED,
                ALONE,
            )
        ),
        Case(
            pod=HINTED,
            has_started=False,
            want=("it gets no notice: it has not started", DELETED, ALONE),
        ),
        Case(pod=HINTED, want=(HINT_STEP, TIMES, DELETED, ALONE)),
        Case(
            pod=HINTED.owned_by("Job", "train"),
            want=(
                HINT_STEP,
                TIMES,
                (
                    "what its replacement needs to know is written to its controller, or to "
                    "that controller's owner"
                ),
                DELETED,
                (
                    "Job/train replaces it; the replacement is informed of the preemption "
                    "and the checkpoint"
                ),
            ),
        ),
        Case(
            pod=HINTED.owned_by("Job", "train").annotated(keys.REQUEUE, "never"),
            want=(
                HINT_STEP,
                TIMES,
                DELETED,
                (
                    "Job/train replaces it; the replacement is not informed, because of "
                    "reprieve.dev/requeue: never"
                ),
            ),
        ),
        Case(
            pod=a_pod().owned_by("Job", "sweep"),
            settings=PolicySettings(suspend_jobs=True),
            want=(
                "it gets no notice: it wants no checkpoint",
                (
                    "what its replacement needs to know is written to its controller, or to "
                    "that controller's owner"
                ),
                DELETED,
                (
                    "if all pods of its Job are victims and none failed to save, the Job is "
                    "suspended instead, for 5m"
                ),
                (
                    "Job/sweep replaces it; the replacement is informed of the preemption "
                    "and the checkpoint"
                ),
            ),
        ),
        Case(
            pod=a_pod().owned_by("Job", "sweep", api_version="batch.volcano.sh/v1alpha1"),
            settings=PolicySettings(suspend_jobs=True),
            want=(
                "it gets no notice: it wants no checkpoint",
                DELETED,
                "Job/sweep replaces it; the replacement is not informed",
            ),
        ),
        Case(
            pod=HINTED.owned_by("DaemonSet", "agent"),
            want=(
                HINT_STEP,
                TIMES,
                DELETED,
                "DaemonSet/agent replaces it; the replacement is not informed",
            ),
        ),
        Case(
            pod=HINTED.in_gang("train"),
            disruption=DisruptionMode.ALL,
            want=(
                HINT_STEP,
                TIMES,
                (
                    'its gang "train" is evicted as a unit: no member is deleted before the '
                    "last has answered"
                ),
                DELETED,
                ALONE,
            ),
        ),
        Case(pod=HINTED.in_gang("train"), want=(HINT_STEP, TIMES, DELETED, ALONE)),
        Case(
            pod=a_pod().annotated(keys.CLEANERS_BEFORE, "example.com/disk,example.com/net"),
            want=(
                "it gets no notice: it wants no checkpoint",
                (
                    'finalizers "example.com/disk", "example.com/net" are waited for before '
                    "SIGTERM, for 10m at the longest"
                ),
                DELETED,
                ALONE,
            ),
        ),
        Case(
            pod=HINTED.annotated(keys.CHECKPOINT_TIMEOUT, "28m").annotated(keys.MAX_DEFERRAL, "0s"),
            settings=PolicySettings(end_with="evict", grace_cap_seconds=5),
            want=(
                HINT_STEP,
                (
                    "it has 28m, 30m if it answers and is slow, up to 5m more where it asks "
                    "for that; never more than 30m in all"
                ),
                f"{EVICTED}, with 5s between SIGTERM and SIGKILL",
                ALONE,
            ),
        ),
        Case(
            pod=HINTED,
            settings=PolicySettings(recreate_bare_pods=True),
            want=(HINT_STEP, TIMES, DELETED, ANEW),
        ),
        Case(
            pod=HINTED.annotated(keys.REQUEUE, "never"),
            settings=PolicySettings(recreate_bare_pods=True),
            want=(HINT_STEP, TIMES, DELETED, NEVER),
        ),
        Case(
            pod=HINTED.owned_by("Sweep", controls=False),
            settings=PolicySettings(recreate_bare_pods=True),
            want=(HINT_STEP, TIMES, DELETED, ALONE),
        ),
        Case(
            pod=ON_SIGTERM.owned_by("Job", "train"),
            settings=PolicySettings(suspend_jobs=True),
            want=(
                SIGTERM_STEP,
                (
                    "what its replacement needs to know is written to its controller, or to "
                    "that controller's owner"
                ),
                "it is deleted, with 10m between SIGTERM and SIGKILL",
                (
                    "Job/train replaces it; the replacement is informed of the preemption "
                    "and the checkpoint"
                ),
            ),
        ),
        Case(
            pod=ON_SIGTERM,
            settings=PolicySettings(checkpoint_timeout_seconds=20),
            want=(SIGTERM_STEP, DELETED, ALONE),
        ),
        Case(
            pod=ON_SIGTERM,
            has_started=False,
            want=("it gets no notice: it has not started", DELETED, ALONE),
        ),
        Case(
            pod=HINTED,
            settings=PolicySettings(extension_percent=0, max_deferral_seconds=0),
            want=(HINT_STEP, "it has 10m; never more than 30m in all", DELETED, ALONE),
        ),
    ],
)
def test_the_steps_are_listed_in_order(case: Case) -> None:
    facts = Facts(settings=case.settings)
    outlook = outlook_of(case.pod, facts, has_started=case.has_started, disruption=case.disruption)
    assert outlook.steps == case.want


@pytest.mark.parametrize(
    ("hint", "carried"),
    [
        ("grpc://:9000", "a gRPC call to port 9000 of its own address"),
        ("signal://USR1?container=main", 'SIGUSR1 to container "main"'),
        ("file:///dev/shm/ask", 'file "/dev/shm/ask"'),
        ("annotation:", "annotation reprieve.dev/checkpoint-request"),
    ],
)
def test_the_preview_shows_how_the_hint_reaches_the_workload(hint: str, carried: str) -> None:
    outlook = outlook_of(a_pod().with_hint(hint))
    assert outlook.steps[0] == f"it is asked to save a checkpoint: {carried}"
