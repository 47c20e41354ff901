"""The cause of a preemption, from the text of the mark."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.lifecycle import cause
from reprieve_policy.lifecycle.eviction import PreemptionCause, Source
from reprieve_testing.objects.builders import an_eviction


@dataclass(frozen=True, kw_only=True)
class Case:
    source: Source = Source.KOORDINATOR
    initiator: str = ""
    text: str = ""
    is_for_sensitive: bool = False
    want: PreemptionCause


CASES = {
    "Reprieve's label is a request": Case(source=Source.LABEL, want=PreemptionCause.REQUEST),
    "a request that is not a scheduler's": Case(
        source=Source.LABEL,
        initiator="koord-scheduler",
        is_for_sensitive=True,
        want=PreemptionCause.REQUEST,
    ),
    "a scheduler's mark without a text is for a higher priority": Case(
        want=PreemptionCause.PRIORITY
    ),
    "a reason with a preemptor is a preemption": Case(
        text="preempted by team-b/train", want=PreemptionCause.PRIORITY
    ),
    "a reason with a quota is a reclaim": Case(
        text="Reclaim borrowed quota", want=PreemptionCause.RECLAIM
    ),
    "the reason of Koordinator's quota controller": Case(
        initiator="quota-overused-revoke", want=PreemptionCause.RECLAIM
    ),
    "a reason with a lent node is a reclaim": Case(
        text="node was lent to team-a", want=PreemptionCause.RECLAIM
    ),
    "a sensitive claim": Case(text="claim of a sensitive user", want=PreemptionCause.SENSITIVE),
    "a sensitive claim that takes something back": Case(
        text="sensitive: reclaim node", want=PreemptionCause.SENSITIVE
    ),
    "a preemptor from a sensitive Namespace": Case(
        initiator="clinic/study",
        text="reclaim",
        is_for_sensitive=True,
        want=PreemptionCause.SENSITIVE,
    ),
    "words that only contain a keyword": Case(
        text="insensitive, unrevoked, talented", want=PreemptionCause.PRIORITY
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_causes(case: Case) -> None:
    state = replace(
        an_eviction().build(), source=case.source, initiator=case.initiator, reason=case.text
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
def test_the_namespace_of_a_named_initiator_is_known(initiator: str, want: str | None) -> None:
    assert cause.preemptor_namespace(replace(an_eviction().build(), initiator=initiator)) == want


@given(st.text(max_size=300), st.text(max_size=300), st.booleans())
def test_any_text_has_one_of_four_causes(initiator: str, text: str, is_for_sensitive: bool) -> None:  # noqa: FBT001 - drawn
    state = replace(
        an_eviction().build(), source=Source.KOORDINATOR, initiator=initiator, reason=text
    )
    assert cause.decide_cause(state, is_for_sensitive=is_for_sensitive) in tuple(PreemptionCause)
