"""The bound of an expression's cost, beside what cel-go counted for the same expression."""

import pytest

from reprieve_testing import cel_cost
from reprieve_testing.cel_cost import LIMIT, LONGEST_ANNOTATION, Sizes, worst_cost

FINALIZERS = "object.metadata.?finalizers.orValue([])"
NAME = "'reprieve.dev/cleanup'"
CLEANERS = "object.metadata.?annotations[?'a'].orValue('')"
PATTERN = "x" * 180


def sizes(entries: int = 1, characters: int = LONGEST_ANNOTATION) -> Sizes:
    """Return the same size for whatever is asked about."""
    return Sizes(lambda _: entries, lambda _: entries, lambda _: characters)


COUNTED = {
    "a loop over a thousand texts": (
        f"{FINALIZERS}.exists(name, name == {NAME})",
        sizes(1000),
        6_004,
    ),
    "a loop over the fields of a list": (
        "object.spec.?schedulingGates.orValue([]).exists(gate, gate.name == 'reprieve.dev/gang')",
        sizes(1000),
        7_004,
    ),
    "a search in a list": (f"{NAME} in {FINALIZERS}", sizes(1000), 1_003),
    "a right": (
        "authorizer.group('').resource('pods').check('delete').allowed()",
        sizes(),
        350_004,
    ),
    "a pattern": (f"{CLEANERS}.matches('{PATTERN}')", sizes(characters=999), 4_500),
}


@pytest.mark.parametrize(("expression", "known", "counted"), COUNTED.values(), ids=COUNTED)
def test_the_bound_is_above_what_the_api_server_counts_but_not_far(
    expression: str, known: Sizes, counted: int
) -> None:
    assert counted <= worst_cost(expression, known) <= 3 * counted


@pytest.mark.parametrize(
    ("expression", "is_too_much"),
    [
        (f"{FINALIZERS}.exists(name, name == {NAME})", True),
        (f"{NAME} in {FINALIZERS}", False),
        (f"{FINALIZERS}.size() > 250 || {FINALIZERS}.exists(name, name == {NAME})", False),
        (f"{FINALIZERS}.size() > 250 && {FINALIZERS}.exists(name, name == {NAME})", True),
        (f"a && {FINALIZERS}.size() <= 250 && {FINALIZERS}.all(name, name == {NAME})", False),
        (f"{CLEANERS}.size() > 250 || {FINALIZERS}.exists(name, name == {NAME})", True),
    ],
)
def test_only_a_guard_that_is_read_first_bounds_a_loop(
    expression: str, *, is_too_much: bool
) -> None:
    assert (worst_cost(expression, sizes(200_000)) > LIMIT) == is_too_much


@pytest.mark.parametrize(
    ("expression", "is_too_much"),
    [
        (f"t.matches(r'{PATTERN}') && t.size() <= 512", True),
        (f"t.size() <= 512 && t.matches(r'{PATTERN}')", False),
        (f"dyn(t).size() <= 512 && t.matches(r'{PATTERN}')", False),
        (f"s.size() <= 512 && t.matches(r'{PATTERN}')", True),
        (f"t.size() <= 512 && t.matches('a') && t.find('{PATTERN}') != ''", False),
        (f"t.size() <= 512 || t.matches(r'{PATTERN}')", True),
    ],
)
def test_only_a_size_that_is_read_first_bounds_a_pattern(
    expression: str, *, is_too_much: bool
) -> None:
    assert (worst_cost(expression, sizes()) > LIMIT) == is_too_much


def test_loops_in_a_row_and_within_others_are_found_and_texts_are_no_code() -> None:
    expression = (
        "['a', \"b](\", r'(\\']\n.filter(key, key != ').map(')\n"
        ".map(key, object.labels.all(name, name in [key]))"
    )
    found = [(loop.kind, loop.known_size) for loop in cel_cost.loops(expression)]
    assert found == [("filter", 3), ("map", 3), ("all", None)]
