"""What a native PodGroup states of itself."""

from reprieve_policy.kube.pod_groups import PodGroup, PodGroupSpec


def test_a_group_states_its_priority() -> None:
    assert PodGroup(spec=PodGroupSpec(priority=0)).priority == 0


def test_a_group_without_a_spec_or_a_priority_states_none() -> None:
    assert PodGroup().priority is None
    assert PodGroup(spec=PodGroupSpec()).priority is None
