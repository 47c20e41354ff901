"""What the victims that `reprieve watch` saw saved and lost, as the page `/ui` counts it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from reprieve_policy import keys
from reprieve_policy.kube.objects import ObjectMeta, annotations_of
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

from .victims import VictimStatus

_MAX_READS = 8
_HOUR_SECONDS = 3600.0
_LEFT = (Phase.GONE, Phase.REQUEUED)
"""The pod was deleted: other ends leave it where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _StartTime:
    startTime: str | None = None  # noqa: N815 - the API's own name


@dataclass(frozen=True, slots=True, kw_only=True)
class _StartedPod:
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    status: _StartTime = field(default_factory=_StartTime)


class WorkTimes:
    """Since when victims have done work that nothing saved: one read of each pod."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._slots = asyncio.Semaphore(_MAX_READS)
        self._reads: dict[str, asyncio.Task[None]] = {}
        self.since: dict[str, datetime] = {}
        """By the pod's uid; a pod that was gone before it was read is not there."""

    def see(self, victim: VictimStatus) -> None:
        """Read a victim, once; forget one that has ended."""
        if victim.is_finished:
            self.since.pop(victim.uid, None)
            if (read := self._reads.pop(victim.uid, None)) is not None:
                read.cancel()
        elif victim.uid not in self._reads:
            self._reads[victim.uid] = asyncio.create_task(self._read(victim))

    def close(self) -> None:
        """End what is being read."""
        for read in self._reads.values():
            read.cancel()

    async def _read(self, victim: VictimStatus) -> None:
        path = object_path("pods", victim.namespace, victim.name)
        try:
            async with self._slots:
                pod = await self._api.get(path, _StartedPod)
        except ApiError:
            # It is gone, or may not be read: its work is not counted.
            return
        started_at = timestamp.parse(pod.status.startTime)
        if pod.metadata.uid != victim.uid or started_at is None:
            return
        saved_at = timestamp.parse(annotations_of(pod.metadata).get(keys.LAST_CHECKPOINT_AT))
        if saved_at is not None and not _is_of_eviction(saved_at, victim):
            started_at = max(started_at, saved_at)
        self.since[victim.uid] = started_at


def _is_of_eviction(saved_at: datetime, victim: VictimStatus) -> bool:
    """True for the save that the eviction itself has brought."""
    return victim.state is not None and saved_at >= victim.state.requested_at


@dataclass(slots=True)
class Totals:
    """What became of the victims that were seen to end."""

    since: datetime
    ended: int = 0
    saved: int = 0
    unsaved: int = 0
    kept_hours: float = 0.0
    lost_hours: float = 0.0
    not_known: int = 0
    """Victims whose start is not known: their hours are not counted."""

    def see(self, victim: VictimStatus, work_since: Mapping[str, datetime], now: datetime) -> None:
        """Take over a change of a victim."""
        if victim.phase in _LEFT and victim.state is not None:
            self._add(victim.state, work_since.get(victim.uid), now)

    def describe(self) -> str:
        """Return the totals as one line."""
        if not self.ended:
            return f"since {self.since:%H:%M:%S}: no victim has ended"
        parts = [
            f"since {self.since:%H:%M:%S}: {self.ended} ended",
            f"{self.saved} saved ({self.kept_hours:.2f} pod-hours kept)",
            f"{self.unsaved} unsaved ({self.lost_hours:.2f} lost)",
        ]
        if self.not_known:
            parts.append(f"without the hours of {self.not_known} that started at an unknown time")
        return ", ".join(parts)

    def _add(self, state: Eviction, work_since: datetime | None, now: datetime) -> None:
        is_saved = state.outcome is CheckpointOutcome.SAVED
        is_lost = state.outcome is not None and state.outcome.is_failure
        self.ended += 1
        self.saved += is_saved
        self.unsaved += is_lost
        if not (is_saved or is_lost):
            return
        if work_since is None:
            self.not_known += 1
            return
        end = state.checkpoint.saved_at if is_saved and state.checkpoint else now
        hours = max(0.0, (end - work_since).total_seconds()) / _HOUR_SECONDS
        if is_saved:
            self.kept_hours += hours
        else:
            self.lost_hours += hours
