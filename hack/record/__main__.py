"""`python -m record`: act out every scene on a cluster of its own, and keep the reviews."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from realcluster import build, lifecycle
from realcluster.errors import ClusterError
from realcluster.kubectl import Kubectl
from realcluster.progress import Progress

from .lab import NAMESPACE, Lab
from .recorder import Recorder
from .scenes import SCENES, Scene
from .stable import make_stable

CLUSTER = "reprieve-record"
FOLDER = Path(__file__).resolve().parents[2] / "tests" / "contract" / "reviews" / "recorded"


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser("record", description=__doc__)
    parser.add_argument(
        "--name", default=CLUSTER, help="the cluster to make and to remove (default: %(default)s)"
    )
    name, progress = parser.parse_args().name, Progress()
    try:
        cluster = lifecycle.up(name, {"kwok_nodes": 2}, None, progress)
        lab = Lab(cluster, Kubectl(build.bin_directory() / "kubectl", cluster.kubeconfig))
        _record(lab, progress)
    except ClusterError as error:
        progress.say(f"record: {error}")
        return 1
    finally:
        lifecycle.down(name, keep_logs=False, progress=progress)
    return 0


def _record(lab: Lab, progress: Progress) -> None:
    recorder = Recorder()
    with recorder.listening():
        lab.kubectl.read("create", "namespace", NAMESPACE)
        lab.kubectl.run("create", "serviceaccount", "default", "-n", NAMESPACE)
        lab.kubectl.apply(*recorder.configurations())
        _wait_recording(lab, recorder)
        FOLDER.mkdir(exist_ok=True)
        for old in FOLDER.glob("*.json"):
            old.unlink()
        since = 0
        for scene in SCENES:
            # A scene that does nothing of its own is looked for in what the one before it set going.
            since = since if scene.is_a_consequence else recorder.count
            scene.do(lab)
            _keep(scene, recorder.first(since, scene, scene.wants))
            progress.say(scene.name)


def _wait_recording(lab: Lab, recorder: Recorder) -> None:
    """Configurations are in force a moment after they exist."""
    wanted = Scene("", "UPDATE namespaces", lambda _: None, of=NAMESPACE)
    for attempt in range(100):
        lab.run(f"label namespace {NAMESPACE} --overwrite attempt=a{attempt}")
        if recorder.has(wanted):
            return
    raise ClusterError("the recorder is not called")


def _keep(scene: Scene, review: Any) -> None:
    stable = make_stable(review, keep_managed_fields=scene.keep_managed_fields)
    (FOLDER / f"{scene.name}.json").write_text(
        json.dumps(stable, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    sys.exit(main())
