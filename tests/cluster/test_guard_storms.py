"""An unmodified kube-scheduler against the guard: how often it asks, who waits meanwhile, and when the preemptor is placed.

Every kind of answer, with asynchronous preemption on and off, counted in the API server's audit log.
"""

import json
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from reprieve_testing.cluster import wait_for
from reprieve_testing.guarded import HINT, Call, Guarded, a_pod, a_priority_class, guarded_cluster

pytestmark = pytest.mark.cluster

HIGH, LOW = "guarded-high", "guarded-low"
WATCHED_SECONDS = 12.0
"""For storms: one would be six hundred calls."""
LONG = {**HINT, "reprieve.dev/checkpoint-timeout": "25s"}


@pytest.fixture(scope="module", params=["asynchronous", "synchronous"])
def ours(request: pytest.FixtureRequest) -> Iterator[Guarded]:
    gates = "" if request.param == "asynchronous" else "SchedulerAsyncPreemption=false"
    with guarded_cluster(f"test-guard-{request.param[:4]}", feature_gates=gates) as cluster:
        cluster.set_policy(ceiling="40s", checkpointTimeout="25s")
        for node in ("kwok-0", "kwok-1"):
            cluster.offer(node, 2)
        cluster.create("default", a_priority_class(HIGH, 1000), a_priority_class(LOW, 10))
        yield cluster


def test_a_victim_that_saves_is_asked_for_rarely_and_its_preemptor_is_placed_at_once(ours: Guarded) -> None:
    with ours.namespace("saving") as team:
        ours.create(team, *(a_pod(name, slots=1, priority_class=LOW, node="kwok-0", annotations=LONG) for name in "ab"))
        ours.running(team, "a", "b")
        ours.create(team, a_pod("preemptor", slots=1, priority_class=HIGH, node="kwok-0"))
        victim = victim_in(ours, team)
        bystander_is_placed(ours, team)
        assert rate(watched(ours, team)) <= 1
        assert len({call.name for call in ours.calls(team)}) == 1
        ours.save(team, victim)
        ours.gone(team, victim)
        gone_at = time.monotonic()
        ours.running(team, "preemptor")
        assert time.monotonic() - gone_at < 10
        assert rate(ours.calls(team)) <= 1
        assert ours.pod(team, "b" if victim == "a" else "a") is not None


def test_one_that_is_never_preempted_is_asked_for_rarely_and_stays(ours: Guarded) -> None:
    with ours.namespace("never") as team:
        kept = {"quota.scheduling.koordinator.sh/preemptible": "false"}
        ours.create(team, a_pod("kept", slots=2, priority_class=LOW, node="kwok-0", labels=kept, annotations=HINT))
        ours.running(team, "kept")
        ours.create(team, a_pod("preemptor", slots=1, priority_class=HIGH, node="kwok-0"))
        wait_for("the scheduler is refused", lambda: ours.calls(team), 30)
        bystander_is_placed(ours, team)
        assert rate(watched(ours, team)) <= 1
        assert {call.code for call in ours.calls(team)} == {429}
        assert "reprieve.dev/soft-eviction" not in labels(ours, team, "kept")


def test_one_that_is_almost_complete_is_asked_for_rarely_and_not_marked(ours: Guarded) -> None:
    with ours.namespace("almost") as team:
        pod = a_pod("almost", slots=2, priority_class=LOW, node="kwok-0", annotations=HINT)
        pod["spec"] |= {"activeDeadlineSeconds": 29}
        ours.create(team, pod)
        ours.running(team, "almost")
        ours.create(team, a_pod("preemptor", slots=1, priority_class=HIGH, node="kwok-0"))
        wait_for("the scheduler is refused", lambda: ours.calls(team), 30)
        bystander_is_placed(ours, team)
        assert rate(watched(ours, team)) <= 1
        assert {call.code for call in ours.calls(team)} == {429}
        assert "reprieve.dev/soft-eviction" not in labels(ours, team, "almost")


