"""Which gang a pod is in, whatever the dialect: one reader, one identity."""

import pytest

from reprieve_policy import keys
from reprieve_policy.gangs import membership
from reprieve_policy.gangs.dialects import DIALECTS
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.kube.objects import PodView, pod_views
from reprieve_testing.objects.builders import PodBuilder, a_pod


def view(pod: PodBuilder) -> PodView:
    (found,) = pod_views(pod.build())
    return found


def declared(dialect: str, **rest: int | str | None) -> Gang:
    return Gang(dialect=dialect, name="a", is_declared=True, **rest)  # type: ignore[arg-type]  # named by the table only


def member(dialect: str, name: str = "a", **rest: int | str | None) -> Gang:
    return Gang(dialect=dialect, name=name, is_declared=False, **rest)  # type: ignore[arg-type]  # the same


DRAFT = a_pod().labelled(keys.DRAFT_POD_GROUP, "a")
LIGHTWEIGHT = a_pod().labelled(keys.OLD_POD_GROUP, "a")
KUEUE = a_pod().labelled(keys.KUEUE_GROUP, "a")
LEADER = a_pod().labelled(keys.LEADER_WORKER_SET, "a").annotated(keys.LEADER_WORKER_SIZE, "3")
OLD_SELECTOR = f"{keys.OLD_POD_GROUP}=a"

READ = {
    "a pod without gang keys is in none": (a_pod(), None),
    "a native PodGroup": (a_pod().in_native_gang("a"), declared("native")),
    "no native PodGroup without a name": (a_pod().in_native_gang(None), None),
    "scheduler-plugins": (
        a_pod().in_gang("a"),
        declared("pod-group", selector=f"{keys.POD_GROUP}=a"),
    ),
    "an empty name does not count, as upstream reads it": (a_pod().in_gang(""), None),
    "document 000": (
        a_pod().labelled(keys.KOORDINATOR_POD_GROUP, "a"),
        declared("koordinator-pod-group", selector=f"{keys.KOORDINATOR_POD_GROUP}=a"),
    ),
    "the older lightweight label": (
        LIGHTWEIGHT.labelled(keys.OLD_MIN_AVAILABLE, "2"),
        declared("lightweight", min_available=2, selector=OLD_SELECTOR),
    ),
    "a minimum that cannot be read counts as unsaid": (
        LIGHTWEIGHT.labelled(keys.OLD_MIN_AVAILABLE, "0"),
        declared("lightweight", selector=OLD_SELECTOR),
    ),
    "document 004": (
        DRAFT.labelled(keys.DRAFT_MIN_AVAILABLE, "2"),
        declared("draft", min_available=2, selector=f"{keys.DRAFT_POD_GROUP}=a"),
    ),
    "Koordinator": (
        a_pod().in_koordinators_gang("a", 2, 3),
        declared("koordinator", min_available=2, size=3),
    ),
    "a name that can be none counts as unsaid": (a_pod().in_koordinators_gang("a,b=c", 2), None),
    "a name that is too long counts as unsaid": (a_pod().in_koordinators_gang("a" * 254), None),
    "Volcano": (a_pod().annotated(keys.VOLCANO_GROUP, "a"), declared("volcano")),
    "Volcano's own key": (a_pod().annotated(keys.VOLCANO_OWN_GROUP, "a"), declared("volcano")),
    "Kueue": (
        KUEUE.annotated(keys.KUEUE_TOTAL, "4"),
        declared("kueue", size=4, selector=f"{keys.KUEUE_GROUP}=a"),
    ),
    "a JobSet": (a_pod().labelled(keys.JOBSET, "a"), member("jobset", selector=f"{keys.JOBSET}=a")),
    "a JobSet's Job is the JobSet": (
        a_pod().labelled(keys.JOB, "a-worker-0").labelled(keys.JOBSET, "a"),
        member("jobset", selector=f"{keys.JOBSET}=a"),
    ),
    "a group of a LeaderWorkerSet": (
        LEADER.labelled(keys.LEADER_WORKER_GROUP, "1"),
        member(
            "leader-worker-set",
            "a-1",
            size=3,
            selector=f"{keys.LEADER_WORKER_SET}=a,{keys.LEADER_WORKER_GROUP}=1",
        ),
    ),
    "a LeaderWorkerSet's pod without its group is in none": (LEADER, None),
    "a Job": (a_pod().labelled(keys.JOB, "a"), member("job", selector=f"{keys.JOB}=a")),
    "a gang that a JobSet's pods declare takes precedence over the JobSet": (
        a_pod().labelled(keys.JOBSET, "set").in_koordinators_gang("a"),
        declared("koordinator"),
    ),
    "a controller's own size is not that of a declared gang": (
        LEADER.labelled(keys.LEADER_WORKER_GROUP, "1").in_koordinators_gang("a"),
        declared("koordinator"),
    ),
}


@pytest.mark.parametrize(("pod", "expected"), READ.values(), ids=READ)
def test_the_gang_is_read(pod: PodBuilder, expected: Gang | None) -> None:
    assert membership.read(view(pod)) == expected


def test_declared_names_are_of_one_kind_and_membership_of_its_own() -> None:
    dialects = [
        a_pod().in_gang("a"),
        a_pod().in_koordinators_gang("a"),
        a_pod().in_native_gang("a"),
    ]
    assert {found.key for pod in dialects if (found := membership.read(view(pod)))} == {("", "a")}
    memberships = [
        a_pod().labelled(keys.JOB, "a"),
        a_pod().labelled(keys.JOBSET, "a"),
        a_pod().in_gang("a"),
    ]
    assert len({found.key for pod in memberships if (found := membership.read(view(pod)))}) == 3


def test_only_a_scheduling_group_is_known_to_the_api_server() -> None:
    assert declared("native").is_native
    assert not declared("pod-group").is_native


def test_declared_dialects_stand_before_membership() -> None:
    order = [dialect.is_declared for dialect in DIALECTS]
    assert order == sorted(order, reverse=True)


def test_a_place_is_named_as_in_the_object() -> None:
    (template,) = pod_views(a_pod().in_native_gang("a").in_template_of("Job"))
    (name,) = membership.gang_names(template)
    assert name.path == "spec.template.spec.schedulingGroup.podGroupName"
