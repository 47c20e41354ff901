"""A bounded dictionary drops its oldest entries first."""

from reprieve_runtime.bounded_dict import BoundedDict


def filled(*keys: str, max_entries: int = 2) -> BoundedDict[str, int]:
    entries: BoundedDict[str, int] = BoundedDict(max_entries)
    for number, key in enumerate(keys):
        entries[key] = number
    return entries


def test_beyond_its_bound_the_oldest_entry_is_dropped():
    assert list(filled("a", "b", "c")) == ["b", "c"]


def test_a_key_that_is_set_again_is_the_newest():
    assert dict(filled("a", "b", "a", "c")) == {"a": 2, "c": 3}


def test_reading_a_key_does_not_make_it_newer():
    entries = filled("a", "b")
    assert entries["a"] == 0
    entries["c"] = 2
    assert "a" not in entries
