"""Volumes for the claims of pods, in place of a storage driver: folders of this machine.

A claim that names no StorageClass is bound to one of them. All nodes of a cluster see all of them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from .client import api
from .state import Cluster

FREE = 20
"""How many a cluster has that no claim is bound to."""
_PATH = "/api/v1/persistentvolumes"
_PREFIX = "volume-"
_BOUND = "Bound"
_USED_UP = ("Released", "Failed")
_LABELS = {"app.kubernetes.io/managed-by": "hack-cluster"}
_ANY_USER = 0o1777
"""The mode of /tmp. The kubelet gives a `subPath` the mode of the folder that it is in."""


def folder(cluster: Cluster) -> Path:
    """Return the folder with the folders of all volumes."""
    return cluster.home / "volumes"


def ensure_free(cluster: Cluster) -> None:
    """Remove the volumes whose claim is gone, and make new ones in their place."""
    selector = ",".join(f"{key}={value}" for key, value in _LABELS.items())
    found = api.call(cluster, "GET", f"{_PATH}?labelSelector={selector}")["items"]
    phases = {volume["metadata"]["name"]: volume["status"].get("phase") for volume in found}
    for name in [name for name, phase in phases.items() if phase in _USED_UP]:
        api.call(cluster, "DELETE", f"{_PATH}/{name}")
        shutil.rmtree(folder(cluster) / name, ignore_errors=True)
    free = sum(phase not in (_BOUND, *_USED_UP) for phase in phases.values())
    first = 1 + max((int(name.removeprefix(_PREFIX)) for name in phases), default=-1)
    for number in range(first, first + FREE - free):
        _make(cluster, f"{_PREFIX}{number}")


def _make(cluster: Cluster, name: str) -> None:
    place = folder(cluster) / name
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(_ANY_USER)
    api.create(
        cluster,
        _PATH,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "labels": _LABELS},
            "spec": {
                "capacity": {"storage": "10Gi"},
                "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "hostPath": {"path": str(place), "type": "Directory"},
            },
        },
    )
