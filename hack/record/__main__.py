"""`python -m record`: perform every operation on a cluster of its own, and keep the reviews."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from realcluster import lifecycle
from realcluster.binaries import build
from realcluster.client.kubectl import Kubectl
from realcluster.errors import ClusterError
from realcluster.progress import Progress

from .operations import OPERATIONS, Operation
from .recorder import Recorder
from .stable import make_stable
from .testbed import NAMESPACE, Testbed

CLUSTER = "reprieve-record"
FOLDER = Path(__file__).resolve().parents[2] / "tests" / "contract" / "reviews" / "recorded"


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser("record", description=__doc__)
    parser.add_argument(
        "--name", default=CLUSTER, help="the cluster to create and to remove (default: %(default)s)"
    )
    name, progress = parser.parse_args().name, Progress()
    try:
        cluster = lifecycle.up(name, {"kwok_nodes": 2}, None, progress)
        testbed = Testbed(cluster, Kubectl(build.bin_directory() / "kubectl", cluster.kubeconfig))
        _record(testbed, progress)
    except ClusterError as error:
        progress.say(f"record: {error}")
        return 1
    finally:
        lifecycle.down(name, keep_logs=False, progress=progress)
    return 0


def _record(testbed: Testbed, progress: Progress) -> None:
    recorder = Recorder()
    with recorder.listening():
        testbed.kubectl.read("create", "namespace", NAMESPACE)
        testbed.kubectl.run("create", "serviceaccount", "default", "-n", NAMESPACE)
        testbed.kubectl.apply(*recorder.configurations())
        _wait_recording(testbed, recorder)
        FOLDER.mkdir(exist_ok=True)
        for old in FOLDER.glob("*.json"):
            old.unlink()
        since = 0
        for operation in OPERATIONS:
            # Without an action of its own, an operation follows from the one before.
            if operation.do is not None:
                since = recorder.count
                operation.do(testbed)
            _keep(operation, recorder.first(since, operation, operation.wants))
            progress.say(operation.name)


def _wait_recording(testbed: Testbed, recorder: Recorder) -> None:
    """Wait until the webhook configurations are in force, which takes a moment."""
    wanted = Operation("", "UPDATE namespaces", lambda _: None, of=NAMESPACE)
    for attempt in range(100):
        testbed.run(f"label namespace {NAMESPACE} --overwrite attempt=a{attempt}")
        if recorder.has(wanted):
            return
    raise ClusterError("the recorder is not called")


def _keep(operation: Operation, review: Any) -> None:
    stable = make_stable(review, keep_managed_fields=operation.keep_managed_fields)
    (FOLDER / f"{operation.name}.json").write_text(
        json.dumps(stable, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    sys.exit(main())
