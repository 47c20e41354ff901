"""The record of every pod of a run, from watch events. No I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reprieve_policy.kube.pods import ENDED_PHASES

from .objects import JOB_INDEX, JOB_NAME
from .run import PodRun
from .trace import GRACE_SECONDS, Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One pod as it is reported; times are seconds since the first job could arrive."""

    job: str
    index: int
    tier: str
    kind: str
    cpus: int
    is_urgent: bool
    node: str = ""
    created_at: float
    nominated_at: float | None
    started_at: float | None
    hinted_at: float | None
    terminated_at: float | None
    ended_at: float | None
    end: str | None
    occupied: float
    kept: float
    wasted: float
    restarting: float
    """Seconds on its node in which it restored what a predecessor had saved."""


@dataclass(frozen=True)
class ReplayResult:
    """The result of a trace."""

    records: list[Record]
    seconds: float
    late_seconds: list[float]
    """Delays of the replay process against its plan, ten times a second, ascending [s]."""


class PodRecords:
    """Each pod's record, by uid, and the remaining work of each place in a job."""

    def __init__(self, trace: Trace, *, publishes: bool = False) -> None:
        self._restart_seconds = trace.restart_seconds
        self._publishes = publishes
        self._jobs = {job.name: job for job in trace.jobs}
        self._left = {
            (job.name, index): job.seconds for job in trace.jobs for index in range(job.pods)
        }
        self._runs: dict[str, PodRun] = {}
        self._by_address: dict[str, PodRun] = {}
        self._finished: set[tuple[str, int]] = set()
        self._has_run: set[tuple[str, int]] = set()

    @property
    def is_all_done(self) -> bool:
        """True once every pod of every job has finished."""
        return len(self._finished) == len(self._left)

    def counts(self) -> str:
        """Return the progress of the run as text."""
        running = sum(
            run.started_at is not None and run.ended_at is None for run in self._runs.values()
        )
        victims = sum(run.terminated_at is not None for run in self._runs.values())
        return (
            f"{len(self._finished):,} of {len(self._left):,} finished, {running:,} run, "
            f"{victims:,} victims"
        )

    def at(self, address: str) -> PodRun | None:
        """Return the pod that has an address now, or None."""
        return self._by_address.get(address)

    def see(self, event: str, pod: Mapping[str, Any], now: float) -> PodRun | None:
        """Record a watch event of a pod; return its run, or None if the pod is not of the trace."""
        uid, labels = pod["metadata"]["uid"], pod["metadata"].get("labels", {})
        run = self._runs.get(uid)
        if run is None:
            job = self._jobs.get(labels.get(JOB_NAME, ""))
            if job is None:
                return None
            place = job.name, int(labels[JOB_INDEX])
            run = self._runs[uid] = PodRun(
                *(job, place[1], pod["metadata"]["name"], uid),
                created_at=now,
                left=self._left[place],
                restart_seconds=self._restart_seconds if place in self._has_run else 0.0,
                publishes=self._publishes,
            )
        self._note(run, pod, now)
        phase = pod["status"].get("phase")
        if event == "DELETED" or phase in ENDED_PHASES:
            self._close(run, now, succeeded=phase == "Succeeded")
        return run

    def records(self, began_at: float, now: float) -> Iterator[Record]:
        """Yield the record of each pod."""
        for run in self._runs.values():
            yield record_of(run, began_at, now)

    def _note(self, run: PodRun, pod: Mapping[str, Any], now: float) -> None:
        status = pod["status"]
        run.node = pod.get("spec", {}).get("nodeName", "")
        if status.get("nominatedNodeName") and run.nominated_at is None:
            run.nominated_at = now
        if status.get("phase") == "Running":
            run.start(now)
            self._by_address[status.get("podIP", "")] = run
        if pod["metadata"].get("deletionTimestamp"):
            if run.terminated_at is None:
                # Of the first DELETE: a kubelet ignores a grace period that is shortened later.
                run.grace_seconds = pod["metadata"].get("deletionGracePeriodSeconds", GRACE_SECONDS)
            run.terminate(now)

    def _close(self, run: PodRun, now: float, *, succeeded: bool) -> None:
        if run.ended_at is not None:
            return
        place = run.job.name, run.index
        run.close(now, succeeded=succeeded)
        self._left[place] -= run.kept(now)
        if run.started_at is not None:
            self._has_run.add(place)
        if succeeded:
            self._finished.add(place)


def record_of(run: PodRun, began_at: float, now: float) -> Record:
    """Return the record of one pod."""
    times = {
        name: None if (at := getattr(run, name)) is None else at - began_at
        for name in ("nominated_at", "started_at", "hinted_at", "terminated_at", "ended_at")
    }
    return Record(
        job=run.job.name,
        index=run.index,
        tier=run.job.tier.name,
        kind=run.job.kind,
        cpus=run.job.cpus,
        is_urgent=run.job.tier.is_urgent,
        node=run.node,
        created_at=run.created_at - began_at,
        **times,
        end=run.end.value if run.end else None,
        occupied=run.occupied(now),
        kept=run.kept(now),
        wasted=run.wasted(now),
        restarting=min(run.restart_seconds, run.occupied(now)),
    )
