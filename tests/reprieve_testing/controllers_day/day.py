"""A cluster in which Reprieve is installed during operation, and the audit log of a day in it."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from typing import Any

from mainjob.installation import Installation, Nodes
from realcluster import install
from realcluster.client import api
from realcluster.client.kubectl import Kubectl
from realcluster.programs import OPERATOR, WEBHOOKS
from realcluster.state import Cluster
from reprieve_testing.cluster.audit_log import READ_VERBS
from reprieve_testing.cluster.handle import LEASE_SECONDS, new_cluster, wait_for

Json = Any
NODES = 6
SECONDS = 180.0
"""The timeout for one controller; a tenth is usual, and a busy machine needs more."""
OURS = re.compile(
    r"\.reprieve\.dev\" denied|reprieve-[a-z-]+' with binding"
    r"|failed calling webhook \"[a-z-]+\.reprieve\.dev"
)
"""Matches a refusal by Reprieve: by a webhook, by the guard, or by a webhook that could not be
called.
"""
CONTROLLERS = (
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:",
    "system:node:",
    "kwok",
    "system:kube-scheduler",
    "system:serviceaccount:reprieve-system:",
)


@dataclass(frozen=True)
class AuditedCall:
    """One change in the API server's audit log."""

    at: str
    """When the API server received it, RFC 3339 in UTC with microseconds: these sort as times."""
    user: str
    verb: str
    resource: str
    """With its subresource: `pods/status`."""
    namespace: str
    code: int
    message: str
    annotations: dict[str, str]

    @property
    def is_by_a_controller(self) -> bool:
        """True for every identity that is a component, not a user."""
        return self.user.startswith(CONTROLLERS)

    @property
    def is_refused_by_us(self) -> bool:
        """True if an admission of Reprieve's refused it, whatever the code."""
        return self.code >= 400 and OURS.search(self.message) is not None

    @property
    def webhooks(self) -> list[str]:
        """Return our mutating webhooks that were called for it.

        Validating webhooks leave no trace in an audit log.
        """
        called = [
            json.loads(text)
            for key, text in self.annotations.items()
            if key.startswith("mutation.webhook.")
        ]
        return [one["webhook"] for one in called if one["configuration"] == "reprieve-webhooks"]

    @property
    def failures(self) -> list[str]:
        """Return the webhooks whose failed call was ignored for it."""
        return [text for key, text in self.annotations.items() if key.startswith("failed-open.")]


@dataclass(frozen=True)
class Day:
    """The cluster, and the actions of its users."""

    cluster: Cluster
    installation: Installation

    @property
    def kubectl(self) -> Kubectl:
        return self.installation.kubectl

    def make(self, namespace: str, *objects: Json) -> None:
        """Create objects; the API server must accept them."""
        items = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl.read("-n", namespace, "create", "-f", "-", stdin=json.dumps(items))

    def make_namespace(self, name: str, **annotations: str) -> str:
        """Create a namespace with the policy in these annotations."""
        policy = {
            f"reprieve.dev/{key.replace('_', '-')}": text for key, text in annotations.items()
        }
        self.make(
            "default",
            {
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {"name": name, "annotations": policy},
            },
        )
        # The controller-manager creates it too, a moment later: without it no pod is admitted.
        self.kubectl.run("create", "serviceaccount", "default", "-n", name)
        return name

    def wait_until(self, namespace: str, what: str, path: str, text: str) -> None:
        """Wait until an object, `kind/name`, has `text` at a JSON path."""
        words = ("get", what, "-n", namespace, "-o", f"jsonpath={{{path}}}")
        wait_for(f"{what} {path}={text}", lambda: self.kubectl.run(*words).stdout == text, SECONDS)

    def wait_gone(self, namespace: str, what: str) -> None:
        """Wait until the object does not exist."""
        words = ("get", what, "-n", namespace, "--ignore-not-found", "-o", "name")
        wait_for(
            f"{what} is gone",
            lambda: (done := self.kubectl.run(*words)).status == 0 and not done.stdout,
            SECONDS,
        )

    def pods(self, namespace: str, selector: str) -> list[Json]:
        found: list[Json] = self.kubectl.get("pods", "-n", namespace, "-l", selector)["items"]
        return found

    def report_pod_status(self, pod: Json, status: Json) -> None:
        """Report a pod's status as the kubelet of its node does."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        try:
            api.call(self.cluster, "PATCH", path, {"status": status}, user="kwok")
        except api.Refused as refused:
            if refused.status != HTTPStatus.NOT_FOUND:
                raise

    def reviews(self, webhook: str, **labels: str) -> float:
        """Return the number of answered reviews."""
        lines = self.installation.programs.read(WEBHOOKS, "/metrics").splitlines()
        wanted = [f'{key}="{text}"' for key, text in {"webhook": webhook, **labels}.items()]
        counted = (line for line in lines if line.startswith("reprieve_admission_reviews_total{"))
        return sum(
            float(line.rpartition(" ")[2])
            for line in counted
            if all(label in line for label in wanted)
        )

    @cached_property
    def calls(self) -> list[AuditedCall]:
        """Every change since Reprieve was installed."""
        return list(self._calls())

    def _calls(self) -> Iterator[AuditedCall]:
        with self.cluster.audit_log.open() as lines:
            for entry in map(json.loads, lines):
                if entry["verb"] in READ_VERBS:
                    continue
                target, status = entry["objectRef"], entry.get("responseStatus", {})
                subresource = target.get("subresource", "")
                yield AuditedCall(
                    entry["requestReceivedTimestamp"],
                    entry.get("impersonatedUser", entry["user"])["username"],
                    entry["verb"],
                    target["resource"] + (f"/{subresource}" if subresource else ""),
                    target.get("namespace", ""),
                    status.get("code", 0),
                    status.get("message", ""),
                    entry.get("annotations", {}),
                )


@contextmanager
def a_day(name: str) -> Iterator[tuple[Day, "Install"]]:
    """Make a cluster for the block, without Reprieve.

    The test calls `Install` once the older objects exist.
    """
    with new_cluster(name, kwok_nodes=NODES) as cluster:
        day = Day(
            cluster, Installation.for_cluster(cluster, Nodes.LOCAL, lease_seconds=LEASE_SECONDS)
        )
        yield day, Install(day)


@dataclass(frozen=True)
class Install:
    """Applies the manifests and starts both programs, as a user does in a cluster in use."""

    day: Day

    def __call__(self) -> None:
        cluster, place = self.day.cluster, self.day.installation
        install.install(place.kubectl, install.DEMO, cluster.port("webhooks"))
        with ThreadPoolExecutor() as threads:
            list(threads.map(place.start, (WEBHOOKS, OPERATOR)))
