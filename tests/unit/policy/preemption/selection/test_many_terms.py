"""What a decision costs beside pods with many terms of anti-affinity that do not match."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import anti_affinity, node_fit
from reprieve_policy.preemption.selection.snapshot import (
    TOO_LARGE,
    AntiAffinity,
    Preemptor,
    Requirement,
)
from reprieve_testing.objects.snapshots import (
    a_node_info,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
)

ZONE = "zone"


class CountedLabels(dict[str, str]):
    """Labels that count how often they are read."""

    reads = 0

    def get(self, key: str, default: Any = None) -> Any:
        CountedLabels.reads += 1
        return super().get(key, default)

    def items(self) -> Any:
        CountedLabels.reads += 1
        return super().items()


class CountedTerms(tuple[AntiAffinity, ...]):
    """Terms that count how often they are all read."""

    __slots__ = ()
    reads = 0

    def __iter__(self) -> Iterator[AntiAffinity]:
        CountedTerms.reads += 1
        return super().__iter__()


def _term(*requirements: tuple[str, str, tuple[str, ...]]) -> AntiAffinity:
    return AntiAffinity(frozenset(), tuple(Requirement(*one) for one in requirements), ZONE, ())


NOT_MATCHING = {
    "another value": lambda n: _term(("app", "In", (f"none-{n}",))),
    "another key": lambda n: _term((f"none-{n}", "Exists", ())),
    "all but its value": lambda n: _term(("app", "NotIn", ("web", f"none-{n}"))),
    "its value, and another label": lambda n: _term(
        ("app", "In", ("web",)), ("tier", "In", (f"none-{n}",))
    ),
}


@pytest.mark.parametrize("make", NOT_MATCHING.values(), ids=NOT_MATCHING)
def test_a_decision_looks_at_no_term_that_does_not_match(make: Any) -> None:
    """Without this, a tenant's pods with many terms would delay the preemptors of all."""
    CountedLabels.reads = 0
    labels = CountedLabels(app="web")
    _decide_beside(labels, lambda place: [make(62 * place + number) for number in range(62)])
    assert CountedLabels.reads < 100


def test_a_decision_searches_nodes_with_many_terms_as_without() -> None:
    make = NOT_MATCHING["its value, and another label"]
    many = _decide_beside({"app": "web"}, lambda _: [make(number) for number in range(62)])
    assert many == _decide_beside({"app": "web"}, lambda _: [])
    assert many == ["p199"]


def _decide_beside(labels: Mapping[str, str], terms_of: Any) -> list[str]:
    """Decide on ten nodes, of which one is offered, with 200 pods."""
    pods = [
        a_scheduled_pod(
            f"p{number:03}", cpu=1, started=number, anti_affinity=tuple(terms_of(number))
        )
        for number in range(200)
    ]
    nodes = [
        a_node_info(f"n{place}", *pods[place::10], cpu=20, labels={ZONE: f"z{place}"})
        for place in range(10)
    ]
    preemptor = replace(a_preemptor(), labels=labels)
    built = a_snapshot(*nodes).build()
    others = [node.name for node in nodes[1:]]
    found = selection.decide(
        preemptor, built, ["n0"], {"n0": {pods[0].uid}}, other_nodes=others
    ).best
    assert found is not None
    return [pod.name for pod in found.victims]


def test_the_terms_of_a_pod_are_read_once_however_often_others_on_its_node_change() -> None:
    CountedTerms.reads = 0
    pod = a_scheduled_pod("p", anti_affinity=CountedTerms([_term(("app", "Exists", ()))]))
    for number in range(10):
        assert anti_affinity.index_of([pod, a_scheduled_pod(f"other-{number}")], {ZONE: "z"})
    assert CountedTerms.reads == 1


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.sampled_from(["", "x", "y"])
LABELS = st.dictionaries(KEYS, VALUES)
REQUIREMENTS = st.builds(
    Requirement,
    KEYS,
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "unknown"]),
    st.lists(VALUES, max_size=3).map(tuple),
)
TERMS = st.just(TOO_LARGE) | st.builds(
    AntiAffinity,
    st.frozensets(KEYS),
    st.lists(REQUIREMENTS, max_size=3).map(tuple),
    st.sampled_from(["", ZONE, "elsewhere"]),
    st.none() | st.lists(REQUIREMENTS, max_size=2).map(tuple),
)
PREEMPTORS = st.builds(
    replace,
    st.just(a_preemptor()),
    namespace=KEYS,
    labels=LABELS,
    namespace_labels=LABELS,
    takes_back_nodes=st.booleans(),
)


@given(st.lists(st.lists(TERMS, max_size=4).map(tuple), max_size=4), PREEMPTORS)
def test_what_matches_is_what_a_look_at_each_term_finds(
    pods: Sequence[tuple[AntiAffinity, ...]], preemptor: Preemptor
) -> None:
    want = {
        (place, term.topology_key)
        for place, terms in enumerate(pods)
        for term in terms
        if _matches(term, preemptor)
    }
    scheduled = [a_scheduled_pod("p", anti_affinity=terms) for terms in pods]
    index = anti_affinity.index_of(scheduled, {ZONE: "z"})
    labels = anti_affinity.labels_of(preemptor)
    assert (set() if index is None else anti_affinity.matching(index, labels)) == want


class NotGoneThrough(frozenset[Any]):
    """A set that is asked what it has, and not for all of it."""

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError


def test_the_labels_of_a_preemptor_are_not_gone_through_for_each_node() -> None:
    """A user may give a pod thousands."""
    labels = {f"l{number}": "x" for number in range(2000)}
    preemptor = replace(a_preemptor(), namespace="team", labels=labels)
    term = AntiAffinity(frozenset({"team"}), (Requirement("l7", "Exists", ()),), "", None)
    index = anti_affinity.index_of([a_scheduled_pod("p", anti_affinity=(term,))], {})
    assert index is not None
    every = NotGoneThrough(anti_affinity.labels_of(preemptor))
    assert anti_affinity.matching(index, every) == {(0, "")}


def _matches(term: AntiAffinity, preemptor: Preemptor) -> bool:
    if term == TOO_LARGE:
        return preemptor.takes_back_nodes
    required = term.namespace_requirements
    return (
        term.topology_key in ("", ZONE)
        and (
            preemptor.namespace in term.namespaces
            or (required is not None and _all(required, preemptor.namespace_labels))
        )
        and _all(term.requirements, preemptor.labels)
    )


def _all(requirements: Sequence[Requirement], labels: Mapping[str, str]) -> bool:
    return all(node_fit.satisfies(one, labels) for one in requirements)
