"""Replicas of the webhooks behind their Service, as processes of this machine.

The manifests are those of the base, with the Service and without the Deployments: a test starts
and ends the processes, and writes the EndpointSlices, as kubelets and controllers do. The API
server itself resolves the Service (there is no kube-proxy). Every webhook has `failurePolicy: Fail`
by the component `fail-closed`, so that a call that fails refuses the request.
"""

from __future__ import annotations

import os
import signal
import socket
import ssl
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from realcluster.install import BASE, MANIFESTS
from realcluster.programs import NAMESPACE, WEBHOOKS
from reprieve_testing.cluster.handle import ClusterHandle, Program, wait_for

CALL_SECONDS = 30
"""How long the API server waits for an answer; with the base's 3 s, a busy machine fails calls."""
_NEED_PODS = ("Deployment", "PodDisruptionBudget")
_CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_READY_SECONDS = 60.0
CERTIFICATES = "reprieve-webhook-certs"
_MANAGED_BY, _TESTS = "endpointslice.kubernetes.io/managed-by", "reprieve-tests"
_names = count(1)


def machine_address() -> str:
    """Return an address of this machine that an EndpointSlice may have: it is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing; the kernel chooses the address
        address = str(probe.getsockname()[0])
    assert not address.startswith("127."), "this machine has no address but loopback"
    return address


def fail_closed_objects(cluster: ClusterHandle) -> list[Any]:
    """Return the objects of the base with the component `fail-closed`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        component = MANIFESTS / "components" / "fail-closed"
        overlay = {
            "resources": [os.path.relpath(BASE, folder)],
            "components": [os.path.relpath(component, folder)],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
        rendered = yaml.safe_load_all(cluster.kubectl.read("kustomize", folder))
        documents = [document for document in rendered if document is not None]
    for document in documents:
        if document["kind"] in _CONFIGURATIONS:
            for webhook in document["webhooks"]:
                webhook["timeoutSeconds"] = CALL_SECONDS
    return documents


@dataclass
class Replica:
    """One process of the webhooks, and its EndpointSlice."""

    name: str
    address: str
    port: int
    program: Program

    @property
    def url(self) -> str:
        """Where it answers reviews and probes."""
        return f"https://{self.address}:{self.port}"

    def is_ready(self) -> bool:
        """Ask as the kubelet does: without a look at the certificate."""
        if self.program.process.poll() is not None:
            raise AssertionError(f"{self.name} ended by itself\n{self.program.tail()}")
        context = ssl._create_unverified_context()
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=3, context=context) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def serving_certificate(self) -> str:
        """Return the certificate that the next connection gets."""
        return ssl.get_server_certificate((self.address, self.port), timeout=10)


@dataclass
class WebhookReplicas:
    """Starts, publishes, replaces and ends replicas."""

    cluster: ClusterHandle
    settings: dict[str, object] = field(default_factory=dict)
    pre_stop_seconds: float = 1.0
    """Between the removal from the Service and TERM: the base's preStop hook sleeps 5 s."""

    def install(self) -> None:
        """Apply the base without what needs pods; every webhook fails closed."""
        documents = fail_closed_objects(self.cluster)
        kept = [document for document in documents if document["kind"] not in _NEED_PODS]
        self.cluster.client.apply(*kept)

    def start(self) -> Replica:
        """Start a replica, and let the API server call it once it is ready."""
        address = machine_address()
        flags: dict[str, object] = {
            "kubeconfig": self.cluster.account_kubeconfig(WEBHOOKS),
            "listen_address": address,
            "log_format": "text",
        }
        program = self.cluster._start(WEBHOOKS, flags | self.settings)
        port = int(program.url.rpartition(":")[2])
        program.metrics_url = program.metrics_url.replace("127.0.0.1", address)
        replica = Replica(f"{WEBHOOKS}-{next(_names)}", address, port, program)
        wait_for(f"{replica.name} is ready", replica.is_ready, _READY_SECONDS)
        self.publish(replica, is_ready=True)
        return replica

    def publish(self, replica: Replica, *, is_ready: bool) -> None:
        """Write the replica's EndpointSlice; the API server opens connections to ready ones."""
        self.cluster.client.apply(endpoint_slice(replica, is_ready=is_ready))

    def stop(self, replica: Replica) -> None:
        """End a replica as its deletion does: first off the Service, then preStop, then TERM."""
        self.publish(replica, is_ready=False)
        time.sleep(self.pre_stop_seconds)  # what the hook does
        replica.program.signal(signal.SIGTERM)
        assert replica.program.stop() == 0, replica.program.tail()
        self.cluster.client.delete("endpointslice", replica.name, namespace=NAMESPACE)

    def end_all(self) -> None:
        """End all replicas, and forget their certificates."""
        self.cluster.stop_programs()
        selector = ("-n", NAMESPACE, "-l", f"{_MANAGED_BY}={_TESTS}")
        for found in self.cluster.kubectl.get("endpointslices", *selector)["items"]:
            name = found["metadata"]["name"]
            self.cluster.client.delete("endpointslice", name, namespace=NAMESPACE)
        self.cluster.client.patch("secret", CERTIFICATES, {"data": None}, namespace=NAMESPACE)

    def replace(self, replicas: Sequence[Replica]) -> list[Replica]:
        """Replace all, one after the other, as the Deployment's `maxUnavailable: 0` does."""
        fresh = []
        for old in replicas:
            fresh.append(self.start())
            self.stop(old)
        return fresh

    def api_server_metric(self, name: str, **labels: str) -> float:
        """Return the sum of the API server's counters of this name with these labels."""
        text = self.cluster.kubectl.read("get", "--raw", "/metrics")
        wanted = [f'{key}="{value}"' for key, value in labels.items()]
        found = (line.rpartition(" ") for line in text.splitlines() if line.startswith(f"{name}{{"))
        return sum(float(value) for shown, _, value in found if all(w in shown for w in wanted))


def endpoint_slice(replica: Replica, *, is_ready: bool) -> Any:
    """Return the EndpointSlice of one replica: each has a port of its own on one address."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": replica.name,
            "namespace": NAMESPACE,
            "labels": {
                "kubernetes.io/service-name": WEBHOOKS,
                _MANAGED_BY: _TESTS,
            },
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [replica.address], "conditions": {"ready": is_ready}}],
        "ports": [{"name": "https", "port": replica.port, "protocol": "TCP"}],
    }
