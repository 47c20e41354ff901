"""How long grounds that a pod's owner can renew refuse a preemption."""

import pytest

from reprieve_policy import keys
from reprieve_policy.preemption import first_refusal
from reprieve_testing.objects.builders import NOW, after

RECORDED = {
    "its own": ("2026-11-21T11:59:00Z uid-of-train", after(-60)),
    "copied from another pod": ("2026-11-21T11:59:00Z uid-of-other", None),
    "without a uid": ("2026-11-21T11:59:00Z", None),
    "without a time": (" uid-of-train", None),
    "not a time": ("soon uid-of-train", None),
    "empty": ("", None),
}


@pytest.mark.parametrize(("text", "want"), RECORDED.values(), ids=RECORDED)
def test_a_first_refusal_counts_for_its_own_pod(text: str, want: object) -> None:
    assert first_refusal.read({keys.REFUSED_SINCE: text}, "uid-of-train") == want


def test_what_is_recorded_is_read_back() -> None:
    assert first_refusal.read({}, "uid-of-train") is None
    change = first_refusal.build_change("uid-of-train", NOW)
    assert change.field == "annotations"
    assert first_refusal.read({change.key: change.value}, "uid-of-train") == NOW


def test_the_grounds_end_one_ceiling_after_the_first_refusal() -> None:
    assert not first_refusal.is_over(None, 1800, NOW)
    assert not first_refusal.is_over(after(-1799), 1800, NOW)
    assert first_refusal.is_over(after(-1800), 1800, NOW)
    assert first_refusal.bound(after(120), None, 1800, NOW) == after(120)
    assert first_refusal.bound(after(120), after(-1740), 1800, NOW) == after(60)
    assert first_refusal.bound(after(120), after(-60), 1800, NOW) == after(120)


def test_a_first_refusal_in_the_future_protects_no_pod() -> None:
    assert not first_refusal.is_over(after(60), 1800, NOW)
    assert first_refusal.is_over(after(61), 1800, NOW)
    assert first_refusal.bound(after(120), after(61), 1800, NOW) == NOW
