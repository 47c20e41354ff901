"""Decoding JSON of any depth."""

import dataclasses
import importlib
import json
import pkgutil
from collections.abc import Iterator

import msgspec
import pytest

import reprieve_certs
import reprieve_operator
import reprieve_policy
import reprieve_runtime
import reprieve_webhooks
from reprieve_policy.kube.objects import Resource
from reprieve_runtime import deep

CASES = {
    "a shallow text stays as it is": ('{"a":[1,{"b":"]}"}]}', '{"a":[1,{"b":"]}"}]}'),
    "a deep array becomes null": (
        f'{{"a":{"[" * 100}1{"]" * 100},"b":2}}',
        f'{{"a":{"[" * 99}null{"]" * 99},"b":2}}',
    ),
    "values beside a deep array stay": (
        "[" * 100 + "[],1,{}" + "]" * 100,
        "[" * 100 + "null,1,null" + "]" * 100,
    ),
    "brackets in strings do not count": (r'["\"[[[[\\",1]', r'["\"[[[[\\",1]'),
    "an empty text stays empty": ("", ""),
}


@pytest.mark.parametrize(("text", "pruned"), CASES.values(), ids=CASES)
def test_deep_levels_become_null(text: str, pruned: str) -> None:
    assert deep.prune(text.encode()).decode() == pruned


@pytest.mark.parametrize("depth", [900, 10_000, 100_000])
def test_an_object_with_a_very_deep_unused_field_is_decoded(depth: int) -> None:
    text = f'{{"metadata":{{"name":"a","managedFields":{"[" * depth}{"]" * depth}}},"kind":"Pod"}}'
    found = deep.decode(text.encode(), Resource)
    assert (found.metadata.name, found.kind) == ("a", "Pod")


PACKAGES = (
    reprieve_certs,
    reprieve_operator,
    reprieve_policy,
    reprieve_runtime,
    reprieve_webhooks,
)
WRITTEN_BY_REPRIEVE_ONLY = {"ReplacementRecord"}


def object_types() -> Iterator[type]:
    """Yield what objects and lists of them are decoded as."""
    for package in PACKAGES:
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.endswith("__main__"):
                continue
            module = importlib.import_module(found.name)
            for each in vars(module).values():
                is_its_own = isinstance(each, type) and each.__module__ == found.name
                if is_its_own and {"metadata", "items"} & field_names(each):
                    yield each


def field_names(decode_as: type) -> set[str]:
    if issubclass(decode_as, msgspec.Struct):
        return set(decode_as.__struct_fields__)
    if dataclasses.is_dataclass(decode_as):
        return {field.name for field in dataclasses.fields(decode_as)}
    return set()


def test_very_deep_objects_of_users_are_decoded_at_once() -> None:
    """Not bracket by bracket: 230,000 of them would hold up all reviews for 0.15 s, each time."""
    slow = {each.__name__ for each in object_types() if not deep._only_skips(each)}
    assert slow == WRITTEN_BY_REPRIEVE_ONLY


def test_a_text_without_end_is_read_once() -> None:
    """Not once from each of its bytes, which would take this test hours."""
    text = b"[" * 200 + b'"' + b'\\"' * 1_000_000
    assert deep.prune(text) == b"[" * deep.MAX_DEPTH + b"null"


def test_ten_thousand_shallow_fields_are_not_pruned() -> None:
    text = json.dumps([{"a": [{}]}] * 10_000)
    assert deep.prune(text.encode()).decode() == text


def test_brackets_are_bounded_and_not_the_text_between_them() -> None:
    text = b"[" * 300 + b'"' + b"x" * 100_000 + b'"' + b"]" * 300
    assert deep.prune(text, 600) == b"[" * deep.MAX_DEPTH + b"null" + b"]" * deep.MAX_DEPTH
    with pytest.raises(deep.TooDeepError):
        deep.prune(text, 599)
