"""What a native PodGroup says of being preempted, as the API server sends it."""

import json
from typing import Any

import msgspec
import pytest

from reprieve_policy.gangs import pod_group
from reprieve_policy.gangs.disruption import Mode
from reprieve_policy.gangs.pod_group import Group, NativeGroup

SAYS = {
    "nothing": ({}, NativeGroup()),
    "an empty spec": ({"spec": {}}, NativeGroup()),
    "a gang of four": ({"spec": {"schedulingPolicy": {"gang": {"minCount": 4}}}}, NativeGroup(min_count=4)),
    "placed one by one": ({"spec": {"schedulingPolicy": {"basic": {}}}}, NativeGroup()),
    "disrupted as a whole": ({"spec": {"disruptionMode": {"all": {}}}}, NativeGroup(mode=Mode.ALL)),
    "disrupted pod by pod": ({"spec": {"disruptionMode": {"single": {}}}}, NativeGroup(mode=Mode.SINGLE)),
    "its priority": ({"spec": {"priority": -7, "priorityClassName": "low"}}, NativeGroup(priority=-7)),
}


@pytest.mark.parametrize(("document", "want"), SAYS.values(), ids=SAYS)
def test_what_a_group_says(document: Any, want: NativeGroup) -> None:
    assert pod_group.read(msgspec.json.decode(json.dumps(document), type=Group)) == want


def test_a_pod_has_the_priority_of_its_group() -> None:
    assert pod_group.priority_of(100, NativeGroup(priority=7)) == 7
    assert pod_group.priority_of(100, None) == 100
    assert pod_group.priority_of(None, None) == 0
