# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""A Job that Reprieve has suspended, as far as `reprieve cleanup` must know whether it is still ours to resume."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from reprieve_policy import keys
from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import ObjectMeta, annotations_of
from reprieve_policy.lifecycle import suspension
from reprieve_policy.lifecycle.suspension import SuspendedJobAction


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendedJobMeta(ObjectMeta):
    """Metadata with the version that was looked at, and the number of times that the spec was changed."""

    resourceVersion: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _SuspendedJobSpec:
    suspend: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _SuspendedJobCondition:
    type: str = ""
    status: str = ""
    lastTransitionTime: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _SuspendedJobStatus:
    conditions: Sequence[_SuspendedJobCondition] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspendedJob:
    """A Job with our label."""

    metadata: SuspendedJobMeta = field(default_factory=SuspendedJobMeta)
    spec: _SuspendedJobSpec = field(default_factory=_SuspendedJobSpec)
    status: _SuspendedJobStatus = field(default_factory=_SuspendedJobStatus)

    def is_suspended_by_reprieve(self, now: datetime) -> bool:
        """True where nobody else has resumed or suspended it since we did."""
        hold = suspension.parse(annotations_of(self.metadata).get(keys.SUSPENDED, ""))
        found = (
            one
            for one in self.status.conditions or ()
            if (one.type, one.status) == ("Suspended", "True")
        )
        since = next((timestamp.parse(one.lastTransitionTime) for one in found), None)
        generation, is_suspended = self.metadata.generation, bool(self.spec.suspend)
        fate = suspension.decide(
            hold, since=since, generation=generation, is_suspended=is_suspended, now=now
        )
        return fate in (SuspendedJobAction.KEEP, SuspendedJobAction.RESUME)
