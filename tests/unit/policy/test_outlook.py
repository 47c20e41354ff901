"""What `reprieve explain` says would happen to a pod: put together from what decides it then."""

from dataclasses import dataclass, field, replace

import pytest

from reprieve_policy import keys
from reprieve_policy.cost import Work
from reprieve_policy.disruption import Mode
from reprieve_policy.eviction import Ground
from reprieve_policy.facts import Facts
from reprieve_policy.namespace import NamespacePolicy
from reprieve_policy.native_group import NativeGroup
from reprieve_policy.objects import pod_views
from reprieve_policy.outlook import Outlook, Subject, Tolerated, foresee
from reprieve_policy.settings import PolicySettings
from reprieve_policy.walltime import Walltime
from reprieve_testing.builders import NOW, PodBuilder, PriorityClassBuilder, a_pod, a_priority_class, after

SENSITIVE = NamespacePolicy(workload_type="sensitive")
LOW = a_priority_class().named("low").worth(8000)
HIGH = a_priority_class().named("high").worth(9000)
DELETED = "it is deleted, with 30s between SIGTERM and SIGKILL"
ALONE = "nothing replaces it: it has no controller"


def facts_with(*classes: PriorityClassBuilder, settings: PolicySettings | None = None) -> Facts:
    built = [found.build() for found in classes]
    named = {found.metadata.name or "": found for found in built}
    return Facts(settings=settings or PolicySettings(), priority_classes=named)


def outlook_of(
    pod: PodBuilder,
    facts: Facts | None = None,
    *,
    has_started: bool = True,
    scheduled: float | None = None,
    walltime: Walltime | None = None,
    disruption: Mode = Mode.SINGLE,
    native_group: NativeGroup | None = None,
) -> Outlook:
    built = pod.build()
    (view,) = pod_views(built)
    subject = Subject(
        view=view,
        metadata=built.metadata,
        has_started=has_started,
        scheduled_at=None if scheduled is None else after(scheduled),
        work=Work(walltime=walltime),
        disruption=disruption,
        native_group=native_group,
    )
    return foresee(subject, facts or Facts(), NOW)


def test_a_native_group_says_with_which_priority_its_pods_are_defended_and_how_many_start_together() -> None:
    pod = a_pod().with_priority(100).in_gang("train")
    found = outlook_of(pod, native_group=NativeGroup(priority=7, min_count=4))
    assert found.preemption_priority == 7
    assert 'its PodGroup "train" places 4 pods together, or none' in found.steps
    assert outlook_of(pod).preemption_priority == 100
    assert not any("PodGroup" in step for step in outlook_of(pod, native_group=NativeGroup()).steps)


@pytest.mark.parametrize(
    ("pod", "preemptors"),
    [
        (a_pod().in_class(0), tuple(range(1, 11))),
        (a_pod(), (5, 6, 7, 8, 9, 10)),
        (a_pod().in_class(6), (7, 8, 9, 10)),
    ],
)
def test_only_higher_classes_may_preempt_it(pod: PodBuilder, preemptors: tuple[int, ...]) -> None:
    assert outlook_of(pod).preemptor_classes == preemptors


def test_nobody_preempts_a_sensitive_workload() -> None:
    outlook = outlook_of(a_pod(), replace(Facts(), namespace=SENSITIVE))
    assert (outlook.preemption_class, outlook.preemptor_classes) == (10, ())
    assert outlook.protected is not None
    assert (outlook.protected.ground, outlook.protected.until) == (Ground.NON_PREEMPTIBLE, None)


def test_one_that_is_nearly_done_is_let_finish() -> None:
    outlook = outlook_of(a_pod(), walltime=Walltime(after(-3600), 3720))
    assert outlook.protected is not None
    assert (outlook.protected.ground, outlook.protected.until) == (Ground.NEAR_COMPLETION, after(120))


@pytest.mark.parametrize(
    ("pod", "priority"),
    [
        (a_pod(), 0),
        (a_pod().with_priority(8000, "low"), 8000),
        (a_pod().with_priority(8000, "low").defended_as("high"), 9000),
        (a_pod().with_priority(8000, "low").defended_as("unheard-of"), 8000),
    ],
)
def test_it_is_defended_with_what_it_names_else_with_its_priority(pod: PodBuilder, priority: int) -> None:
    assert outlook_of(pod, facts_with(LOW, HIGH)).preemption_priority == priority


@dataclass(frozen=True, kw_only=True)
class Toleration:
    """Annotations of the pod's PriorityClass, when it was scheduled, and what follows."""

    given: PriorityClassBuilder
    scheduled: float | None = -60
    want: Tolerated | None


