"""What the operator reads to assess a victim: its Job, once, if the walltime could matter."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallPriority
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.victims.assessment import Assessment, VictimAssessor
from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle.eviction import (
    Device,
    Eviction,
    Phase,
    PreemptionCause,
    Protection,
    ProtectionReason,
    RecordedCost,
    Source,
)
from reprieve_policy.preemption import cost, first_refusal
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import NOW, a_pod, after, an_eviction

JOB = "/apis/batch/v1/namespaces/team/jobs/train"
BY_SCHEDULER = an_eviction().asked_by_scheduler().build()
BY_PERSON = an_eviction().build()
TWO_CPUS = {"resources": {"requests": {"cpu": "2"}}}
SENSITIVE = NamespacePolicy(workload_type="sensitive")


@dataclass
class StubCluster:
    """Stands in for the API server, the policy and the Namespaces; records what is read."""

    job: Any = None
    error: ApiError | None = None
    current: PolicySettings = field(default_factory=PolicySettings)
    namespaces_by_name: dict[str, NamespacePolicy] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)

    async def get(self, path: str, kind: type[Any], urgency: CallPriority) -> Any:
        assert urgency is CallPriority.NOTIFY, "the workload is notified only after this read"
        self.reads.append(path)
        if self.error is not None:
            raise self.error
        return None if self.job is None else msgspec.convert(self.job, kind)

    def namespace(self, name: str | None) -> NamespacePolicy:
        return self.namespaces_by_name.get(name or "", NamespacePolicy())

    def now(self) -> datetime:
        return NOW

    def assessment(self) -> VictimAssessor:
        namespaces = SimpleNamespace(get=self.namespace)
        return VictimAssessor(
            cast("Writes", self),
            cast("PolicySource", self),
            cast("NamespacePolicies", namespaces),
            Clock(now=self.now),
        )


def a_victim(
    *,
    owner: str | None = "Job",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> VictimPod:
    pod = a_pod() if owner is None else a_pod().owned_by(owner, "train")
    metadata = msgspec.to_builtins(pod.build().metadata) | {
        "labels": labels,
        "annotations": annotations,
    }
    started = {"startTime": "2026-11-21T11:00:00Z", "phase": "Running"}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": started}, VictimPod)


def a_job(
    seconds: int | None = 3600 + 120,
    uid: str = "uid-of-train",
    began: str | None = "2026-11-21T11:00:00Z",
) -> Any:
    return {
        "metadata": {"uid": uid},
        "spec": {"activeDeadlineSeconds": seconds},
        "status": {"startTime": began},
    }


async def assess(
    cluster: StubCluster, pod: VictimPod, state: Eviction = BY_SCHEDULER
) -> Protection | None:
    return (await cluster.assessment().assess(pod, state)).protection


async def test_the_walltime_of_a_job_counts_from_its_start_time() -> None:
    cluster = StubCluster(job=a_job())
    assert await assess(cluster, a_victim()) == Protection(
        ProtectionReason.NEAR_COMPLETION, after(120)
    )
    assert cluster.reads == [JOB]


async def test_the_earlier_end_of_pod_and_job_counts() -> None:
    assert await assess(
        StubCluster(job=a_job()), a_victim(activeDeadlineSeconds=3660)
    ) == Protection(ProtectionReason.NEAR_COMPLETION, after(60))


async def test_a_pod_that_the_guard_refused_for_the_ceiling_is_not_reprieved_once_more() -> None:
    refused = first_refusal.build_change(a_victim().metadata.uid or "", after(-1740))
    pod = a_victim(annotations={refused.key: refused.value})
    assert await assess(StubCluster(job=a_job()), pod) == Protection(
        ProtectionReason.NEAR_COMPLETION, after(60)
    )
    refused = first_refusal.build_change(a_victim().metadata.uid or "", after(-1800))
    pod = a_victim(annotations={refused.key: refused.value})
    assert await assess(StubCluster(job=a_job()), pod) is None


REPRIEVED = replace(
    BY_SCHEDULER,
    phase=Phase.REPRIEVED,
    refused_on=ProtectionReason.NEAR_COMPLETION,
    deadline=after(60),
)
UNREAD = {
    "a person asks": (a_victim(), BY_PERSON, PolicySettings()),
    "a user requests the eviction, too": (
        a_victim(labels={keys.SOFT_EVICTION: "requested"}),
        REPRIEVED,
        PolicySettings(),
    ),
    "the pod was reprieved before": (a_victim(), REPRIEVED, PolicySettings()),
    "the policy reprieves no pod": (
        a_victim(),
        BY_SCHEDULER,
        PolicySettings(near_completion_seconds=0),
    ),
    "the pod has no owner": (a_victim(owner=None), BY_SCHEDULER, PolicySettings()),
    "the owner is not a Job": (a_victim(owner="ReplicaSet"), BY_SCHEDULER, PolicySettings()),
}


@pytest.mark.parametrize(("pod", "state", "settings"), UNREAD.values(), ids=UNREAD)
async def test_no_job_is_read_if(pod: VictimPod, state: Eviction, settings: PolicySettings) -> None:
    cluster = StubCluster(job=a_job(), current=settings)
    assert await assess(cluster, pod, state) is None
    assert cluster.reads == []


UNBOUND = {
    "does not exist": None,
    "is another Job of the same name": a_job(uid="another"),
    "has not started": a_job(began=None),
    "has no active deadline": a_job(seconds=None),
}


@pytest.mark.parametrize("job", UNBOUND.values(), ids=UNBOUND)
async def test_no_pod_is_reprieved_for_a_job_that(job: Any) -> None:
    assert await assess(StubCluster(job=job), a_victim()) is None


async def test_a_job_is_read_once_for_each_victim() -> None:
    cluster = StubCluster(job=a_job())
    assessment = cluster.assessment()
    first, again = [await assessment.assess(a_victim(), BY_SCHEDULER) for _ in range(2)]
    assert first == again
    assert cluster.reads == [JOB]


async def test_what_protects_a_pod_is_known_without_its_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assessor, computed = StubCluster(job=a_job()).assessment(), list[object]()
    monkeypatch.setattr(cost, "decide_cost", lambda *_, **__: computed.append(1))
    assert await assessor.protection_of(a_victim(), BY_SCHEDULER) == Protection(
        ProtectionReason.NEAR_COMPLETION, after(120)
    )
    assert await assessor.protection_of(a_victim(), BY_PERSON) is None
    assert computed == []


async def test_a_missing_permission_delays_no_victim_and_an_outage_does() -> None:
    assert await assess(StubCluster(error=ApiError(403, "Forbidden", "no")), a_victim()) is None
    with pytest.raises(ApiError):
        await assess(StubCluster(error=ApiError(503, "ServiceUnavailable", "no")), a_victim())


async def test_a_user_may_evict_a_pod_that_is_not_preemptible() -> None:
    cluster = StubCluster(namespaces_by_name={"team": SENSITIVE})
    assert await assess(cluster, a_victim(), BY_PERSON) is None
    assert await assess(cluster, a_victim()) == Protection(ProtectionReason.NON_PREEMPTIBLE, None)


async def test_cost_and_cause_are_decided_as_the_eviction_begins() -> None:
    eight = {"resources": {"requests": {"nvidia.com/gpu": "8"}}}
    pod = a_victim(owner=None, containers=[eight])
    cluster = StubCluster()
    begun = (await cluster.assessment().assess(pod, BY_SCHEDULER)).state
    assert (begun.cause, begun.cost) == (
        PreemptionCause.PRIORITY,
        RecordedCost(hours=8, device=Device.GPU),
    )
    later = replace(begun, source=Source.LABEL)
    assert await cluster.assessment().assess(pod, later) == Assessment(later)


async def test_a_recorded_cost_is_not_computed_again() -> None:
    pod = a_victim(
        owner=None,
        annotations={keys.LAST_CHECKPOINT_AT: "2026-11-21T11:30:00Z"},
        containers=[TWO_CPUS],
    )
    begun = (await StubCluster().assessment().assess(pod, BY_PERSON)).state
    assert begun.cost == RecordedCost(hours=1, device=Device.CPU)


async def test_the_cost_counts_sidecars_and_not_init_containers() -> None:
    before = [TWO_CPUS | {"restartPolicy": "Always"}, TWO_CPUS]
    pod = a_victim(owner=None, containers=[TWO_CPUS], initContainers=before)
    begun = (await StubCluster().assessment().assess(pod, BY_PERSON)).state
    assert begun.cost == RecordedCost(hours=4, device=Device.CPU)


async def test_a_preemptor_in_a_sensitive_namespace_gives_the_cause_sensitive() -> None:
    cluster = StubCluster(namespaces_by_name={"clinic": SENSITIVE})
    begun = await cluster.assessment().assess(
        a_victim(), replace(BY_SCHEDULER, initiator="clinic/study")
    )
    assert begun.state.cause is PreemptionCause.SENSITIVE


HINT = {keys.CHECKPOINT_HINT: "http://:80/"}
ON_SIGTERM = {keys.CHECKPOINT_HINT: "sigterm:"}
TWO_HOURS = {keys.ESTIMATED_CHECKPOINT_TIME: "2h"}
A_MINUTE = {keys.ESTIMATED_CHECKPOINT_TIME: "1m"}
JUST_SAVED = {keys.LAST_CHECKPOINT_AT: "2026-11-21T11:59:30Z"}
LONG_CEILING = PolicySettings(ceiling_seconds=3 * 3600)
LOSSES: dict[str, tuple[dict[str, str], PolicySettings, bool]] = {
    "its save takes longer than it has worked": ({**HINT, **TWO_HOURS}, LONG_CEILING, True),
    "the save of the pod that it replaces took longer than it has worked": (
        {**HINT, keys.LAST_CHECKPOINT_TOOK: "2h", keys.CHECKPOINT_TIMEOUT: "2h"},
        LONG_CEILING,
        True,
    ),
    "that save took longer than any may take": (
        {**HINT, keys.LAST_CHECKPOINT_TOOK: "2h"},
        LONG_CEILING,
        False,
    ),
    "it has just saved": ({**HINT, **A_MINUTE, **JUST_SAVED}, PolicySettings(), True),
    "its save takes less than it has worked": ({**HINT, **A_MINUTE}, LONG_CEILING, False),
    "the time of its save is unknown": ({**HINT, **JUST_SAVED}, LONG_CEILING, False),
    "it saves on SIGTERM": ({**ON_SIGTERM, **TWO_HOURS}, LONG_CEILING, False),
    "it does not save": (TWO_HOURS, LONG_CEILING, False),
}


@pytest.mark.parametrize(("annotations", "settings", "want"), LOSSES.values(), ids=LOSSES)
async def test_whether_a_victim_loses_less_by_ending_at_once_if(
    annotations: dict[str, str], settings: PolicySettings, *, want: bool
) -> None:
    pod = a_victim(owner=None, annotations=annotations)
    assessment = await StubCluster(current=settings).assessment().assess(pod, BY_SCHEDULER)
    assert assessment.loses_less_at_once is want


ASKED_ALL_THE_SAME = {
    "a person asks": (a_victim(owner=None, annotations={**HINT, **TWO_HOURS}), BY_PERSON),
    "a person asks, too": (
        a_victim(
            owner=None,
            annotations={**HINT, **TWO_HOURS},
            labels={keys.SOFT_EVICTION: "requested"},
        ),
        BY_SCHEDULER,
    ),
}


@pytest.mark.parametrize(("pod", "state"), ASKED_ALL_THE_SAME.values(), ids=ASKED_ALL_THE_SAME)
async def test_a_victim_s_loss_does_not_matter_if(pod: VictimPod, state: Eviction) -> None:
    assessment = await StubCluster(current=LONG_CEILING).assessment().assess(pod, state)
    assert not assessment.loses_less_at_once


async def test_a_protected_victim_may_lose_less_by_ending_at_once_as_well() -> None:
    cluster = StubCluster(job=a_job(), current=LONG_CEILING)
    pod = a_victim(annotations={**HINT, **TWO_HOURS})
    assessment = await cluster.assessment().assess(pod, BY_SCHEDULER)
    assert assessment.loses_less_at_once
    assert assessment.protection == Protection(ProtectionReason.NEAR_COMPLETION, after(120))
