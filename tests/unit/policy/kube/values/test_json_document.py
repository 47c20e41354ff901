"""JSON that users wrote: its limits, and the checks of its values."""

import pytest

from reprieve_policy.kube.values import json_document

UNREADABLE = {
    "not JSON": "{",
    "not UTF-8": b"\xff",
    "too long": '"' + "a" * 100_000 + '"',
    "nested too deep": "[" * 50_000,
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_an_unreadable_document_is_one_kind_of_error(text: str | bytes) -> None:
    assert json_document.read(text, 60_000) is None
    with pytest.raises(ValueError, match=r"."):
        json_document.parse(text, 60_000)


def test_a_document_is_read() -> None:
    assert json_document.read('{"a":[1,null]}', 14) == {"a": [1, None]}


def test_null_is_a_document() -> None:
    assert json_document.parse("null", 4) is None


@pytest.mark.parametrize("value", [True, False, 1.0, "1", None, 0, 4, 2**63])
def test_anything_but_a_whole_number_within_bounds_is_refused(value: object) -> None:
    assert not json_document.is_whole_number(value, 1, 3)


def test_the_bounds_themselves_are_accepted() -> None:
    assert all(json_document.is_whole_number(value, 1, 3) for value in (1, 2, 3))
    assert json_document.is_whole_number(2**63 - 1, 0)
    assert not json_document.is_whole_number(2**63, 0)


@pytest.mark.parametrize(("value", "want"), [(None, True), ("", True), (1, False), ([], False)])
def test_an_optional_text_is_a_text_or_absent(value: object, *, want: bool) -> None:
    assert json_document.is_optional_text(value) is want
