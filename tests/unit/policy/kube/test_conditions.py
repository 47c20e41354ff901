"""Whether an object has a condition."""

from reprieve_policy.kube.conditions import Condition, find_true, is_true

READY = Condition(type="Ready", status="True", lastTransitionTime="2026-11-21T12:00:00Z")
NOT_READY = Condition(type="Ready", status="False")
OTHER = Condition(type="PodScheduled", status="True")


def test_a_condition_holds_with_its_type_and_the_status_true() -> None:
    assert find_true([OTHER, NOT_READY, READY], "Ready") == READY
    assert is_true([READY], "Ready")


def test_a_condition_that_is_false_missing_or_of_another_type_does_not_hold() -> None:
    assert not is_true([NOT_READY], "Ready")
    assert not is_true([OTHER], "Ready")
    assert not is_true([], "Ready")
    assert not is_true(None, "Ready")
