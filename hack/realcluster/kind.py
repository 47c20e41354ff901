"""The same cluster from kind, where Docker and an image registry work.

Untried: no machine with both has run it (docs/development.md, "Untried"). Tests show that the real
kind accepts the configuration, and which commands are run. kind brings its own nodes, so
`--kwok-nodes` and `--real-nodes` do not apply; feature gates and runtime configuration do.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

from .errors import ClusterError
from .progress import Progress
from .state import Cluster, write_private

OTHERWISE = "without --provider, the cluster is built from source"
# Two workers, so that two replicas can be on two nodes, and one of them can be drained.
ROLES = ("control-plane", "worker", "worker")


def check(progress: Progress) -> None:
    """Raise unless kind and a running Docker daemon are here."""
    for program in ("kind", "docker"):
        if shutil.which(program) is None:
            raise ClusterError(
                f"--provider kind needs {program}, which is not on PATH; {OTHERWISE}"
            )
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        raise ClusterError(f"--provider kind needs a Docker daemon, and none answers; {OTHERWISE}")
    progress.say("--provider kind is untried: please report what you see")


def up(cluster: Cluster, progress: Progress) -> None:
    """Create the cluster unless kind has it, and write the administrator's kubeconfig."""
    config = cluster.home / "conf" / "kind.json"
    write_private(config, json.dumps(_configuration(cluster), indent=2) + "\n")
    with progress.task(f"kind: creating {cluster.name}"):
        if cluster.name not in _kind("get", "clusters").split():
            _kind(
                "create",
                "cluster",
                "--name",
                cluster.name,
                "--config",
                str(config),
                "--wait",
                "120s",
            )
    write_private(cluster.kubeconfig, _kind("get", "kubeconfig", "--name", cluster.name))


def down(cluster: Cluster, progress: Progress) -> None:
    """Delete the cluster."""
    with progress.task(f"kind: deleting {cluster.name}"):
        _kind("delete", "cluster", "--name", cluster.name)


def status(cluster: Cluster) -> str:
    """Return the names of kind's nodes; raises when kind cannot say."""
    return (
        f"cluster {cluster.name} of kind: {_kind('get', 'nodes', '--name', cluster.name).strip()}"
    )


def load_image(cluster: Cluster, image: str) -> None:
    """Copy an image to the cluster's nodes: an archive, or one of the local Docker daemon."""
    if cluster.settings.provider != "kind":
        raise ClusterError(
            f"cluster {cluster.name} does not come from kind: images are loaded into kind's nodes "
            "only"
        )
    what = "image-archive" if Path(image).is_file() else "docker-image"
    _kind("load", what, image, "--name", cluster.name)


def _configuration(cluster: Cluster) -> dict[str, object]:
    def pairs(text: str) -> dict[str, str]:
        return dict(pair.split("=", 1) for pair in text.split(",") if "=" in pair)

    gates = {
        name: value.lower() == "true"
        for name, value in pairs(cluster.settings.feature_gates).items()
    }
    return {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "nodes": [{"role": role} for role in ROLES],
        "networking": {
            "apiServerAddress": "127.0.0.1",
            "apiServerPort": cluster.port("kube-apiserver"),
        },
        "featureGates": gates,
        "runtimeConfig": pairs(cluster.settings.runtime_config),
    }


def _kind(*arguments: str) -> str:
    done = subprocess.run(["kind", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"{done.stderr.strip()}\n`kind {' '.join(arguments[:2])}` failed")
    return done.stdout
