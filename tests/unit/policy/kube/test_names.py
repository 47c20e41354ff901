"""Which text can be the name of an object."""

import pytest

from reprieve_policy.kube.names import is_namespace_name, is_object_name, is_uid

OF_BOTH = ("a", "0", "node-1", "a" * 63)
OF_OBJECTS = ("ip-10-0-0-1.eu.example.com", "a" * 253, "1.2")
OF_NEITHER = ("", "..", ".", "-a", "a-", "a..b", "a.-b", "../pods", "a/b", "a?b", "A", "a\n", "ä")


@pytest.mark.parametrize("name", OF_BOTH)
def test_a_label_names_any_object(name: str) -> None:
    assert is_namespace_name(name)
    assert is_object_name(name)


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_a_subdomain_names_no_namespace(name: str) -> None:
    assert is_object_name(name)
    assert not is_namespace_name(name)


@pytest.mark.parametrize("name", [*OF_NEITHER, "a" * 254])
def test_no_object_is_called_by_a_path(name: str) -> None:
    assert not is_object_name(name)
    assert not is_namespace_name(name)


def test_a_uid_has_some_letters_and_not_very_many() -> None:
    assert [is_uid("x" * length) for length in (0, 36, 128, 129)] == [False, True, True, False]
