"""The cluster's policy: one frozen dataclass, read from the ConfigMap `reprieve-policy`, a text for each field.

Every field has a default that is safe without a ConfigMap. Koordinator's switches keep its names.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from . import koordinator, preemption_class
from .value import Duration, WholeNumber
from .verdict import Violation, unsupported

_DURATION = Duration(7 * 24 * 3600)
"""A week at most: a longer notice than any spot market or scheduler gives is a slip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """What an admin may set; see `FIELDS` for the names and readers. Durations in seconds."""

    default_class: int = preemption_class.DEFAULT
    default_preemptible: bool | None = None
    """`None`: nobody said, no label is written. Set by `disableDefaultPreemptiable`."""
    default_can_preempt: bool | None = None
    """`None`: nobody said. Set by `disableDefaultTriggerPreemption`."""
    max_preemption_priority_lift: int = 0
    checkpoint_timeout_seconds: int = 600
    extension_percent: int = 50
    max_deferral_seconds: int = 300
    grace_cap_seconds: int = 30
    ceiling_seconds: int = 1800
    """No victim waits longer than this in all, whatever its annotations say."""


@dataclass(frozen=True, slots=True)
class Field:
    """How one key of the ConfigMap is read, and into which field."""

    attribute: str
    parse: Callable[[str, str], object]


def parse(data: Mapping[str, str], base: PolicySettings | None = None) -> PolicySettings | tuple[Violation, ...]:
    """Read the ConfigMap's `data`; all violations at once, unknown keys among them. `base` fills what it lacks."""
    values: dict[str, object] = {}
    violations: list[Violation] = []
    for key, text in data.items():
        found = _parse_field(key, text)
        if isinstance(found, Violation):
            violations.append(found)
        else:
            values[FIELDS[key].attribute] = found
    if violations:
        return tuple(violations)
    return _replace(base or PolicySettings(), values)


def _replace(base: PolicySettings, values: Mapping[str, object]) -> PolicySettings:
    fields = {name: getattr(base, name) for name in PolicySettings.__dataclass_fields__}
    return PolicySettings(**{**fields, **values})


def _parse_field(key: str, text: str) -> object:
    path = f"data[{key}]"
    if key not in FIELDS:
        return unsupported(path, key, FIELDS, "keys")
    return FIELDS[key].parse(text.strip(), path)


def _negated(text: str, path: str) -> object:
    value = koordinator.parse_boolean(text, path)
    return value if isinstance(value, Violation) else not value


FIELDS: Mapping[str, Field] = {
    "defaultPreemptionClass": Field("default_class", preemption_class.parse),
    "disableDefaultPreemptiable": Field("default_preemptible", _negated),
    "disableDefaultTriggerPreemption": Field("default_can_preempt", _negated),
    "maxPreemptionPriorityLift": Field("max_preemption_priority_lift", WholeNumber(0, 2_000_000_000).parse),
    "checkpointTimeout": Field("checkpoint_timeout_seconds", _DURATION.parse),
    "extensionPercent": Field("extension_percent", WholeNumber(0, 100).parse),
    "maxDeferral": Field("max_deferral_seconds", _DURATION.parse),
    "gracePeriodCap": Field("grace_cap_seconds", _DURATION.parse),
    "ceiling": Field("ceiling_seconds", _DURATION.parse),
}
