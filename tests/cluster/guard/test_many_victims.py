"""An unmodified kube-scheduler against the guard, with more victims than it deletes at a time."""

import time
from collections.abc import Iterator
from datetime import timedelta
from http import HTTPStatus

import pytest

from realcluster.programs import WEBHOOKS
from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.cluster.patient_api_server import wait_longer_for_reviews
from reprieve_testing.guard.guarded_cluster import (
    HINT,
    GuardedCluster,
    a_pod,
    a_priority_class,
    guarded_cluster,
)

pytestmark = pytest.mark.cluster

HIGH, LOW = "many-high", "many-low"
VICTIMS, AT_A_TIME = 40, 16
WATCHED_SECONDS = 20.0
KEPT = {"quota.scheduling.koordinator.sh/preemptible": "false"}
ANSWERS = {"put off": ({}, HTTPStatus.NOT_FOUND), "refused": (KEPT, HTTPStatus.TOO_MANY_REQUESTS)}


@pytest.fixture(scope="module")
def ours() -> Iterator[GuardedCluster]:
    with guarded_cluster("test-guard-many") as cluster:
        # Without this, the first victims would be gone while the test watches: the demo's times are
        # short.
        cluster.set_policy(ceiling="5m", checkpointTimeout="4m")
        cluster.set_capacity("kwok-0", VICTIMS)
        cluster.create("default", a_priority_class(HIGH, 1000), a_priority_class(LOW, 10))
        wait_longer_for_reviews(cluster.kubectl)
        # For the same reason: with one second, reviews would fail on a busy machine.
        cluster.installation.programs.restart(WEBHOOKS, "--lookup-timeout-seconds", 20)
        yield cluster


@pytest.mark.parametrize(
    ("labels", "code"),
    [ANSWERS["put off"], pytest.param(*ANSWERS["refused"], marks=pytest.mark.slow)],
    ids=ANSWERS,
)
def test_the_scheduler_asks_for_many_victims_and_retries_rarely(
    ours: GuardedCluster, labels: dict[str, str], code: int
) -> None:
    """Victims that count as gone are all asked for, once.

    After a refusal, the scheduler asks for all again: without the limit, three times a second.
    """
    with ours.namespace("many") as team:
        pods = (
            a_pod(f"victim-{n}", slots=1, priority_class=LOW, node="kwok-0") for n in range(VICTIMS)
        )
        ours.create(
            team,
            *(
                pod | {"metadata": pod["metadata"] | {"labels": labels, "annotations": HINT}}
                for pod in pods
            ),
        )
        wait_for("all run", lambda: running_in(ours, team) == VICTIMS)
        ours.create(team, a_pod("preemptor", slots=VICTIMS, priority_class=HIGH, node="kwok-0"))
        wait_for("the scheduler is refused", lambda: ours.calls(team))
        time.sleep(WATCHED_SECONDS)  # That nothing more comes shows in time only.
        calls = ours.calls(team)
        assert [call for call in calls if call.code != code] == []
        asked = len({call.name for call in calls})
        assert asked == VICTIMS if code == HTTPStatus.NOT_FOUND else 1 < asked < VICTIMS
        # How long the first round takes depends on the machine.
        first = {call.name: call.at for call in reversed(calls)}
        again = [call for call in calls if call.at > first[call.name] + timedelta(seconds=2)]
        # One a second, and those of an attempt that has just begun.
        assert len(again) <= WATCHED_SECONDS + AT_A_TIME


def running_in(ours: GuardedCluster, team: str) -> int:
    pods = ours.kubectl.get("pods", "-n", team)["items"]
    return sum(pod["status"].get("phase") == "Running" for pod in pods)
