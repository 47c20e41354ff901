"""The three servers.

Their names, their command lines, and their inputs (a certificate, a cluster).
"""

from __future__ import annotations

import ipaddress
import json
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from realcluster import ports
from reprieve_certs import bundle, issue

from . import reviews, servers, stub_api
from .servers import Command

REPRIEVE = "Reprieve, all rules"
CONTROLLER_RUNTIME = "controller-runtime"
NET_HTTP = "Go net/http + encoding/json"


@contextmanager
def commands(programs: dict[str, Path], folder: Path, workers: int = 1) -> Iterator[list[Command]]:
    """Yield each server's command; Reprieve's needs a kubeconfig for the cluster behind it.

    With several workers, the other servers are left out.
    """
    with stub_api.serve(objects()) as url:
        ours = reprieve(write_kubeconfig(url, folder), folder)
        if workers > 1:
            several = reprieve(folder / "kubeconfig", folder, "--workers", str(workers))
            yield [ours, replace(several, name=f"{REPRIEVE}, {workers} workers")]
            return
        yield [
            ours,
            _peer(CONTROLLER_RUNTIME, programs["bench-controller-runtime"], folder),
            _peer(NET_HTTP, programs["bench-net-http"], folder),
        ]


def reprieve(
    kubeconfig: Path, folder: Path, *flags: str, address: str = servers.LOOPBACK
) -> Command:
    """Return the command line of `reprieve-webhooks`, with this API server behind it."""
    port = ports.any_free()
    words = [
        *(
            sys.executable,
            "-m",
            "reprieve_webhooks.main",
            "--listen-address",
            address,
            "--listen-port",
            str(port),
            "--metrics-port",
            "0",
        ),
        *("--kubeconfig", str(kubeconfig), "--cert-dir", str(folder), *flags),
    ]
    return Command(REPRIEVE, port, words, ready_path="/readyz", address=address)


def controller_runtime(program: Path, folder: Path, address: str) -> Command:
    """Return the command line of controller-runtime's webhooks, on an address."""
    command = _peer(CONTROLLER_RUNTIME, program, folder)
    return replace(command, words=[*command.words, "-host", address], address=address)


def _peer(name: str, program: Path, folder: Path) -> Command:
    port = ports.any_free()
    return Command(name, port, [str(program), "-port", str(port), "-cert-dir", str(folder)])


def objects() -> stub_api.Collections:
    """Return the objects that rules look up: the reviews' Namespace and PriorityClass."""
    metadata = {"name": reviews.PRIORITY_CLASS}
    return {
        "/api/v1/namespaces": [{"metadata": {"name": reviews.NAMESPACE}}],
        "/apis/scheduling.k8s.io/v1/priorityclasses": [
            {"metadata": metadata, "value": reviews.PRIORITY}
        ],
    }


def write_kubeconfig(url: str, folder: Path) -> Path:
    """Write a kubeconfig without credentials for the API server at `url`; return its path."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "users": [{"name": "bench", "user": {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def write_certificates(folder: Path, address: str = servers.LOOPBACK) -> ssl.SSLContext:
    """Write one serving certificate for `address`, and its CA; return a context that trusts it."""
    now = datetime.now(UTC)
    authority = issue.issue_ca(now)
    names = issue.ServingNames(ips=(ipaddress.ip_address(address),))
    serving = issue.issue_serving(authority, names, now)
    (folder / bundle.CA_CERTIFICATES).write_bytes(authority.certificate_pem)
    (folder / bundle.SERVING_CERTIFICATE).write_bytes(serving.certificate_pem)
    (folder / bundle.SERVING_KEY).write_bytes(serving.key_pem)
    return ssl.create_default_context(cafile=str(folder / bundle.CA_CERTIFICATES))
