"""Gangs start together or not at all: by the room of a real cluster, on a stock scheduler.

The gangs need 60 % of the cluster each, so that no two of them fit. A list of all pods is one
moment of the cluster: in none of them are pods of two gangs placed while others of these wait.
`GATE_ROUNDS` sets the number of rounds of the slow tests, in each of which twenty gangs start from
cold: a few among the other tests, fifty in `make test-gate`. `SEED` repeats a run of the last one.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from realcluster.programs import OPERATOR
from reprieve_policy.keys import GANG_GATE_LABEL
from reprieve_policy.keys import OLD_MIN_AVAILABLE as MIN_AVAILABLE
from reprieve_policy.keys import OLD_POD_GROUP as POD_GROUP
from reprieve_testing.cluster.gang_gate import (
    SECONDS,
    Gated,
    a_job,
    gate_on,
    installed_in,
    is_held,
    runs,
)
from reprieve_testing.cluster.handle import cluster_for_tests, wait_for

pytestmark = pytest.mark.cluster

ROUNDS = int(os.environ.get("GATE_ROUNDS", "3"))
GANGS = 20
SIZE, CPUS = 5, 2
"""10 of the 16 CPUs that two simulated nodes have."""
ROUND_SECONDS = 600.0
KILL_EVERY_SECONDS = (3.0, 20.0)


@pytest.fixture(scope="module")
def installed() -> Iterator[Gated]:
    with cluster_for_tests("reprieve-gang-room", kwok_nodes=2) as handle:
        yield from installed_in(handle)


@pytest.fixture
def gated(installed: Gated) -> Iterator[Gated]:
    with gate_on(installed) as made:
        yield made


def a_gang(name: str, *, size: int = SIZE, cpus: int = CPUS, **spec: Any) -> Any:
    job = a_job(name, pods=size, **{POD_GROUP: name, MIN_AVAILABLE: str(size)})
    template = job["spec"]["template"]["spec"]
    template["containers"][0]["resources"] = {"requests": {"cpu": str(cpus)}}
    template["nodeSelector"] = {"type": "kwok"}
    template["terminationGracePeriodSeconds"] = 1
    template.update(spec)
    ignored = {
        "action": "Ignore",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    job["spec"]["podFailurePolicy"] = {"rules": [ignored]}
    return job


def uids(pods: list[Any]) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods}


def placed_by_gang(gated: Gated) -> Counter[str]:
    """Return how many pods of each gang are on a node, at one moment."""
    return Counter(
        pod["metadata"]["labels"][POD_GROUP]
        for pod in gated.pods()
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
    )


def never_held(gated: Gated) -> list[str]:
    """Return the pods on nodes that the webhook did not hold: removing a gate is a generation."""
    return [
        pod["metadata"]["name"]
        for pod in gated.pods()
        if pod["spec"].get("nodeName") and pod["metadata"]["generation"] == 1
    ]


def run_all(gated: Gated, names: set[str], disturb: Callable[[], None]) -> None:
    """Wait until every gang has run, and end each as soon as it does."""
    ended: set[str] = set()
    deadline = time.monotonic() + ROUND_SECONDS
    while ended != names:
        assert time.monotonic() < deadline, f"these never ran: {sorted(names - ended)}"
        placed = placed_by_gang(gated)
        half = {name: count for name, count in placed.items() if count < SIZE and name not in ended}
        assert len(half) <= 1, f"half placed at one moment: {half}; never held: {never_held(gated)}"
        for name in names - ended:
            if placed[name] == SIZE:
                gated.cluster.kubectl.read(
                    "delete", "job", name, "-n", gated.namespace, "--wait=false"
                )
                ended.add(name)
        disturb()
    wait_for("all pods are gone", lambda: not gated.pods(), SECONDS)


def start_all(gated: Gated, round_number: int) -> set[str]:
    names = {f"gang-{round_number}-{index}" for index in range(GANGS)}
    gated.cluster.kubectl.apply(
        *(
            gang | {"metadata": gang["metadata"] | {"namespace": gated.namespace}}
            for gang in map(a_gang, sorted(names))
        )
    )
    return names


def test_three_gangs_of_which_one_fits_at_a_time_all_run(gated: Gated) -> None:
    names = {"one", "two", "three"}
    for name in sorted(names):
        gated.create(a_gang(name))
    run_all(gated, names, lambda: None)
    assert "GangWaitingForRoom" in gated.events()


def test_a_gang_that_never_fits_keeps_no_other_from_starting(gated: Gated) -> None:
    gated.create(a_gang("huge", size=9))
    gated.wait_pods("held", 9, is_held)
    gated.create(a_gang("small"))
    gated.wait_pods("running", SIZE, runs, f"{POD_GROUP}=small")
    gated.wait_pods("held", 9, is_held, f"{POD_GROUP}=huge")


def test_a_gang_that_the_scheduler_cannot_place_is_held_back(gated: Gated) -> None:
    """A volume that does not exist: the room is there, and no pod is placed.

    Two pods: the Job controller doubles its back-off with each pod that ends at once.
    """
    gated.cluster.set_policy(gangGate="true", gangGateTimeout="5s")
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}
    gated.create(a_gang("stuck", size=2, volumes=[claim]))
    selector = f"{POD_GROUP}=stuck"
    first = wait_for("pods", lambda: uids(gated.pods(selector)), SECONDS)
    wait_for("Event", lambda: "GangHeldBack" in gated.events(), SECONDS)
    wait_for("others in their place", lambda: uids(gated.pods(selector)) - first, SECONDS)
    # Held at first, and released again once the gang's back-off is over.
    assert all(GANG_GATE_LABEL in pod["metadata"]["labels"] for pod in gated.pods(selector))
    metrics = gated.installation.programs.read(OPERATOR, "/metrics")
    assert 'reprieve_gang_gate_failures_total{reason="not-placed"}' in metrics
    gated.create(a_gang("next"))
    gated.wait_pods("running", SIZE, runs, f"{POD_GROUP}=next")


@pytest.mark.slow
def test_twenty_gangs_of_which_one_fits_at_a_time_round_after_round(gated: Gated) -> None:
    for number in range(ROUNDS):
        run_all(gated, start_all(gated, number), lambda: None)


@pytest.mark.slow
def test_the_same_with_the_operator_killed_at_random(gated: Gated) -> None:
    seed = int(os.environ.get("SEED", str(time.time_ns() % 10**6)))
    chance = random.Random(seed)
    kill_at = time.monotonic() + chance.uniform(*KILL_EVERY_SECONDS)

    def disturb() -> None:
        nonlocal kill_at
        if time.monotonic() >= kill_at:
            gated.installation.programs.stop(OPERATOR, kill=True)
            gated.installation.start(OPERATOR)
            kill_at = time.monotonic() + chance.uniform(*KILL_EVERY_SECONDS)

    try:
        for number in range(ROUNDS):
            run_all(gated, start_all(gated, number), disturb)
    except AssertionError as failure:
        failure.add_note(f"SEED={seed}")
        raise
