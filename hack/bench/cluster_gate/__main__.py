"""`make bench-gate-cluster`: fails if a victim or a created pod costs more than checked in.

It counts writes and calls to the API server a victim, by verb, and calls to the webhooks a created
pod. It compares the processor time of our programs with that of a fixed loop, which is run between
the turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.servers import Server
from bench.victims import pods
from bench.victims.measurement import Measurement, WorkloadProcess
from bench.victims.operator_process import OperatorProcess
from mainjob.installation import Installation, Nodes
from realcluster import command, install, lifecycle
from realcluster.binaries import build
from realcluster.client.kubectl import Kubectl
from realcluster.errors import ClusterError
from realcluster.programs import WEBHOOKS
from realcluster.progress import Progress

from . import calibration, figures
from .figures import CPU

FIGURES = Path(__file__).with_name("figures.json")
NAME = "bench-gate-cluster"
_NODES = 10
_RIGHTS = ("guard.yaml", "users-rbac.yaml", "operator-rbac.yaml")
_PORT = 8080
_REVIEWS = "reprieve_admission_reviews_total"
_SETTLE_SECONDS = 120.0
_VERBS = ("create", "delete", "get", "list", "patch", "update", "watch")
"""Without this, a verb that one run happens not to need would count as a missing figure."""


@dataclass(frozen=True)
class GateOptions:
    """The command line's options."""

    victims: int
    rounds: int
    update: bool


@dataclass(frozen=True)
class CreatedPods:
    """What the creation of pods cost the webhooks."""

    reviews: float
    cpu_seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and compare; the exit status is 1 if a figure grew."""
    options = _parse(arguments)
    return command.run(NAME, lambda progress: _run(options, progress))


def _run(options: GateOptions, progress: Progress) -> int:
    measured = _measure(options, progress)
    if options.update:
        FIGURES.write_text(json.dumps(figures.updated(measured), indent=1) + "\n")
    rows = figures.compare(json.loads(FIGURES.read_text()), measured)
    sys.stdout.write(f"\n{figures.table(rows)}\n")
    failed = [row.name for row in rows if row.is_failure]
    if failed:
        progress.say(
            f"{NAME}: {', '.join(failed)}. If that is meant: make bench-gate-cluster UPDATE=1"
        )
    return 1 if failed else 0


def _measure(options: GateOptions, progress: Progress) -> dict[str, float]:
    with ExitStack() as stack:
        cluster = lifecycle.up(NAME, {"kwok_nodes": _NODES}, None, progress)
        stack.callback(lifecycle.down, NAME, keep_logs=False, progress=progress)
        kubectl = Kubectl(build.bin_directory() / "kubectl", cluster.kubeconfig)
        for file in (install.NAMESPACE_FILE, *(install.BASE / name for name in _RIGHTS)):
            kubectl.read("apply", "-f", file)
        hints = stack.enter_context(WorkloadProcess.running("saving"))
        operator = OperatorProcess(cluster, kubectl)
        operator.start(0, lambda: None)
        stack.callback(operator.stop)
        measurement = Measurement(cluster, kubectl, hints, progress)
        found = _of_victims(measurement, operator, options)
        # Only now: the webhooks would be called for the victims, too.
        installation = Installation.for_cluster(cluster, Nodes.LOCAL)
        install.install(kubectl, install.LOCAL, cluster.port("webhooks"))
        installation.start(WEBHOOKS)
        stack.callback(installation.programs.stop, WEBHOOKS)
        return found | _of_pods(installation, options, progress)


def _of_victims(
    measurement: Measurement, operator: OperatorProcess, options: GateOptions
) -> dict[str, float]:
    measurement.turn(operator, options.victims, 0)  # the first turn loads code
    loop = calibration.seconds()
    turns, ratios = [], []
    for number in range(1, options.rounds + 1):
        turn, before = measurement.turn(operator, options.victims, number), loop
        loop = calibration.seconds()
        turns.append(turn)
        ratios.append(turn.cpu_seconds / options.victims * 100 / statistics.mean((before, loop)))
    verbs = {*_VERBS, *(verb for turn in turns for verb in turn.calls)}
    calls = {
        f"calls a victim: {verb}": statistics.median(
            turn.calls[verb] / options.victims for turn in turns
        )
        for verb in verbs
    }
    return calls | {
        "writes a victim, in the audit log": statistics.median(turn.mean_writes for turn in turns),
        f"{CPU} of 100 victims, in loops": statistics.median(ratios),
    }


def _of_pods(
    installation: Installation, options: GateOptions, progress: Progress
) -> dict[str, float]:
    namespace = "bench-gate-pods"
    client = installation.kubectl.client
    installation.kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": namespace},
        },
    )
    numbers = iter(range(10**6))

    def create() -> None:
        for _ in range(options.victims):
            pod = pods.victim(namespace, next(numbers), _NODES, _PORT)
            pod["spec"]["containers"][0]["ports"] = [{"containerPort": _PORT}]
            client.create(pod, namespace=namespace)

    with progress.task(f"{(options.rounds + 1) * options.victims} pods for the webhooks"):
        _created(installation, namespace, create)
        loop = calibration.seconds()
        reviews, ratios = [], []
        for _ in range(options.rounds):
            found, before = _created(installation, namespace, create), loop
            loop = calibration.seconds()
            reviews.append(found.reviews / options.victims)
            cpu = found.cpu_seconds / options.victims * 1000
            ratios.append(cpu / statistics.mean((before, loop)))
    return {
        "calls to webhooks a created pod": statistics.median(reviews),
        f"{CPU} of 1,000 created pods, in loops": statistics.median(ratios),
    }


def _created(installation: Installation, namespace: str, create: Callable[[], None]) -> CreatedPods:
    """Create pods, and return the webhooks' cost until all of them run."""
    pid = installation.programs.pid(WEBHOOKS)
    if pid is None:
        raise ClusterError(
            f"the webhooks have ended, see {installation.log_of_local_program(WEBHOOKS)}"
        )
    server = Server(WEBHOOKS, 0, pid)
    reviews, cpu = _reviews(installation), server.cpu_seconds()
    create()
    deadline = time.monotonic() + _SETTLE_SECONDS
    while any(_pending(installation, namespace)):
        if time.monotonic() > deadline:
            raise ClusterError(f"not within {_SETTLE_SECONDS:.0f} s: all pods run")
        time.sleep(0.2)
    return CreatedPods(_reviews(installation) - reviews, server.cpu_seconds() - cpu)


def _pending(installation: Installation, namespace: str) -> Iterator[object]:
    listed = installation.kubectl.get(
        "pods", "-n", namespace, "--field-selector", "status.phase=Pending"
    )
    yield from listed["items"]


def _reviews(installation: Installation) -> float:
    lines = installation.programs.read(WEBHOOKS, "/metrics").splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(_REVIEWS))


def _parse(arguments: Sequence[str] | None) -> GateOptions:
    parser = argparse.ArgumentParser(NAME, description=__doc__.partition("\n")[0])
    parser.add_argument("--victims", type=int, default=100, help="a turn (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--update", action="store_true", help="check in what is measured")
    found = parser.parse_args(arguments)
    return GateOptions(found.victims, found.rounds, found.update)


if __name__ == "__main__":
    sys.exit(main())
