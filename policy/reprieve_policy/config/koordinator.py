"""Koordinator's labels for preemption (document 000), under their own names.

Koordinator's code treats a pod as non-preemptible only if the label is `"false"`
(`IsPodNonPreemptible`). The document says both, so the default is a setting with Koordinator's own
name.
"""

import re
from collections.abc import Mapping

from reprieve_policy.keys import CAN_PREEMPT, EVICTION_COST, PREEMPTIBLE
from reprieve_policy.verdict import Violation, label_path

from .annotation_values import OneOf

_BOOLEANS = {"true": True, "false": False}
BOOLEAN = OneOf(tuple(_BOOLEANS))
"""Koordinator compares texts: `True`, `1` and `yes` would have no meaning for it."""

_COST = re.compile("0|-?[1-9][0-9]{0,9}")
_INT32 = range(-(2**31), 2**31)


def parse_boolean(text: str, path: str) -> bool | Violation:
    """Return the boolean value of `text`."""
    word = BOOLEAN.parse(text, path)
    return word if isinstance(word, Violation) else _BOOLEANS[word]


def check_labels(labels: Mapping[str, str], prefix: str) -> tuple[Violation, ...]:
    """Return a violation for each of the two labels that is not a boolean."""
    keys = (key for key in (PREEMPTIBLE, CAN_PREEMPT) if key in labels)
    checked = (BOOLEAN.check(labels[key], label_path(prefix, key)) for key in keys)
    return tuple(violation for violation in checked if violation is not None)


def is_preemptible(labels: Mapping[str, str], *, disable_default_preemptiable: bool) -> bool:
    """True if the pod may be a victim."""
    return _BOOLEANS.get(labels.get(PREEMPTIBLE, ""), not disable_default_preemptiable)


def can_preempt(
    labels: Mapping[str, str], policy: str | None, *, disable_default_trigger_preemption: bool
) -> bool:
    """True if the pod may preempt: by its label, else by the default and its `preemptionPolicy`."""
    by_default = not disable_default_trigger_preemption and policy != "Never"
    return _BOOLEANS.get(labels.get(CAN_PREEMPT, ""), by_default)


def eviction_cost(annotations: Mapping[str, str]) -> int:
    """Return the eviction cost that the pod states: an int32, 0 if upstream would read none.

    Upstream's descheduler never evicts a pod of the greatest cost. Here such a pod only comes last:
    an annotation must not give a right.
    """
    text = annotations.get(EVICTION_COST, "")
    cost = int(text) if _COST.fullmatch(text) else 0
    return cost if cost in _INT32 else 0
