"""Koordinator's labels for preemption (document 000), under their own names.

Koordinator's code treats a pod as non-preemptible only where the label says `"false"` (`IsPodNonPreemptible`); the
document says both, so the default is a setting with Koordinator's own name.
"""

import re
from collections.abc import Mapping

from reprieve_policy.keys import CAN_PREEMPT, EVICTION_COST, PREEMPTIBLE
from reprieve_policy.verdict import Violation, label_path

from .annotation_values import OneOf

_BOOLEANS = {"true": True, "false": False}
BOOLEAN = OneOf(tuple(_BOOLEANS))
"""Koordinator compares texts, so `True`, `1` and `yes` would mean nothing to it."""

_COST = re.compile("0|-?[1-9][0-9]{0,9}")
_INT32 = range(-(2**31), 2**31)


def parse_boolean(text: str, path: str) -> bool | Violation:
    """Return the label's value."""
    found = BOOLEAN.parse(text, path)
    return found if isinstance(found, Violation) else _BOOLEANS[found]


def check_labels(labels: Mapping[str, str], prefix: str) -> tuple[Violation, ...]:
    """Return a violation for each of the two labels that is not a boolean."""
    keys = (key for key in (PREEMPTIBLE, CAN_PREEMPT) if key in labels)
    checked = (BOOLEAN.check(labels[key], label_path(prefix, key)) for key in keys)
    return tuple(found for found in checked if found is not None)


def is_preemptible(labels: Mapping[str, str], *, disable_default_preemptiable: bool) -> bool:
    """True where the pod may be a victim."""
    return _BOOLEANS.get(labels.get(PREEMPTIBLE, ""), not disable_default_preemptiable)


def can_preempt(
    labels: Mapping[str, str], policy: str | None, *, disable_default_trigger_preemption: bool
) -> bool:
    """True where the pod may take victims: its label says so, or the default and its `preemptionPolicy` do."""
    by_default = not disable_default_trigger_preemption and policy != "Never"
    return _BOOLEANS.get(labels.get(CAN_PREEMPT, ""), by_default)


def eviction_cost(annotations: Mapping[str, str]) -> int:
    """Return what the pod says that its eviction costs: an int32, 0 where it says nothing that upstream would read.

    Upstream's descheduler leaves a pod of the greatest cost alone. Here it merely comes last: an annotation gains no right.
    """
    text = annotations.get(EVICTION_COST, "")
    cost = int(text) if _COST.fullmatch(text) else 0
    return cost if cost in _INT32 else 0
