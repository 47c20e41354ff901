"""Gangs on an unmodified scheduler that asks our extender, with guard and operator: of a gang all go or none, and for somebody.

Jobs of eight fill the nodes; each round a Job of four comes that needs as much as one of them has. `GANG_ROUNDS` says how many
rounds: a few where it is one of many tests, a hundred in `make test-gangs`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from realcluster.programs import OPERATOR
from reprieve_policy import keys
from reprieve_testing.cluster import wait_for
from reprieve_testing.extended import Extended, a_priority_class, extended
from reprieve_testing.hack_cluster import NAMESPACE

pytestmark = pytest.mark.cluster

ROUNDS = int(os.environ.get("GANG_ROUNDS", "3"))
NODES = 4
VICTIMS, VICTIM_SIZE, PREEMPTOR_SIZE = 4, 8, 4
LOW, URGENT = "low", "urgent"
SECONDS = 90.0
GROUP = "pod-group.scheduling.sigs.k8s.io"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extended]:
    with extended("test-scheduler-gangs", tmp_path_factory.mktemp("scheduler"), nodes=NODES) as made:
        for name, value in ((LOW, 1000), (URGENT, 5000)):
            made.cluster.kubectl.apply(a_priority_class(name, value))
        made.programs.start(OPERATOR)
        made.programs.wait_until_ready(OPERATOR)
        yield made


def a_gang(name: str, size: int, cpu: int, priority_class: str) -> Any:
    """Return a Job all of whose pods run at once, as one gang."""
    labels = {f"{GROUP}/name": name, f"{GROUP}/min-available": str(size)}
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": str(cpu)}}}
    spec = {
        "priorityClassName": priority_class,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"type": "kwok"},
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completions": size,
            "parallelism": size,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


class Gangs:
    """The Jobs of the namespace, by which of their pods run."""

    def __init__(self, ours: Extended) -> None:
        self._cluster, self._kubectl = ours.cluster, ours.cluster.kubectl

    def start(self, name: str, size: int, cpu: int, priority_class: str) -> None:
        """Create a gang, and wait until all of it runs."""
        self._cluster.create(a_gang(name, size, cpu, priority_class))
        wait_for(f"all {size} pods of {name}", lambda: len(self.running().get(name, ())) == size, SECONDS)

    def end(self, *names: str) -> None:
        """Delete Jobs with all their pods."""
        self._kubectl.read("delete", "job", *names, "-n", NAMESPACE, "--cascade=foreground", "--timeout=60s")

    def running(self) -> dict[str, set[str]]:
        """Return the uids of the pods that run and stay, by their Job."""
        found: dict[str, set[str]] = {}
        for pod in self._kubectl.get("pods", "-n", NAMESPACE)["items"]:
            metadata = pod["metadata"]
            stays = "deletionTimestamp" not in metadata and keys.EVICTION not in metadata.get("annotations", {})
            if stays and pod["status"].get("phase") == "Running":
                found.setdefault(metadata["labels"]["job-name"], set()).add(metadata["uid"])
        return found


def test_no_partial_gang_survives_and_nobody_goes_for_a_gang_that_is_not_placed(ours: Extended) -> None:
    gangs, names = Gangs(ours), [f"victim-{number}" for number in range(VICTIMS)]
    for name in names:
        gangs.start(name, VICTIM_SIZE, 1, LOW)
    for number in range(ROUNDS):
        before, preemptor = gangs.running(), f"preemptor-{number}"
        gangs.start(preemptor, PREEMPTOR_SIZE, 2, URGENT)
        after = gangs.running()
        left = {name: len(after.get(name, set()) & before[name]) for name in names}
        run = {name: len(uids) for name, uids in after.items()}
        told = f"round {number}: left {left}, run {run}, {ours.outcomes()}\n{ours.last_choices(4)}"
        assert sorted(left.values()) == [0, *[VICTIM_SIZE] * (VICTIMS - 1)], told
        victim = min(names, key=left.__getitem__)
        gangs.end(preemptor, victim)
        # Another one: a Job's controller waits for minutes before it makes so many failed pods anew.
        names[names.index(victim)] = f"victim-{VICTIMS + number}"
        gangs.start(f"victim-{VICTIMS + number}", VICTIM_SIZE, 1, LOW)


def test_for_a_gang_that_could_not_be_placed_whole_nobody_goes(ours: Extended) -> None:
    gangs = Gangs(ours)
    before, answered = gangs.running(), ours.calls("nothing")
    # Four nodes have room for one each at most, if everybody went: the fifth would find none.
    ours.cluster.create(a_gang("too-large", NODES + 1, 8, URGENT))
    ours.wait_calls("nothing", answered + NODES)
    assert gangs.running() == before
