"""How a victim that may go is ended: a table of rules, of which the first that applies holds.

When it may go is `life`'s; what was chosen is performed by the operator. All waiting in here ends at the victim's own
ceiling (`ceiling` after it was requested): then it is a DELETE, whatever stands in the way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from .eviction import Eviction
from .settings import EVICT, PolicySettings


class Way(StrEnum):
    """What is asked of the API server."""

    DELETE = "delete"
    EVICT = "evict"
    """The Eviction API: a PodDisruptionBudget is honoured, and the API server writes the condition itself."""


@dataclass(frozen=True, slots=True)
class _Context:
    eviction: Eviction
    settings: PolicySettings
    now: datetime


class _Rule(NamedTuple):
    applies: Callable[[_Context], bool]
    way: Way


def decide(eviction: Eviction, settings: PolicySettings, now: datetime) -> Way:
    """Return how this victim, whose outcome is settled, is ended now."""
    context = _Context(eviction, settings, now)
    return next(rule.way for rule in _RULES if rule.applies(context))


def ceiling_of(eviction: Eviction, settings: PolicySettings) -> datetime:
    """Return when nothing stands in the way any longer."""
    return eviction.requested_at + timedelta(seconds=settings.ceiling_seconds)


def _is_over_ceiling(context: _Context) -> bool:
    return context.now >= ceiling_of(context.eviction, context.settings)


_RULES = (
    _Rule(_is_over_ceiling, Way.DELETE),
    _Rule(lambda context: context.settings.end_with == EVICT, Way.EVICT),
    _Rule(lambda _: True, Way.DELETE),
)
