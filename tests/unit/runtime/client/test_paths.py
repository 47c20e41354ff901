"""The paths of objects: no name that a user writes leads to another object, or to a collection."""

import pytest

from reprieve_runtime.client.paths import has_dot_segment, object_path


@pytest.mark.parametrize("name", [".", ".."])
def test_a_name_of_dots_is_seen(name: str) -> None:
    assert has_dot_segment(object_path("jobs", "team", name))
    assert has_dot_segment(object_path("pods", "team", name, "eviction"))


@pytest.mark.parametrize("name", ["train", "a.b", "...", "../pods", "%2e", ".a"])
def test_any_other_name_is_one_segment(name: str) -> None:
    path = object_path("jobs", "team", name)
    assert not has_dot_segment(path)
    assert path.count("/") == object_path("jobs", "team", "train").count("/")
