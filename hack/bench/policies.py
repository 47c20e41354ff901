"""The policies of `make bench-admission`: applied, removed, and checked to be in force.

Only objects of the group admissionregistration.k8s.io change. The rest of the manifests (the
ConfigMap, roles) stays in place. The guard is in no turn: it is not part of the comparison, and an
installation of Reprieve always has it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from realcluster.client import api
from realcluster.client.api import Refused
from realcluster.client.kubectl import Kubectl
from realcluster.errors import ClusterError
from realcluster.install import BASE, MANIFESTS
from realcluster.state import Cluster
from reprieve_policy.keys import PREEMPTION_CLASS

from . import pods
from .pods import Document
from .servers import Server

CEL = MANIFESTS / "overlays" / "cel"
BY_HAND = Path(__file__).with_name("by_hand.yaml")
EFFECT_SECONDS = 30.0
STEADY = 3
"""Agreeing probes in a row: several objects take effect one after the other."""
_GROUP = "admissionregistration.k8s.io/"
_NOT_HERE = ("Deployment", "Service", "PodDisruptionBudget")
"""The programs run as local processes."""


@dataclass(frozen=True)
class Policy:
    """One contender: its name and its objects."""

    name: str
    objects: tuple[Document, ...]

    @property
    def validates(self) -> bool:
        """Whether a pod of class 11 is refused."""
        return any(item["kind"].startswith("Validating") for item in self.objects)

    @property
    def mutates(self) -> bool:
        """Whether a pod without a class gets one."""
        return any(item["kind"].startswith("Mutating") for item in self.objects)

    def only(self, *kinds: str) -> tuple[Document, ...]:
        """Return its objects of these kinds."""
        return tuple(item for item in self.objects if item["kind"] in kinds)


def rendered(kubectl: Kubectl, folder: Path) -> list[Document]:
    """Return the objects of a kustomization, without the programs and the guard."""
    guard = {
        (item["kind"], item["metadata"]["name"])
        for item in _read((BASE / "guard.yaml").read_text())
    }
    found = _read(kubectl.read("kustomize", folder))
    return [
        item
        for item in found
        if item["kind"] not in _NOT_HERE and (item["kind"], item["metadata"]["name"]) not in guard
    ]


def standing(documents: Iterable[Document]) -> list[Document]:
    """Return the objects that stay in place during the whole run."""
    return [item for item in documents if not item["apiVersion"].startswith(_GROUP)]


def switched(documents: Iterable[Document], server: Server, authority: str) -> tuple[Document, ...]:
    """Return the objects of a turn; webhooks are at `server`, with the CA `authority` (base64)."""
    return tuple(
        _calling(item, server, authority)
        for item in documents
        if item["apiVersion"].startswith(_GROUP)
    )


def by_hand() -> tuple[Document, ...]:
    """Return the hand-written policy."""
    return tuple(_read(BY_HAND.read_text()))


def copied(documents: Iterable[Document], times: int) -> tuple[Document, ...]:
    """Return the objects so many times, each time under other names."""
    copies = [deepcopy(item) for _ in range(times) for item in (*documents,)]
    for number, item in enumerate(copies):
        suffix = f"-{number * times // len(copies)}"
        item["metadata"]["name"] += suffix
        if "policyName" in item.get("spec", {}):
            item["spec"]["policyName"] += suffix
    return tuple(copies)


def of_controller_runtime(server: Server, authority: str, kind: str) -> Document:
    """Return a minimal configuration that sends every new pod to controller-runtime."""
    path = "/validate" if kind.startswith("Validating") else "/mutate"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["pods"],
    }
    webhook: Document = {
        "name": "pods.bench.reprieve.dev",
        "clientConfig": {"service": {"path": path}},
        "rules": [rule],
        "failurePolicy": "Ignore",
        "sideEffects": "None",
        "timeoutSeconds": 3,
        "admissionReviewVersions": ["v1"],
    }
    document = {
        "apiVersion": _GROUP + "v1",
        "kind": kind,
        "metadata": {"name": "bench-controller-runtime"},
        "webhooks": [webhook],
    }
    return _calling(document, server, authority)


class InForce:
    """Applies policies to a cluster, one at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._current: Sequence[Document] = ()

    def switch(self, policy: Policy) -> None:
        """Replace the policy; return when the old one is no longer in force and the new one is."""
        self.clear()
        self._current = policy.objects
        for item in policy.objects:
            api.create(self._cluster, _path(item), item)
        self._wait(policy.name, validates=policy.validates, mutates=policy.mutates)

    def clear(self) -> None:
        """Remove the policy."""
        for item in self._current:
            try:
                api.call(self._cluster, "DELETE", f"{_path(item)}/{item['metadata']['name']}")
            except Refused as refused:
                if refused.status != HTTPStatus.NOT_FOUND:
                    raise
        self._current = ()
        self._wait("nothing", validates=False, mutates=False)

    def check(self, policy: Policy) -> None:
        """Raise unless a policy is in force now.

        A policy that failed under load would cost nothing.
        """
        if not self._is_in_force(validates=policy.validates, mutates=policy.mutates):
            raise ClusterError(f"{policy.name} was not in force at the end of its turn")

    def _wait(self, what: str, *, validates: bool, mutates: bool) -> None:
        deadline, agreed = time.monotonic() + EFFECT_SECONDS, 0
        while agreed < STEADY:
            agreed = agreed + 1 if self._is_in_force(validates=validates, mutates=mutates) else 0
            if time.monotonic() > deadline:
                raise ClusterError(f"{what} was not in force within {EFFECT_SECONDS:.0f} s")
            time.sleep(0.05)

    def _is_in_force(self, *, validates: bool, mutates: bool) -> bool:
        silent = self._created(pods.probe())
        has_class = silent is not None and PREEMPTION_CLASS in silent["metadata"].get("labels", {})
        return (self._created(pods.probe("11")) is None) == validates and has_class == mutates

    def _created(self, pod: Document) -> Document | None:
        try:
            made: Document = api.call(self._cluster, "POST", pods.PATH, pod)
        except Refused:
            return None
        return made


def _calling(item: Document, server: Server, authority: str) -> Document:
    called = deepcopy(item)
    for webhook in called.get("webhooks", ()):
        path = webhook["clientConfig"]["service"]["path"]
        webhook["clientConfig"] = {
            "url": f"https://{server.address}:{server.port}{path}",
            "caBundle": authority,
        }
    return called


def _path(item: Document) -> str:
    kind = item["kind"].lower()
    plural = f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
    return f"/apis/{item['apiVersion']}/{plural}"


def _read(text: str) -> list[Any]:
    return [document for document in yaml.safe_load_all(text) if document]
