"""Koordinator's two labels."""

import pytest

from reprieve_policy import keys
from reprieve_policy.config import koordinator
from reprieve_policy.verdict import Violation, ViolationKind

PREEMPTIBLE = {
    "is labelled true": ("true", False, True),
    "is labelled false": ("false", False, False),
    "no label, and the default is preemptible": (None, False, True),
    "no label, and the default is disabled": (None, True, False),
    "is labelled true against a disabled default": ("true", True, True),
    "is labelled with nonsense: the default counts": ("yes", True, False),
}


@pytest.mark.parametrize(("label", "disabled", "want"), PREEMPTIBLE.values(), ids=PREEMPTIBLE)
def test_a_pod_is_preemptible_when_it(*, label: str | None, disabled: bool, want: bool) -> None:
    labels = {} if label is None else {keys.PREEMPTIBLE: label}
    assert koordinator.is_preemptible(labels, disable_default_preemptiable=disabled) is want


COSTS = {
    "100": 100,
    "-100": -100,
    "0": 0,
    "2147483647": 2**31 - 1,
    "-2147483648": -(2**31),
    "2147483648": 0,
    "+1": 0,
    "007": 0,
    "-0": 0,
    "1e3": 0,
    " 1": 0,
    "١": 0,
    "": 0,
    "9" * 5000: 0,
}


@pytest.mark.parametrize(("text", "want"), COSTS.items(), ids=[text[:12] for text in COSTS])
def test_an_eviction_cost_is_an_int32_in_upstreams_format(text: str, want: int) -> None:
    assert koordinator.eviction_cost({keys.EVICTION_COST: text}) == want


def test_a_pod_that_states_no_cost_costs_nothing() -> None:
    assert koordinator.eviction_cost({}) == 0


CAN_PREEMPT = {
    "is labelled true": ("true", None, False, True),
    "is labelled true against a disabled default": ("true", "Never", True, True),
    "is labelled false": ("false", "PreemptLowerPriority", False, False),
    "no label, no policy": (None, None, False, True),
    "no label, its policy is to preempt": (None, "PreemptLowerPriority", False, True),
    "no label, its policy is never to preempt": (None, "Never", False, False),
    "no label, and the default is disabled": (None, "PreemptLowerPriority", True, False),
}


@pytest.mark.parametrize(
    ("label", "policy", "disabled", "want"), CAN_PREEMPT.values(), ids=CAN_PREEMPT
)
def test_a_pod_can_preempt_when_it(
    *, label: str | None, policy: str | None, disabled: bool, want: bool
) -> None:
    labels = {} if label is None else {keys.CAN_PREEMPT: label}
    assert (
        koordinator.can_preempt(labels, policy, disable_default_trigger_preemption=disabled) is want
    )


@pytest.mark.parametrize("text", ["True", "1", "yes", "", " true"])
def test_a_value_that_koordinator_does_not_understand_is_refused(text: str) -> None:
    path = f"metadata.labels[{keys.CAN_PREEMPT}]"
    want = Violation(path, ViolationKind.UNSUPPORTED, text, 'supported values: "true", "false"')
    assert koordinator.check_labels({keys.CAN_PREEMPT: text, keys.PREEMPTIBLE: "true"}, "") == (
        want,
    )


def test_both_labels_are_checked_at_once() -> None:
    found = koordinator.check_labels(
        {keys.PREEMPTIBLE: "no", keys.CAN_PREEMPT: "no"}, "spec.template."
    )
    assert [violation.path for violation in found] == [
        f"spec.template.metadata.labels[{keys.PREEMPTIBLE}]",
        f"spec.template.metadata.labels[{keys.CAN_PREEMPT}]",
    ]