@pytest.mark.parametrize(
    "case",
    [
        Toleration(given=LOW, want=None),
        Toleration(given=LOW.tolerating(seconds="-1", below="10000"), want=Tolerated(minimum=10000, until=None)),
        Toleration(given=LOW.tolerating(seconds="600", below="10000"), want=Tolerated(minimum=10000, until=after(540))),
        Toleration(
            given=LOW.tolerating(seconds="600", below="10000"),
            scheduled=None,
            want=Tolerated(minimum=10000, until=None),
        ),
        Toleration(given=LOW.tolerating(seconds="60", below="10000"), want=None),
        Toleration(given=LOW.tolerating(seconds="0", below="10000"), want=None),
        # Nobody below its own priority would preempt it anyway.
        Toleration(given=LOW.tolerating(seconds="600", below="8001"), want=None),
        Toleration(given=LOW.tolerating(seconds="soon", below="10000"), want=None),
    ],
)
def test_its_priority_class_refuses_lower_preemptors_for_a_time(case: Toleration) -> None:
    outlook = outlook_of(a_pod().with_priority(8000, "low"), facts_with(case.given), scheduled=case.scheduled)
    assert outlook.tolerated == case.want


@dataclass(frozen=True, kw_only=True)
class Story:
    """A pod, and each step as it is told."""

    pod: PodBuilder = field(default_factory=a_pod)
    settings: PolicySettings = field(default_factory=PolicySettings)
    has_started: bool = True
    disruption: Mode = Mode.SINGLE
    want: tuple[str, ...]


HINTED = a_pod().with_hint()
ASKED = 'it is asked to save a checkpoint: POST to port 8080 of its own address, path "/checkpoint"'
TIMES = "it has 10m, 15m if it answers and is slow, up to 5m more where it asks for that; never more than 30m in all"


@pytest.mark.parametrize(
    "story",
    [
        Story(
            want=(
                "nobody is asked and nothing is waited for: it wants no checkpoint",
                DELETED,
                ALONE,
            )
        ),
        Story(
            pod=HINTED,
            has_started=False,
            want=("nobody is asked and nothing is waited for: it has not started", DELETED, ALONE),
        ),
        Story(pod=HINTED, want=(ASKED, TIMES, DELETED, ALONE)),
        Story(
            pod=HINTED.owned_by("Job", "train"),
            want=(
                ASKED,
                TIMES,
                "what its replacement needs to know is written to its controller, or to what that is a part of",
                DELETED,
                "Job/train replaces it; the replacement is told of the preemption and of the checkpoint",
            ),
        ),
        Story(
            pod=HINTED.owned_by("Job", "train").annotated(keys.REQUEUE, "never"),
            want=(ASKED, TIMES, DELETED, "Job/train replaces it; the replacement is told nothing"),
        ),
        Story(
            pod=a_pod().owned_by("Job", "sweep"),
            settings=PolicySettings(suspend_jobs=True),
            want=(
                "nobody is asked and nothing is waited for: it wants no checkpoint",
                "what its replacement needs to know is written to its controller, or to what that is a part of",
                DELETED,
                "where all pods of its Job must go and none has failed to save, that is suspended instead, for 5m",
                "Job/sweep replaces it; the replacement is told of the preemption and of the checkpoint",
            ),
        ),
        Story(
            pod=HINTED.owned_by("DaemonSet", "agent"),
            want=(ASKED, TIMES, DELETED, "DaemonSet/agent replaces it; the replacement is told nothing"),
        ),
        Story(
            pod=HINTED.in_gang("train"),
            disruption=Mode.ALL,
            want=(
                ASKED,
                TIMES,
                'its gang "train" goes as a whole: none is deleted before the last has answered',
                DELETED,
                ALONE,
            ),
        ),
        Story(pod=HINTED.in_gang("train"), want=(ASKED, TIMES, DELETED, ALONE)),
        Story(
            pod=HINTED.annotated(keys.CHECKPOINT_TIMEOUT, "28m").annotated(keys.MAX_DEFERRAL, "0s"),
            settings=PolicySettings(end_with="evict", grace_cap_seconds=5),
            want=(
                ASKED,
                "it has 28m, 30m if it answers and is slow, up to 5m more where it asks for that; never more than 30m in all",
                "it is evicted as soon as its PodDisruptionBudget lets it go, with 5s between SIGTERM and SIGKILL",
                ALONE,
            ),
        ),
        Story(
            pod=HINTED,
            settings=PolicySettings(extension_percent=0, max_deferral_seconds=0),
            want=(ASKED, "it has 10m; never more than 30m in all", DELETED, ALONE),
        ),
    ],
)
def test_each_step_is_told_in_order(story: Story) -> None:
    facts = Facts(settings=story.settings)
    outlook = outlook_of(story.pod, facts, has_started=story.has_started, disruption=story.disruption)
    assert outlook.steps == story.want


@pytest.mark.parametrize(
    ("hint", "carried"),
    [
        ("grpc://:9000", "a gRPC call to port 9000 of its own address"),
        ("signal://USR1?container=main", 'SIGUSR1 to container "main"'),
        ("file:///dev/shm/ask", 'file "/dev/shm/ask"'),
        ("annotation:", "annotation reprieve.dev/checkpoint-request"),
    ],
)
def test_it_is_said_how_the_workload_is_asked(hint: str, carried: str) -> None:
    outlook = outlook_of(a_pod().with_hint(hint))
    assert outlook.steps[0] == f"it is asked to save a checkpoint: {carried}"
