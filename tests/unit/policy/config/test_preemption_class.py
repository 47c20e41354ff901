"""The preemption class: how it is read, which are allowed, and which may preempt which."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.config import preemption_class
from reprieve_policy.config.preemption_class import BANDED, STRICT, ClassSet
from reprieve_policy.verdict import Violation, ViolationKind

CLASSES = range(11)


@pytest.mark.parametrize("value", CLASSES)
def test_every_class_is_read(value: int) -> None:
    assert preemption_class.parse(str(value), "path") == value


@pytest.mark.parametrize(
    "text", ["11", "-1", "100", "04", "+4", "4.0", " 4", "4\n", "٤", "４", "high", ""]
)
def test_an_invalid_class_is_refused(text: str) -> None:
    want = Violation(
        "path", ViolationKind.INVALID, text, "must be between 0 and 10, in plain digits"
    )
    assert preemption_class.parse(text, "path") == want


SETS = {
    "a class": ("3", {3}, "3"),
    "a range": ("0-6", set(range(7)), "0-6"),
    "everything": ("0-10", set(CLASSES), "0-10"),
    "a list": ("5,0-2", {0, 1, 2, 5}, "0-2,5"),
    "spaces after commas": ("0, 2", {0, 2}, "0,2"),
    "ranges that overlap": ("0-4,3-6", set(range(7)), "0-6"),
    "a range of one": ("4-4", {4}, "4"),
    "ten alone": ("10", {10}, "10"),
}


@pytest.mark.parametrize(("text", "classes", "shown"), SETS.values(), ids=SETS)
def test_allowed_classes_are_read_and_shown(text: str, classes: set[int], shown: str) -> None:
    found = preemption_class.parse_set(text, "path")
    assert found == ClassSet(frozenset(classes))
    assert str(found) == shown
    assert all((value in found) is (value in classes) for value in CLASSES)


@pytest.mark.parametrize(
    "text", ["", ",", "3,", "6-0", "0-11", "11", "0–6", "0 - 6", "a", "0-6-8", "-1"]
)
def test_an_invalid_list_of_classes_is_refused(text: str) -> None:
    found = preemption_class.parse_set(text, "path")
    assert isinstance(found, Violation)
    assert found.value == text
    assert found.detail == 'must be classes or ranges between 0 and 10, like "0-6" or "0-2,5"'


@given(st.frozensets(st.sampled_from(CLASSES), min_size=1).map(ClassSet))
def test_a_set_that_is_shown_is_read_back(classes: ClassSet) -> None:
    assert preemption_class.parse_set(str(classes), "path") == classes


def test_strict_is_strictly_higher_and_never_ten() -> None:
    for preemptor, victim in product(CLASSES, CLASSES):
        assert preemption_class.may_preempt(preemptor, victim, STRICT) is (preemptor > victim)


BANDS = {0: 1, 1: 4, 2: 4, 3: 4, 4: 7, 5: 7, 6: 7, 7: 10, 8: 10, 9: 10}


def test_banded_is_the_specifications_table() -> None:
    for preemptor, (victim, lowest) in product(CLASSES, BANDS.items()):
        assert preemption_class.may_preempt(preemptor, victim, BANDED) is (preemptor >= lowest)


@pytest.mark.parametrize("rule", [STRICT, BANDED])
def test_class_10_is_never_preempted(rule: str) -> None:
    assert not any(preemption_class.may_preempt(preemptor, 10, rule) for preemptor in CLASSES)


@pytest.mark.parametrize("rule", [STRICT, BANDED])
def test_no_class_preempts_its_own_or_a_higher_one(rule: str) -> None:
    pairs = ((one, other) for one, other in product(CLASSES, CLASSES) if one <= other)
    assert not any(preemption_class.may_preempt(one, other, rule) for one, other in pairs)


@pytest.mark.parametrize("rule", [STRICT, BANDED])
def test_all_classes_above_a_possible_preemptor_may_preempt_too(rule: str) -> None:
    for one, victim in product(CLASSES, CLASSES):
        if preemption_class.may_preempt(one, victim, rule):
            assert all(
                preemption_class.may_preempt(higher, victim, rule) for higher in range(one, 11)
            )


@pytest.mark.parametrize("rule", [STRICT, BANDED])
def test_a_victims_victim_may_be_taken_directly(rule: str) -> None:
    for one, middle, last in product(CLASSES, CLASSES, CLASSES):
        chain = preemption_class.may_preempt(one, middle, rule) and preemption_class.may_preempt(
            middle, last, rule
        )
        assert preemption_class.may_preempt(one, last, rule) or not chain


def test_every_victim_under_banded_is_a_victim_under_strict() -> None:
    for preemptor, victim in product(CLASSES, CLASSES):
        banded = preemption_class.may_preempt(preemptor, victim, BANDED)
        assert preemption_class.may_preempt(preemptor, victim, STRICT) or not banded


@pytest.mark.parametrize("value", CLASSES)
def test_only_seven_and_above_are_protected_by_having_no_checkpoint(value: int) -> None:
    assert preemption_class.is_non_preemptible(value, has_checkpoint=True) is (value == 10)
    assert preemption_class.is_non_preemptible(value, has_checkpoint=False) is (value >= 7)