def test_several_victims_of_one_preemptor_are_asked_for_no_oftener(ours: Guarded) -> None:
    with ours.namespace("several") as team:
        ours.create(team, *(a_pod(name, slots=1, priority_class=LOW, node="kwok-0", annotations=LONG) for name in "ab"))
        ours.running(team, "a", "b")
        ours.create(team, a_pod("preemptor", slots=2, priority_class=HIGH, node="kwok-0"))
        victim_in(ours, team)
        assert rate(watched(ours, team)) <= 1
        for _ in range(2):
            ours.save(team, victim := victim_in(ours, team))
            ours.gone(team, victim)
        ours.running(team, "preemptor")
        assert rate(ours.calls(team)) <= 1


def test_a_job_whose_pods_all_ask_for_one_victim_holds_nobody_up(ours: Guarded) -> None:
    """A synchronous scheduler tries them in turn: that is no scheduler that comes back at once."""
    with ours.namespace("job") as team:
        ours.create(team, a_pod("victim", slots=2, priority_class=LOW, node="kwok-0", annotations=LONG))
        ours.running(team, "victim")
        ours.create(team, a_job("preemptors", 2, a_pod("", slots=1, priority_class=HIGH, node="kwok-0")))
        assert victim_in(ours, team) == "victim"
        bystander_is_placed(ours, team)
        # Two preemptors.
        assert rate(watched(ours, team)) <= 2
        bystander_is_placed(ours, team, "another")
        ours.save(team, "victim")
        ours.gone(team, "victim")
        wait_for("all of the Job runs", lambda: running_of(ours, team, "preemptors") == 2, 60)


def test_one_that_wants_no_checkpoint_goes_as_ever(ours: Guarded) -> None:
    with ours.namespace("plain") as team:
        ours.create(team, a_pod("plain", slots=2, priority_class=LOW, node="kwok-0"))
        ours.running(team, "plain")
        ours.create(team, a_pod("preemptor", slots=2, priority_class=HIGH, node="kwok-0"))
        ours.running(team, "preemptor")
        assert [call.code for call in ours.calls(team)] == [200]


def victim_in(ours: Guarded, team: str) -> str:
    """Return the pod that was marked, once it is told."""

    def find() -> str | None:
        pods: list[Any] = ours.kubectl.get("pods", "-n", team, "-l", "reprieve.dev/soft-eviction=hinted")["items"]
        return str(pods[0]["metadata"]["name"]) if pods else None

    name = wait_for("a victim is told", find, 30)
    state = json.loads((ours.pod(team, name) or {})["metadata"]["annotations"]["reprieve.dev/eviction"])
    assert (state["source"], state["initiator"]) == ("koordinator", "kube-scheduler")
    return name


def a_job(name: str, pods: int, pod: Any) -> Any:
    template = {"spec": pod["spec"] | {"restartPolicy": "Never"}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def running_of(ours: Guarded, team: str, job: str) -> int:
    """Return how many pods of a Job run."""
    pods = ours.kubectl.get("pods", "-n", team, "-l", f"batch.kubernetes.io/job-name={job}")["items"]
    return sum(pod["status"].get("phase") == "Running" for pod in pods)


def bystander_is_placed(ours: Guarded, team: str, name: str = "bystander") -> None:
    """Others are scheduled as ever, while somebody waits for a victim."""
    began = time.monotonic()
    ours.create(team, a_pod(name, node="kwok-1"))
    ours.running(team, name)
    assert time.monotonic() - began < 8


def watched(ours: Guarded, team: str) -> list[Call]:
    """Return what the scheduler asks for in the next seconds, and what it asked for before."""
    time.sleep(WATCHED_SECONDS)  # That nothing more comes shows in time only.
    return ours.calls(team)


def rate(calls: list[Call]) -> float:
    """Return calls a second since the first, which needs no wait before it, over all that was watched at least."""
    first: datetime = calls[0].at
    seconds = max((calls[-1].at - first).total_seconds(), WATCHED_SECONDS)
    return (len(calls) - 1) / seconds


def labels(ours: Guarded, team: str, name: str) -> dict[str, str]:
    pod = ours.pod(team, name)
    assert pod is not None
    return dict(pod["metadata"].get("labels", {}))
