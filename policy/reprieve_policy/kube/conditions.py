"""The conditions in the status of pods, nodes and Jobs."""

from collections.abc import Sequence
from dataclasses import dataclass

DISRUPTION_TARGET = "DisruptionTarget"
"""The condition of a pod that ends because of a disruption, not because it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One of an object's conditions."""

    type: str = ""
    status: str = ""
    reason: str | None = None
    lastTransitionTime: str | None = None


def find_true(conditions: Sequence[Condition] | None, condition_type: str) -> Condition | None:
    """Return the first condition of that type whose status is `True`; `None` if there is none."""
    return _find(conditions, condition_type, "True")


def find_false(conditions: Sequence[Condition] | None, condition_type: str) -> Condition | None:
    """Return the first condition of that type whose status is `False`; `None` if there is none."""
    return _find(conditions, condition_type, "False")


def is_true(conditions: Sequence[Condition] | None, condition_type: str) -> bool:
    """True if a condition of that type has the status `True`."""
    return find_true(conditions, condition_type) is not None


def _find(
    conditions: Sequence[Condition] | None, condition_type: str, status: str
) -> Condition | None:
    return next(
        (
            condition
            for condition in conditions or ()
            if (condition.type, condition.status) == (condition_type, status)
        ),
        None,
    )
