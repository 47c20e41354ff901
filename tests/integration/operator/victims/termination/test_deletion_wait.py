"""Other finalizers on an ended victim are reported after a few seconds, then once a minute."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.victims.cleaner_report import CleanerReport
from reprieve_operator.victims.termination.deletion_wait import DeletionWait
from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle.eviction import CheckpointOutcome
from reprieve_testing.objects.builders import after, an_eviction

ENDED_AT = "2026-11-21T12:02:00Z"
ENDING = an_eviction().hinted(deadline=after(600)).ended(CheckpointOutcome.SAVED).build()


def a_pod(*finalizers: str, ended: bool = True, **metadata: Any) -> VictimPod:
    terminated = {"terminated": {"exitCode": 0, "finishedAt": ENDED_AT}}
    state = terminated if ended else {"running": {}}
    identity = {"name": "p", "namespace": "team", "uid": "u", "finalizers": finalizers}
    return msgspec.convert(
        {
            "metadata": {
                **identity,
                "deletionTimestamp": "2026-11-21T12:02:00Z",
                "annotations": {keys.CLEANERS_BEFORE: "example.com/early"},
                **metadata,
            },
            "status": {"phase": "Running", "containerStatuses": [{"state": state}]},
        },
        VictimPod,
    )


class Wait:
    """A wait at a time of the test's choice, and what it reports."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.events: list[tuple[float, str, str]] = []
        clock = Clock(now=lambda: after(120 + self.seconds), monotonic=lambda: self.seconds)
        recorder: Any = SimpleNamespace(
            event=lambda _, reason, note: self.events.append((self.seconds, reason, note))
        )
        policy: Any = SimpleNamespace(current=PolicySettings())
        report = CleanerReport(recorder, policy, clock)
        self.deletion = DeletionWait(
            recorder, report, clock, reread_seconds=30.0, cleanup_ceiling_seconds=300.0
        )

    def at(self, seconds: float) -> DeletionWait:
        self.seconds = seconds
        return self.deletion


def test_finalizers_of_others_are_reported_once_a_minute() -> None:
    wait = Wait()
    for second in range(185):
        assert wait.at(float(second)).report_finalizers(a_pod("example.com/disk"), ENDING) > 0
    assert [at for at, *_ in wait.events] == [3, 63, 123, 183]


def test_each_finalizer_is_named_with_how_long_it_has_held() -> None:
    """One that was asked before SIGTERM holds since then, the others since the containers ended."""
    wait = Wait()
    pod = a_pod("example.com/disk", keys.CLEANUP_FINALIZER, "example.com/early")
    wait.at(72.0).report_finalizers(pod, ENDING)
    wait.at(75.0).report_finalizers(pod, ENDING)
    assert wait.events == [
        (
            75,
            "WaitingForFinalizers",
            (
                "the pod's containers have ended; it stays until finalizers "
                '"example.com/disk" (held for 1m15s), "example.com/early" (held for 3m15s) '
                "are removed"
            ),
        )
    ]


HELD = {
    "while its containers run": (a_pod(keys.CLEANUP_FINALIZER, ended=False), 299.0, False),
    "once its containers have ended": (a_pod(keys.CLEANUP_FINALIZER), 0.0, True),
    "at the ceiling": (a_pod(keys.CLEANUP_FINALIZER, ended=False), 300.0, True),
    "where another client, or the kubelet, has deleted it with grace 0": (
        a_pod(keys.CLEANUP_FINALIZER, ended=False, deletionGracePeriodSeconds=0),
        0.0,
        True,
    ),
    "never, where it is not there": (a_pod("example.com/disk"), 300.0, False),
}


@pytest.mark.parametrize(("pod", "seconds", "is_released"), HELD.values(), ids=HELD)
def test_our_finalizer_is_removed(pod: VictimPod, seconds: float, *, is_released: bool) -> None:
    wait = Wait()
    assert wait.at(seconds).may_remove_finalizer(pod) is is_released
    assert wait.at(seconds).may_remove_finalizer(pod) is is_released
    reasons = [reason for _, reason, _ in wait.events]
    assert reasons == (["CleanupCeilingReached"] if seconds >= 300 and is_released else [])


def test_a_victim_is_looked_at_again_when_the_ceiling_comes() -> None:
    pod = a_pod(keys.CLEANUP_FINALIZER, ended=False)
    assert Wait().at(290.0).report_finalizers(pod, ENDING) == pytest.approx(10.0)


def test_a_pod_that_names_no_time_counts_from_when_it_was_seen() -> None:
    wait = Wait()
    pod = a_pod("example.com/disk")
    pod = replace(pod, status=replace(pod.status, phase="Failed", containerStatuses=()))
    wait.at(10.0).report_finalizers(pod, ENDING)
    wait.at(14.0).report_finalizers(pod, ENDING)
    assert wait.events[0][2].count('"example.com/disk" (held for 4s)') == 1
