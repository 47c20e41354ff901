"""Text from users, made fit to be kept."""

from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.kube.values import text

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)


@given(ANY_TEXT, st.integers(min_value=0, max_value=20))
def test_a_clipped_text_is_one_printable_line_within_its_limit(value: str, limit: int) -> None:
    clipped = text.clip(value, limit)
    assert clipped.isprintable()
    assert len(clipped.encode()) <= limit


@given(ANY_TEXT, st.integers(min_value=0, max_value=20))
def test_clipping_again_changes_nothing(value: str, limit: int) -> None:
    assert text.is_clean(text.clip(value, limit), limit)


def test_a_short_line_stays_as_it_is() -> None:
    assert text.clip("koord-descheduler: 再平衡") == "koord-descheduler: 再平衡"


def test_a_character_is_never_cut_in_two() -> None:
    assert text.clip("a再平", 5) == "a再"


def test_a_line_end_becomes_a_space() -> None:
    assert text.clip("two\nlines") == "two lines"


def test_a_nested_value_is_only_hinted_at() -> None:
    assert [text.show(value) for value in ({"a": 1}, [1], "text", True, None, 1.5)] == [
        "{…}",
        "[…]",
        "text",
        "true",
        "null",
        "1.5",
    ]
