"""What a PodGroup of the Coscheduling plugin says of the start of its gang."""

import pytest

from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.gangs import membership, start_requirements
from reprieve_policy.gangs.start_requirements import NO_REQUIREMENTS, StartRequirements
from reprieve_policy.kube.coscheduling_groups import CoschedulingGroup, CoschedulingGroupSpec
from reprieve_policy.kube.objects import pod_views
from reprieve_testing.objects.builders import PodBuilder, a_pod
from reprieve_testing.objects.snapshots import amounts


def a_group(**spec: object) -> CoschedulingGroup:
    return CoschedulingGroup(spec=CoschedulingGroupSpec(**spec))  # type: ignore[arg-type]


GROUPS = {
    "nothing is required": (a_group(), NO_REQUIREMENTS),
    "all of it": (
        a_group(minMember=4, minResources={"cpu": "8"}, scheduleTimeoutSeconds=60),
        StartRequirements(minimum=4, min_resources=amounts(cpu=8), timeout_seconds=60),
    ),
    "values without a meaning": (
        a_group(minMember=0, minResources={"cpu": "many"}, scheduleTimeoutSeconds=-1),
        NO_REQUIREMENTS,
    ),
}


@pytest.mark.parametrize(("group", "want"), GROUPS.values(), ids=GROUPS)
def test_what_a_group_requires(group: CoschedulingGroup, want: StartRequirements) -> None:
    assert start_requirements.read(group) == want


TIMEOUTS = {None: 600, 60: 60, 6000: 600}


@pytest.mark.parametrize(("own", "want"), TIMEOUTS.items())
def test_a_group_may_only_shorten_the_timeout(own: int | None, want: int) -> None:
    settings = PolicySettings(gang_gate_timeout_seconds=600)
    assert StartRequirements(timeout_seconds=own).timeout_under(settings) == want


NAMES = {
    "its own label": (a_pod().labelled(keys.POD_GROUP, "train"), "train"),
    "the label of another project": (a_pod().labelled(keys.OLD_POD_GROUP, "train"), None),
    "no gang": (a_pod(), None),
}


@pytest.mark.parametrize(("pod", "want"), NAMES.values(), ids=NAMES)
def test_which_pods_have_a_group(pod: PodBuilder, want: str | None) -> None:
    gang = membership.read(next(pod_views(pod.build())))
    assert start_requirements.group_name_of(gang) == want


def test_no_number_of_resources_fills_the_memory() -> None:
    written = {f"example.com/{number}{'x' * 200}": "1" for number in range(1000)}
    written |= {"x" * 400: "1"}
    assert len(start_requirements.read(a_group(minResources=written)).min_resources) == 32
    found = start_requirements.read(a_group(minResources={"x" * 400: "1", "cpu": "8"}))
    assert found.min_resources == amounts(cpu=8)
