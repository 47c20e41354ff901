"""A day of Kubernetes' own controllers under full enforcement: our admission stops none of them.

Real controllers of a real control plane act on simulated nodes. The manifests, both programs and
the guard are installed while objects that break rules already exist. The API server's audit log is
the evidence. There is no metrics API: the autoscaler is the real one, which scales without metrics
to get into its bounds.
"""

import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from reprieve_policy.kube.values import timestamp
from reprieve_testing.controllers_day.chapters import CHAPTERS, OLD, before
from reprieve_testing.controllers_day.day import AuditedCall, Day, a_day

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CLUSTER = "reprieve-day"
KUBE_SYSTEM = "system:serviceaccount:kube-system:"
MAKERS = {
    "pods": ["replicaset-controller", "replication-controller", "statefulset-controller",
             "daemon-set-controller", "job-controller"],
    "replicasets": ["deployment-controller"],
    "jobs": ["cronjob-controller"],
}  # fmt: skip
"""Which controllers create what."""
WORKERS = {
    "job-controller": "patch pods",
    "ttl-after-finished-controller": "delete jobs",
    "horizontal-pod-autoscaler": "update deployments/scale",
    "namespace-controller": "update namespaces/finalize",
    "generic-garbage-collector": "delete pods",
    "pod-garbage-collector": "delete pods",
    "node-controller": "delete pods",
}
"""A change that each makes in the day; taints evict as `node-controller`."""
WITHOUT_NOTICE = {
    ("moving", "node-controller"),
    ("moving", "pod-garbage-collector"),
    ("closing", "namespace-controller"),
    ("web", "generic-garbage-collector"),
    ("web", "replicaset-controller"),
    (OLD, "admin"),
}
"""Where pods that want a checkpoint are deleted, and by whom: a scheduler would be refused."""


@dataclass(frozen=True)
class DayResult:
    """The day when it is over."""

    calls: list[AuditedCall]
    ready_at: str
    """When the webhooks begin to answer; before that, an older CronJob may become due."""
    failed: Mapping[str, str]
    """The chapters that came to no good end, with why."""
    reviews: Mapping[str, float]
    others_deletions: float
    """Requests that reached the guard: it counts them as skipped."""
    log: str
    seconds: float


@pytest.fixture(scope="module")
def day_result() -> Iterator[DayResult]:
    with a_day(CLUSTER) as (day, install):
        before(day)
        install()
        ready_at, began = timestamp.render_micro(datetime.now(UTC)), time.monotonic()
        with ThreadPoolExecutor(len(CHAPTERS)) as threads:
            failed = dict(
                zip(CHAPTERS, threads.map(lambda name: _tell(day, name), CHAPTERS), strict=True)
            )
        reviews = {
            "pods filled in": day.reviews("mutate", kind="Pod", outcome="patched"),
            "pods judged": day.reviews("validate", kind="Pod"),
            "templates judged": day.reviews("validate", kind="Deployment"),
            "old templates' pods let pass": day.reviews("validate", kind="Pod", outcome="warned"),
            "old CronJobs' Jobs let pass": day.reviews("validate", kind="Job", outcome="warned"),
            "schedulers' deletions": day.reviews("guard", kind="Pod"),
            "users refused": day.reviews("validate", outcome="denied"),
        }
        log = day.installation.log_of_local_program("reprieve-webhooks").read_text()
        skipped = day.reviews("guard", kind="Pod", outcome="skipped")
        yield DayResult(
            day.calls, ready_at, failed, reviews, skipped, log, time.monotonic() - began
        )


def _tell(day: Day, name: str) -> str:
    try:
        CHAPTERS[name](day)
    except Exception:  # noqa: BLE001 - of the other chapters all is to be known
        return traceback.format_exc()
    return ""


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_chapter_completes(day_result: DayResult, chapter: str) -> None:
    assert not day_result.failed[chapter], day_result.failed[chapter]


def test_no_request_of_a_controller_was_refused_by_reprieve(day_result: DayResult) -> None:
    refused = [
        call for call in day_result.calls if call.is_by_a_controller and call.is_refused_by_us
    ]

    assert not refused, refused[:5]


def test_users_who_broke_a_rule_were_refused_on_the_same_day(day_result: DayResult) -> None:
    refused = [call for call in day_result.calls if call.is_refused_by_us]

    assert {call.user for call in refused} == {"admin"}
    assert {call.resource for call in refused} >= {
        "pods", "deployments", "statefulsets", "jobs", "priorityclasses", "namespaces"
    }  # fmt: skip
    assert any("reprieve-templates" in call.message for call in refused), "the guard"


def test_no_request_was_admitted_because_a_webhook_failed(day_result: DayResult) -> None:
    unanswered = [
        call for call in day_result.calls if call.failures and call.at >= day_result.ready_at
    ]

    assert not unanswered, unanswered[:5]
    assert "review failed" not in day_result.log


def test_the_webhooks_reviewed_requests_of_controllers(day_result: DayResult) -> None:
    called = Counter(
        call.user.removeprefix(KUBE_SYSTEM) for call in day_result.calls if call.webhooks
    )

    assert set(called) >= set(MAKERS["pods"]), called
    assert min(day_result.reviews.values()) > 0, day_result.reviews


def test_the_guard_reviewed_only_deletions_by_schedulers(day_result: DayResult) -> None:
    deleted = {
        (call.namespace, call.user.removeprefix(KUBE_SYSTEM))
        for call in day_result.calls
        if call.resource == "pods" and call.verb.startswith("delete") and call.code < 300
    }

    assert deleted >= WITHOUT_NOTICE, WITHOUT_NOTICE - deleted
    assert day_result.reviews["schedulers' deletions"] > 0
    assert day_result.others_deletions == 0


def test_every_controller_made_requests(day_result: DayResult) -> None:
    done = {
        (call.user.removeprefix(KUBE_SYSTEM), f"{call.verb} {call.resource}")
        for call in day_result.calls
        if call.code < 300
    }

    wanted = {(name, f"create {kind}") for kind, names in MAKERS.items() for name in names} | set(
        WORKERS.items()
    )
    assert done >= wanted, wanted - done
    assert ("kwok", "patch pods/status") in done
    assert ("system:kube-scheduler", "create pods/binding") in done
    assert ("system:kube-scheduler", "delete pods") in done


def test_the_day_is_short(day_result: DayResult) -> None:
    assert day_result.seconds < 240
