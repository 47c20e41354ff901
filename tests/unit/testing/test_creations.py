"""Which answers count as failed creations: without this, a check of availability could not fail."""

from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_testing.availability.creations import CHANGED, DENIED, UNASKED, Creations, outcome

WITH_A_CLASS = {keys.PREEMPTION_CLASS: "4"}
CASES: dict[str, tuple[int, Any, str]] = {
    "a plain pod that got a class was changed": (201, ("plain", WITH_A_CLASS), CHANGED),
    "a plain pod without a class was let through": (201, ("plain", {}), UNASKED),
    "a pod that only the webhooks refuse was let through": (201, ("probe", WITH_A_CLASS), UNASKED),
    "a refusal by a webhook": (403, 'admission webhook "pods" denied the request: no', DENIED),
    "a call that failed": (
        500,
        'failed calling webhook "pods": connection refused',
        '500: failed calling webhook "pods": connection refused',
    ),
}


@pytest.mark.parametrize(("status", "answer", "want"), CASES.values(), ids=CASES)
def test_an_answer_says_what_became_of_a_creation(status: int, answer: Any, want: str) -> None:
    if isinstance(answer, str):
        document: Any = {"kind": "Status", "message": answer}
    else:
        name, labels = answer
        document = {"kind": "Pod", "metadata": {"name": name, "labels": labels}}
    assert outcome(status, document) == want


def test_everything_but_the_two_right_outcomes_is_a_failure() -> None:
    seen = Creations()
    seen.outcomes.update({CHANGED: 3, DENIED: 2})
    assert not seen.failed
    seen.outcomes.update({UNASKED: 1, "500: failed": 4})
    assert seen.failed == {UNASKED: 1, "500: failed": 4}
