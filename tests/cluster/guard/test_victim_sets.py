"""The guard beside the extender: one refusal marks the whole chosen set, so victims save together.

With asynchronous preemption on and off: where it is off, the guard does not know the preemptor, and
notifies the victims one by one.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from realcluster.programs import OPERATOR
from reprieve_policy import keys
from reprieve_testing.cluster.extender_cluster import (
    ExtenderCluster,
    a_pod,
    a_priority_class,
    extender_cluster,
)
from reprieve_testing.cluster.hack_cluster import NAMESPACE, SECONDS
from reprieve_testing.cluster.handle import OPERATOR_NAMESPACE, wait_for
from reprieve_testing.guard.guarded_cluster import SCHEDULER, RemovalCall, calls_in
from reprieve_testing.guard.scenarios import (
    ASYNCHRONOUS,
    HELD_UP_SECONDS,
    SYNCHRONOUS,
    WATCHED_SECONDS,
    rate,
)

pytestmark = pytest.mark.cluster

LOW, URGENT = "sets-low", "sets-urgent"


@pytest.fixture(
    scope="module", params=[ASYNCHRONOUS, pytest.param(SYNCHRONOUS, marks=pytest.mark.slow)]
)
def pace(request: pytest.FixtureRequest) -> str:
    """How the scheduler preempts."""
    return str(request.param)


@pytest.fixture(scope="module")
def ours(pace: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExtenderCluster]:
    synchronous = ("--feature-gates", "SchedulerAsyncPreemption=false")
    flags = () if pace == ASYNCHRONOUS else synchronous
    directory = tmp_path_factory.mktemp("scheduler")
    with extender_cluster(
        f"test-guard-sets-{pace[:4]}", directory, nodes=2, cluster_flags=flags
    ) as made:
        for priority_class in (a_priority_class(LOW, 1000), a_priority_class(URGENT, 5000)):
            made.cluster.kubectl.apply(priority_class)
        made.programs.start(OPERATOR)
        made.programs.wait_until_ready(OPERATOR)
        leads = "\nreprieve_leader 1.0\n"
        wait_for("leadership", lambda: leads in made.programs.read(OPERATOR, "/metrics"), SECONDS)
        # The Lease's renewals show the webhooks that an operator runs: without one, a preempted pod
        # gets no notice.
        first = renewed_at(made)
        wait_for("the Lease is renewed", lambda: renewed_at(made) != first, SECONDS)
        yield made


@pytest.fixture(autouse=True)
def cleared(ours: ExtenderCluster) -> Iterator[None]:
    yield
    ours.clear()


def test_the_preemptor_of_a_victim_set_retries_rarely_and_is_placed_after_all_have_saved(
    ours: ExtenderCluster, pace: str
) -> None:
    victims = [a_pod(name, LOW, 4, node="kwok-0") for name in ("a", "b")]
    for victim in victims:
        victim["metadata"]["annotations"] = {keys.CHECKPOINT_HINT: "annotation:"}
    ours.run(*victims)
    ours.cluster.create(a_pod("preemptor", URGENT, 8, node="kwok-0"))
    if pace == ASYNCHRONOUS:
        assert_notified_at_once(ours)
    else:
        wait_for(
            "one is notified",
            lambda: notified_state(ours, "a") or notified_state(ours, "b"),
            SECONDS,
        )
    bystander_is_placed(ours)
    time.sleep(WATCHED_SECONDS)  # That the scheduler does not insist shows only over time.
    assert rate(deletions(ours)) <= 1
    unsaved = {"a", "b"}
    while unsaved:
        name, state = wait_for(
            "one is notified", lambda: next(notified_pods(ours, unsaved), None), SECONDS
        )
        answer_saved(ours, name, state)
        unsaved.remove(name)
    ours.cluster.wait_running("preemptor")
    assert rate(deletions(ours)) <= 1
    assert ours.names() == {"bystander", "preemptor"}


def test_room_that_its_preemptor_left_is_claimed_by_the_next_and_the_save_counts_for_that(
    ours: ExtenderCluster, pace: str
) -> None:
    victim = a_pod("victim", LOW, 8, node="kwok-0")
    victim["metadata"]["annotations"] = {keys.CHECKPOINT_HINT: "annotation:"}
    ours.run(victim)
    ours.cluster.create(a_pod("first", URGENT, 8, node="kwok-0"))
    state = wait_for("it is notified", lambda: notified_state(ours, "victim"), SECONDS)
    ours.cluster.create(a_pod("second", URGENT, 8, node="kwok-0"))
    # The room is for the first: the extender need not be asked for the scheduler to see that.
    ours.cluster.pod_once("second", "turned away", is_turned_away)
    claimed = ours.calls("claimed")
    operator = ours.programs.pid(OPERATOR)
    assert operator is not None
    # Without this, the test would depend on whether the claim comes before the victim is reprieved.
    os.kill(operator, signal.SIGSTOP)
    try:
        ours.cluster.kubectl.read("delete", "pod", "first", "-n", NAMESPACE, "--grace-period=0")
        if pace == ASYNCHRONOUS:
            ours.wait_calls("claimed", claimed)
            ours.cluster.pod_once(
                "second",
                "nominated",
                lambda pod: pod["status"].get("nominatedNodeName") == "kwok-0",
            )
    finally:
        os.kill(operator, signal.SIGCONT)
    # The same request: after a reprieve the answer would not be of the new one.
    answer_saved(ours, "victim", state)
    ours.cluster.wait_running("second")
    assert ours.names() == {"second"}


def is_turned_away(pod: Any) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(
        (one["type"], one.get("reason")) == ("PodScheduled", "Unschedulable") for one in conditions
    )


def answer_saved(ours: ExtenderCluster, name: str, state: Any) -> None:
    answer = json.dumps({"id": state["id"], "state": "saved"})
    ours.cluster.kubectl.read(
        "annotate", "pod", name, "-n", NAMESPACE, f"{keys.CHECKPOINT_ANSWER}={answer}"
    )


def renewed_at(ours: ExtenderCluster) -> str:
    return str(
        ours.cluster.kubectl.get("lease", OPERATOR, "-n", OPERATOR_NAMESPACE)["spec"]["renewTime"]
    )


def assert_notified_at_once(ours: ExtenderCluster) -> None:
    """Assert that both victims are notified while both still run.

    The guard knows the whole set if it knows the preemptor. The scheduler requests the second
    deletion only after the first victim is gone.
    """
    states = [
        wait_for(f"{name} is notified", lambda name=name: notified_state(ours, name), SECONDS)
        for name in ("a", "b")
    ]
    assert {"a", "b"} <= ours.names()
    assert len({state["reason"] for state in states}) == 1


def bystander_is_placed(ours: ExtenderCluster) -> None:
    began = time.monotonic()
    ours.run(a_pod("bystander", LOW, 1, node="kwok-1"))
    assert time.monotonic() - began < HELD_UP_SECONDS


def deletions(ours: ExtenderCluster) -> list[RemovalCall]:
    """Return the scheduler's deletions."""
    found = calls_in(ours.cluster.cluster, NAMESPACE)
    return [call for call in found if (call.user, call.verb) == (SCHEDULER, "delete")]


def notified_pods(ours: ExtenderCluster, names: set[str]) -> Iterator[tuple[str, Any]]:
    return ((name, state) for name in sorted(names) if (state := notified_state(ours, name)))


def notified_state(ours: ExtenderCluster, name: str) -> Any:
    """Return a pod's state once it carries a checkpoint request."""
    pod = ours.cluster.kubectl.get("pod", name, "-n", NAMESPACE)
    state = json.loads(pod["metadata"].get("annotations", {}).get(keys.EVICTION, "{}"))
    return state if state.get("phase") in ("hinted", "checkpointing") else None
