"""What preempted a pod, from what the mark says."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.lifecycle import cause
from reprieve_policy.lifecycle.eviction import PreemptionCause, Source
from reprieve_testing.builders import an_eviction


@dataclass(frozen=True, kw_only=True)
class Case:
    source: Source = Source.KOORDINATOR
    initiator: str = ""
    told: str = ""
    is_for_sensitive: bool = False
    want: PreemptionCause


CASES = {
    "our label is a request": Case(source=Source.LABEL, want=PreemptionCause.REQUEST),
    "whoever asks": Case(
        source=Source.LABEL,
        initiator="koord-scheduler",
        is_for_sensitive=True,
        want=PreemptionCause.REQUEST,
    ),
    "a scheduler that says nothing wants room for a higher priority": Case(
        want=PreemptionCause.PRIORITY
    ),
    "one that says so too": Case(told="preempted by team-b/train", want=PreemptionCause.PRIORITY),
    "one that wants quota back reclaims": Case(
        told="Reclaim borrowed quota", want=PreemptionCause.RECLAIM
    ),
    "as Koordinator's quota controller calls it": Case(
        initiator="quota-overused-revoke", want=PreemptionCause.RECLAIM
    ),
    "one that was lent reclaims": Case(
        told="node was lent to team-a", want=PreemptionCause.RECLAIM
    ),
    "a sensitive claim": Case(told="claim of a sensitive user", want=PreemptionCause.SENSITIVE),
    "a sensitive claim that takes something back": Case(
        told="sensitive: reclaim node", want=PreemptionCause.SENSITIVE
    ),
    "whoever asks from a sensitive Namespace": Case(
        initiator="clinic/study",
        told="reclaim",
        is_for_sensitive=True,
        want=PreemptionCause.SENSITIVE,
    ),
    "words that only contain one of them": Case(
        told="insensitive, unrevoked, talented", want=PreemptionCause.PRIORITY
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_causes(case: Case) -> None:
    state = replace(
        an_eviction().build(), source=case.source, initiator=case.initiator, reason=case.told
    )
    assert cause.decide_cause(state, is_for_sensitive=case.is_for_sensitive) is case.want


INITIATORS = {
    "clinic/study": "clinic",
    "koord-scheduler": None,
    "": None,
    "a/b/c": None,
    "Clinic/study": None,
}


@pytest.mark.parametrize(("initiator", "want"), INITIATORS.items())
def test_whose_pod_asked_is_known_where_it_is_named(initiator: str, want: str | None) -> None:
    assert cause.preemptor_namespace(replace(an_eviction().build(), initiator=initiator)) == want


@given(st.text(max_size=300), st.text(max_size=300), st.booleans())
def test_any_text_has_one_of_four_causes(initiator: str, told: str, is_for_sensitive: bool) -> None:  # noqa: FBT001 - drawn
    state = replace(
        an_eviction().build(), source=Source.KOORDINATOR, initiator=initiator, reason=told
    )
    assert cause.decide_cause(state, is_for_sensitive=is_for_sensitive) in tuple(PreemptionCause)
