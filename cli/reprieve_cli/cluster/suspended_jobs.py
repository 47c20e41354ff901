# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""Jobs that Reprieve suspended: whether `reprieve cleanup` may resume one."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from reprieve_policy import keys
from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import VersionedMeta, annotations_of
from reprieve_policy.lifecycle import suspension
from reprieve_policy.lifecycle.suspension import SuspendedJobAction


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

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: _SuspendedJobSpec = field(default_factory=_SuspendedJobSpec)
    status: _SuspendedJobStatus = field(default_factory=_SuspendedJobStatus)

    def is_suspended_by_reprieve(self, now: datetime) -> bool:
        """True if no other client has resumed or suspended the Job since Reprieve suspended it."""
        record = suspension.parse(annotations_of(self.metadata).get(keys.SUSPENDED, ""))
        conditions = (
            condition
            for condition in self.status.conditions or ()
            if (condition.type, condition.status) == ("Suspended", "True")
        )
        since = next((timestamp.parse(each.lastTransitionTime) for each in conditions), None)
        generation, is_suspended = self.metadata.generation, bool(self.spec.suspend)
        action = suspension.decide(
            record, since=since, generation=generation, is_suspended=is_suspended, now=now
        )
        return action in (SuspendedJobAction.KEEP, SuspendedJobAction.RESUME)
