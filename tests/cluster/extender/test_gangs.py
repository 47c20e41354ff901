"""Gangs on an unmodified scheduler with extender, guard and operator: all of a gang leaves, or
none.

A gang leaves only for a preemptor that gets its place. Gangs of eight fill the nodes. In each round
a gang of four arrives and requests as much as one of them has. `GANG_ROUNDS` sets the number of
rounds, half of them with each kind of gang: a few among the other tests, a hundred in `make
test-gangs`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from realcluster.programs import OPERATOR
from reprieve_policy import keys
from reprieve_testing.cluster.extender_cluster import (
    ExtenderCluster,
    a_priority_class,
    extender_cluster,
)
from reprieve_testing.cluster.hack_cluster import NAMESPACE
from reprieve_testing.cluster.handle import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROUNDS = (int(os.environ.get("GANG_ROUNDS", "4")) + 1) // 2
NODES = 4
VICTIMS, VICTIM_SIZE, PREEMPTOR_SIZE = 4, 8, 4
LOW, URGENT = "low", "urgent"
SECONDS = 90.0
GROUP, JOBSET = "pod-group.scheduling.sigs.k8s.io", "jobset.sigs.k8s.io"


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExtenderCluster]:
    with extender_cluster(
        "test-scheduler-gangs", tmp_path_factory.mktemp("scheduler"), nodes=NODES
    ) as made:
        for name, value in ((LOW, 1000), (URGENT, 5000)):
            made.cluster.kubectl.apply(a_priority_class(name, value))
        made.programs.start(OPERATOR)
        made.programs.wait_until_ready(OPERATOR)
        yield made


@pytest.fixture(autouse=True)
def cleared(ours: ExtenderCluster) -> Iterator[None]:
    yield
    ours.clear()


@dataclass(frozen=True)
class Kind:
    """How a gang is declared, and the labels that identify its pods."""

    label: str
    jobs: int
    labels: Callable[[int], dict[str, str]]
    """Of each pod beside its name, by how many there are."""

    def gang(self, name: str, size: int, cpu: int, priority_class: str) -> list[Any]:
        """Return Jobs all of whose pods run at once, as one gang."""
        each = size // self.jobs
        labels = {self.label: name, **self.labels(size)}
        return [
            a_job(f"{name}-{index}", each, cpu, priority_class, labels)
            for index in range(self.jobs)
        ]


KINDS = {
    "a Job with a pod group": Kind(
        f"{GROUP}/name", 1, lambda size: {f"{GROUP}/min-available": str(size)}
    ),
    # Labels as JobSet's controller sets them; nothing in the pods states the size of the gang.
    "the Jobs of a JobSet": Kind(
        keys.JOBSET,
        2,
        lambda _: {f"{JOBSET}/replicatedjob-name": "workers", f"{JOBSET}/restart-attempt": "0"},
    ),
}
ONE_JOB = KINDS["a Job with a pod group"]


def a_job(name: str, size: int, cpu: int, priority_class: str, labels: dict[str, str]) -> Any:
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
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "completions": size,
            "parallelism": size,
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


class Gangs:
    """The gangs of one kind, by which of their pods run."""

    def __init__(self, ours: ExtenderCluster, kind: Kind) -> None:
        self._cluster, self._kubectl, self._kind = ours.cluster, ours.cluster.kubectl, kind

    def create(self, name: str, size: int, cpu: int, priority_class: str) -> None:
        """Create a gang."""
        self._cluster.create(*self._kind.gang(name, size, cpu, priority_class))

    def start(self, name: str, size: int, cpu: int, priority_class: str) -> None:
        """Create a gang, and wait until all of it runs."""
        self.create(name, size, cpu, priority_class)
        wait_for(
            f"all {size} pods of {name}", lambda: len(self.running().get(name, ())) == size, SECONDS
        )

    def fill(self) -> list[str]:
        """Fill the nodes with gangs that may be victims; return their names."""
        names = [f"victim-{number}" for number in range(VICTIMS)]
        for name in names:
            self.start(name, VICTIM_SIZE, 1, LOW)
        return names

    def end(self, *names: str) -> None:
        """Delete gangs with all their pods."""
        selector = f"{self._kind.label} in ({','.join(names)})"
        self._kubectl.read(
            "delete",
            "job",
            "-l",
            selector,
            "-n",
            NAMESPACE,
            "--cascade=foreground",
            "--timeout=60s",
        )

    def running(self) -> dict[str, set[str]]:
        """Return the uids of the pods that run and stay, by their gang."""
        found: dict[str, set[str]] = {}
        for pod in self._kubectl.get("pods", "-n", NAMESPACE)["items"]:
            metadata = pod["metadata"]
            stays = "deletionTimestamp" not in metadata and keys.EVICTION not in metadata.get(
                "annotations", {}
            )
            if stays and pod["status"].get("phase") == "Running":
                found.setdefault(metadata["labels"][self._kind.label], set()).add(metadata["uid"])
        return found


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_no_partial_gang_survives_and_no_pod_is_preempted_for_a_gang_that_is_not_placed(
    ours: ExtenderCluster, kind: Kind
) -> None:
    gangs = Gangs(ours, kind)
    names = gangs.fill()
    for number in range(ROUNDS):
        before, preemptor = gangs.running(), f"preemptor-{number}"
        gangs.start(preemptor, PREEMPTOR_SIZE, 2, URGENT)
        after = gangs.running()
        left = {name: len(after.get(name, set()) & before[name]) for name in names}
        run = {name: len(uids) for name, uids in after.items()}
        report = (
            f"round {number}: left {left}, run {run}, {ours.outcomes()}\n{ours.last_choices(4)}"
        )
        assert sorted(left.values()) == [0, *[VICTIM_SIZE] * (VICTIMS - 1)], report
        victim = min(names, key=left.__getitem__)
        gangs.end(preemptor, victim)
        # Create another Job: its controller waits for minutes before it replaces so many failed
        # pods.
        names[names.index(victim)] = f"victim-{VICTIMS + number}"
        gangs.start(f"victim-{VICTIMS + number}", VICTIM_SIZE, 1, LOW)


def test_no_pod_is_preempted_for_a_gang_that_cannot_be_placed_completely(
    ours: ExtenderCluster,
) -> None:
    gangs = Gangs(ours, ONE_JOB)
    gangs.fill()
    before, answered = gangs.running(), ours.calls("nothing")
    # With every pod evicted, four nodes have room for one each: the fifth would find no room.
    gangs.create("too-large", NODES + 1, 8, URGENT)
    ours.wait_calls("nothing", answered + NODES)
    assert gangs.running() == before
