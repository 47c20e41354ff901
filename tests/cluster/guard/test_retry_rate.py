"""An unmodified kube-scheduler against the guard: its call rate, waiting pods, and placement.

The tests cover every kind of answer, with asynchronous preemption on, off, and as before 1.33,
counted in the API server's audit log. Most answers are given side by side, each on a node of its
own: if a bystander is placed in the meantime, none of them held it up.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_testing.cluster.handle import wait_for
from reprieve_testing.cluster.kubernetes_version import is_since
from reprieve_testing.guard import scenarios
from reprieve_testing.guard.guarded_cluster import HINT, GuardedCluster, a_pod, guarded_cluster
from reprieve_testing.guard.scenarios import (
    ASYNCHRONOUS,
    FEATURE_GATES,
    GANG,
    HELD_UP_SECONDS,
    HIGH,
    LOW,
    NOTIFIED,
    REPRIEVED,
    SCENARIOS,
    SECOND_SET,
    SYNCHRONOUS,
    UNTOUCHED,
    ScenarioResults,
    bystander_is_placed,
    observe_calls,
    rate,
)

pytestmark = pytest.mark.cluster

LONG = {**HINT, keys.CHECKPOINT_TIMEOUT: "25s"}


WAITS_OUTSIDE_THE_QUEUE = is_since(35)
"""A preemptor is not scheduled while the deletion of its last victim waits (since 1.35,
`isRunningPreemption`)."""

PACES = [
    ASYNCHRONOUS,
    *(pytest.param(pace, marks=pytest.mark.slow) for pace in FEATURE_GATES if pace != ASYNCHRONOUS),
]
"""Of a scheduler as it comes, and as it can be configured or was before."""


@pytest.fixture(scope="module", params=PACES)
def pace(request: pytest.FixtureRequest) -> str:
    """How the scheduler preempts."""
    return str(request.param)


@pytest.fixture(scope="module")
def ours(pace: str) -> Iterator[GuardedCluster]:
    gates = FEATURE_GATES[pace]
    with guarded_cluster(
        f"test-guard-{pace[:4]}", nodes=scenarios.NODES, feature_gates=gates
    ) as cluster:
        scenarios.prepare(cluster)
        for node in ("kwok-0", "kwok-1"):
            cluster.set_capacity(node, 2)
        yield cluster


@pytest.fixture(scope="module")
def results(ours: GuardedCluster, pace: str) -> ScenarioResults:
    return scenarios.run_scenarios(ours, pace)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_preemptor_retries_rarely_and_delays_no_other_pod_for_every_answer(
    results: ScenarioResults, pace: str, name: str
) -> None:
    becomes, codes = (
        SCENARIOS[name].expected_outcome(pace),
        {call.code for call in results.calls[name]},
    )
    assert rate(results.calls[name]) <= 1
    # Once a gang is reprieved, a member that was not asked for before is refused, and stays as it
    # is.
    rest = {UNTOUCHED} if becomes == REPRIEVED else set()
    assert results.outcomes[name] - rest == {becomes}
    assert min(codes) >= 400
    # A preemptor that waits for other victims is not delayed: this one counts as gone. The call of
    # a scheduler that is restarted during it ends with 504.
    if name == SECOND_SET and pace == ASYNCHRONOUS:
        assert codes <= {404, 429, 504}
        return
    # A gang is reprieved a moment after it passed for gone: the refusal may come with the churn.
    later = {call.code for busy in results.busy for call in busy.calls[name]}
    assert becomes == NOTIFIED or 429 in codes | later
    # The requests of a scheduler that asks while it waits: all but two end with 404.
    ends = {404} if pace == ASYNCHRONOUS and not WAITS_OUTSIDE_THE_QUEUE else set()
    assert becomes != UNTOUCHED or codes - ends == {429}
    assert becomes != NOTIFIED or pace != ASYNCHRONOUS or 404 in codes


def test_a_refused_victim_is_retried_after_another_pod_leaves(
    results: ScenarioResults, pace: str
) -> None:
    refused = {
        name for name, scenario in SCENARIOS.items() if scenario.expected_outcome(pace) != NOTIFIED
    }
    assert {name for name in refused if len(results.calls[name]) > 1} == refused


@pytest.mark.parametrize("name", SCENARIOS)
def test_while_pods_keep_ending_only_a_scheduler_without_retry_time_or_pause_retries_as_often(
    results: ScenarioResults, pace: str, name: str
) -> None:
    """The rate is that without a guard for a victim that may not be deleted.

    A scheduler whose victims count as gone asks again whenever a pod ends, and has to wait after a
    while. Before 1.35, it asks again also while it waits.
    """
    at_first, later = results.busy
    assert min(at_first.ended, later.ended) >= scenarios.WATCHED_SECONDS / 3
    asks_while_it_waits = pace == ASYNCHRONOUS and not WAITS_OUTSIDE_THE_QUEUE
    is_unbounded = pace == SYNCHRONOUS or asks_while_it_waits
    for busy, each_time in ((at_first, is_unbounded or name == GANG), (later, is_unbounded)):
        most = SCENARIOS[name].size * (busy.ended + 1) if each_time else scenarios.WATCHED_SECONDS
        # Beside these, the requests that were told to wait come back.
        assert len(busy.calls[name]) <= most + asks_while_it_waits * scenarios.WATCHED_SECONDS


def test_the_deletion_of_a_saving_victim_is_retried_rarely_and_its_preemptor_placed_at_once(
    ours: GuardedCluster,
) -> None:
    with ours.namespace("saving") as team:
        ours.create(
            team,
            *(
                a_pod(name, slots=1, priority_class=LOW, node="kwok-0", annotations=LONG)
                for name in "ab"
            ),
        )
        ours.running(team, "a", "b")
        ours.create(team, a_pod("preemptor", slots=1, priority_class=HIGH, node="kwok-0"))
        victim = victim_in(ours, team)
        bystander_is_placed(ours, team)
        assert rate(observe_calls(ours, team)) <= 1
        assert len({call.name for call in ours.calls(team)}) == 1
        ours.acknowledge_checkpoint(team, victim)
        ours.wait_gone(team, victim)
        gone_at = time.monotonic()
        ours.running(team, "preemptor")
        assert time.monotonic() - gone_at < HELD_UP_SECONDS
        assert rate(ours.calls(team)) <= 1
        assert ours.pod(team, "b" if victim == "a" else "a") is not None


def test_several_victims_of_one_preemptor_are_retried_no_more_often_than_one(
    ours: GuardedCluster,
) -> None:
    with ours.namespace("several") as team:
        ours.create(
            team,
            *(
                a_pod(name, slots=1, priority_class=LOW, node="kwok-0", annotations=LONG)
                for name in "ab"
            ),
        )
        ours.running(team, "a", "b")
        ours.create(team, a_pod("preemptor", slots=2, priority_class=HIGH, node="kwok-0"))
        victim_in(ours, team)
        bystander_is_placed(ours, team)
        assert rate(observe_calls(ours, team)) <= 1
        # Together, or one after the other, as the scheduler deletes them.
        for _ in range(2):
            ours.acknowledge_checkpoint(team, victim := victim_in(ours, team))
            wait_for("the answer counts", lambda name=victim: name not in hinted(ours, team))
        for victim in "ab":
            ours.wait_gone(team, victim)
        ours.running(team, "preemptor")
        assert rate(ours.calls(team)) <= 1


def test_a_job_whose_pods_all_preempt_one_victim_delays_no_other_pod(ours: GuardedCluster) -> None:
    """A synchronous scheduler tries them in turn: that is no scheduler that comes back at once."""
    with ours.namespace("job") as team:
        ours.create(
            team, a_pod("victim", slots=2, priority_class=LOW, node="kwok-0", annotations=LONG)
        )
        ours.running(team, "victim")
        ours.create(
            team, a_job("preemptors", 2, a_pod("", slots=1, priority_class=HIGH, node="kwok-0"))
        )
        assert victim_in(ours, team) == "victim"
        bystander_is_placed(ours, team)
        # Two preemptors.
        assert rate(observe_calls(ours, team)) <= 2
        bystander_is_placed(ours, team, "another")
        ours.acknowledge_checkpoint(team, "victim")
        ours.wait_gone(team, "victim")
        wait_for("all of the Job runs", lambda: running_of(ours, team, "preemptors") == 2)


def test_a_victim_without_a_checkpoint_is_deleted_at_once(ours: GuardedCluster) -> None:
    with ours.namespace("plain") as team:
        ours.create(team, a_pod("plain", slots=2, priority_class=LOW, node="kwok-0"))
        ours.running(team, "plain")
        ours.create(team, a_pod("preemptor", slots=2, priority_class=HIGH, node="kwok-0"))
        ours.running(team, "preemptor")
        assert [call.code for call in ours.calls(team)] == [200]


def victim_in(ours: GuardedCluster, team: str) -> str:
    """Return the marked pod once its workload is notified."""

    def find() -> str | None:
        return next(iter(hinted(ours, team)), None)

    name = wait_for("a victim is notified", find)
    state = json.loads(
        (ours.pod(team, name) or {})["metadata"]["annotations"]["reprieve.dev/eviction"]
    )
    assert (state["source"], state["initiator"]) == ("koordinator", "kube-scheduler")
    return name


def hinted(ours: GuardedCluster, team: str) -> list[str]:
    """Return the pods whose workload is notified and has not answered."""
    pods = ours.kubectl.get("pods", "-n", team, "-l", "reprieve.dev/soft-eviction=hinted")["items"]
    return [str(pod["metadata"]["name"]) for pod in pods]


def a_job(name: str, pods: int, pod: Any) -> Any:
    template = {"spec": pod["spec"] | {"restartPolicy": "Never"}}
    spec = {"parallelism": pods, "completions": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def running_of(ours: GuardedCluster, team: str, job: str) -> int:
    """Return how many pods of a Job run."""
    pods = ours.kubectl.get("pods", "-n", team, "-l", f"batch.kubernetes.io/job-name={job}")[
        "items"
    ]
    return sum(pod["status"].get("phase") == "Running" for pod in pods)
