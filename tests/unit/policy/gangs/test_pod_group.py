"""A native PodGroup's preemption fields, as the API server sends them."""

import json
from typing import Any

import msgspec
import pytest

from reprieve_policy import keys
from reprieve_policy.gangs import pod_group
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.kube.pod_groups import PodGroup

SAYS = {
    "nothing": ({}, PodGroupInfo()),
    "an empty spec": ({"spec": {}}, PodGroupInfo()),
    "a gang of four": (
        {"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}},
        PodGroupInfo(min_count=4),
    ),
    "scheduled pod by pod": ({"spec": {"schedulingPolicy": {"basic": {}}}}, PodGroupInfo()),
    "disrupted as a whole": (
        {"spec": {"disruptionMode": {"all": {}}}},
        PodGroupInfo(disruption_mode=DisruptionMode.ALL),
    ),
    "disrupted pod by pod": (
        {"spec": {"disruptionMode": {"single": {}}}},
        PodGroupInfo(disruption_mode=DisruptionMode.SINGLE),
    ),
    "a priority": (
        {"spec": {"priority": -7, "priorityClassName": "low"}},
        PodGroupInfo(priority=-7, priority_class="low"),
    ),
    "a disruption mode by annotation": (
        {"metadata": {"annotations": {keys.DISRUPTION_MODE: "gang"}}},
        PodGroupInfo(disruption_mode=DisruptionMode.ALL),
    ),
    "a preemption priority": (
        {"metadata": {"annotations": {keys.PREEMPTION_PRIORITY_CLASS: "urgent"}}},
        PodGroupInfo(preemption_priority_class="urgent"),
    ),
    "a preemption priority that is no name, and as long as an annotation may be": (
        {"metadata": {"annotations": {keys.PREEMPTION_PRIORITY_CLASS: "x" * 200_000}}},
        PodGroupInfo(),
    ),
}


@pytest.mark.parametrize(("document", "want"), SAYS.values(), ids=SAYS)
def test_a_groups_fields_are_read(document: Any, want: PodGroupInfo) -> None:
    assert pod_group.read(msgspec.json.decode(json.dumps(document), type=PodGroup)) == want


def test_a_pod_has_the_priority_of_its_group() -> None:
    assert pod_group.priority_of(100, PodGroupInfo(priority=7)) == 7
    assert pod_group.priority_of(100, None) == 100
    assert pod_group.priority_of(None, None) == 0
