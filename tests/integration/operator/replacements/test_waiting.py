"""What waits to come back, as the page `/ui` shows it: suspended Jobs and refused bare pods."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.replacements.bare_pod_store import NamespacedName
from reprieve_operator.replacements.bare_pods import BarePodController, PendingReplacement
from reprieve_operator.replacements.job_resumer import JobResumer, SuspendedJob
from reprieve_policy import keys
from reprieve_policy.kube.jobs import Job, JobSpec
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_policy.lifecycle.suspension import SuspensionRecord, render
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import NOW, after


class Jobs:
    """The Jobs of the cluster with Reprieve's label."""

    def __init__(self) -> None:
        self.listed: list[Job] = []

    async def list_pages(self, *_: object, **__: object) -> AsyncIterator[list[Job]]:
        yield self.listed

    async def patch_job(self, *_: object, **__: object) -> None:
        return


class HangingJobs(Jobs):
    """The Jobs of one Namespace get no answer in ten seconds."""

    def __init__(self, namespace: str) -> None:
        super().__init__()
        self.namespace, self.seconds, self.tried = namespace, 0.0, list[str]()

    async def patch_job(self, _path: str, metadata: VersionedMeta, *_: Any, **__: Any) -> None:
        self.tried.append(metadata.key)
        if metadata.namespace == self.namespace:
            self.seconds += 10.0
            raise ApiError(0, "Unreachable", "no answer")


def a_job(name: str, until: datetime, namespace: str = "team") -> Job:
    record = SuspensionRecord(NOW, until, generation=2)
    metadata = VersionedMeta(
        namespace=namespace,
        name=name,
        uid=f"uid-of-{name}",
        generation=2,
        annotations={keys.SUSPENDED: render(record)},
    )
    return Job(metadata=metadata, spec=JobSpec(suspend=True))


async def test_jobs_that_stay_suspended_are_known_until_they_are_resumed() -> None:
    jobs = Jobs()
    recorder = cast("EventRecorder", SimpleNamespace(event=lambda *_: None))
    resumer = JobResumer(
        cast("Writes", jobs), recorder, Clock(now=lambda: NOW), interval_seconds=1.0
    )
    jobs.listed = [a_job("waits", after(60)), a_job("resumed", after(-1))]
    await resumer._reconcile_all()
    assert resumer.suspended == [SuspendedJob("team", "waits", after(60))]
    jobs.listed = []
    await resumer._reconcile_all()
    assert resumer.suspended == []


async def test_a_namespace_whose_jobs_get_no_answer_holds_up_no_other() -> None:
    """Without this, each of its Jobs would hold up those of all others for ten seconds."""
    jobs = HangingJobs("slow")
    recorder = cast("EventRecorder", SimpleNamespace(event=lambda *_: None))
    clock = Clock(now=lambda: NOW, monotonic=lambda: jobs.seconds)
    resumer = JobResumer(cast("Writes", jobs), recorder, clock, interval_seconds=1.0)
    jobs.listed = [a_job(name, after(-1), "slow") for name in ("1", "2")]
    jobs.listed.append(a_job("3", after(-1)))
    await resumer._reconcile_all()
    await resumer._reconcile_all()
    assert jobs.tried == ["slow/1", "team/3", "team/3"]
    jobs.seconds += 50.0
    await resumer._reconcile_all()
    assert jobs.tried[3:] == ["slow/2", "team/3"]


def test_a_bare_pod_that_was_refused_says_when_it_is_tried_again() -> None:
    clock = Clock(now=lambda: NOW, monotonic=lambda: 5.0)
    anything: Any = None
    store: Any = SimpleNamespace(
        pending={uid: NamespacedName("team", uid) for uid in ("new", "refused")}
    )
    controller = BarePodController(
        anything,
        store,
        policy=anything,
        recorder=anything,
        metrics=anything,
        clock=clock,
        interval_seconds=1.0,
    )
    controller._queue.back_off("refused")
    assert controller.pending() == [
        PendingReplacement("new", "team", "new", None),
        PendingReplacement("refused", "team", "refused", NOW + timedelta(seconds=2)),
    ]
