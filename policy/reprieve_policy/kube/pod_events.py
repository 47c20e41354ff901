"""The operator's Events about pods, as `/ui` and the command line read them again."""

from dataclasses import dataclass, field

from .objects import ObjectMeta

CONTROLLER = "reprieve.dev/operator"
"""What the operator reports Events as."""
SELECTOR = f"reportingController={CONTROLLER},regarding.kind=Pod"
"""The field selector of a list or watch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRegarding:
    """The pod that an Event is about."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEvent:
    """The fields of an Event that are read."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    regarding: EventRegarding = field(default_factory=EventRegarding)
    reason: str = ""
    note: str = ""
    eventTime: str | None = None
