"""etcd, API server, controller-manager and scheduler on loopback: files, arguments, readiness."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from realcluster.client import api
from realcluster.programs import NAMESPACE, OPERATOR, WEBHOOKS
from realcluster.progress import Progress
from realcluster.simulated_nodes.kwok import MANY_NODES, SLOW_GRACE_SECONDS
from realcluster.state import ADMIN, Cluster, write_private

from . import client_certificate, keys, scheduler_config

# In starting order; `down` ends them in reverse.
COMPONENTS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")

KUBELET_CLIENT = "kube-apiserver-kubelet-client"  # the usual name

# Who changed which workload, and through which subresource. Tests ask which user deleted a victim
# and when, whether a controller was refused, and what Reprieve's operator wrote with which
# precondition.
AUDIT_POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        {
            "level": "Request",
            "users": [f"system:serviceaccount:{NAMESPACE}:{OPERATOR}"],
            "verbs": ["create", "update", "patch", "delete"],
            "resources": [{"group": "", "resources": ["pods", "pods/*"]}],
            # Also requests without an answer, because the API server was killed while it handled
            # them.
            "omitStages": [],
        },
        {
            "level": "Metadata",
            "omitStages": ["RequestReceived"],
            "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            "resources": [
                {
                    "group": "",
                    "resources": [
                        "pods",
                        "pods/*",
                        "namespaces",
                        "namespaces/*",
                        "replicationcontrollers",
                    ],
                },
                {"group": "apps"},
                {"group": "batch"},
                {"group": "scheduling.k8s.io"},
            ],
        },
    ],
}
RIGHTS_FOLDER = "REPRIEVE_RIGHTS"
"""Where a run of the tests collects which rights the programs use. It then audits also what they
read, of the kinds of these groups."""
_GROUPS = (
    "",
    "apps",
    "batch",
    "policy",
    "coordination.k8s.io",
    "events.k8s.io",
    "networking.k8s.io",
    "scheduling.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "admissionregistration.k8s.io",
    "scheduling.x-k8s.io",
    "scheduling.sigs.k8s.io",
    "jobset.x-k8s.io",
    "leaderworkerset.x-k8s.io",
)
_REQUESTS_OF_PROGRAMS = {
    "level": "Metadata",
    "users": [f"system:serviceaccount:{NAMESPACE}:{name}" for name in (OPERATOR, WEBHOOKS)],
    # A watch that has not ended has an entry of the stage ResponseStarted only.
    "omitStages": ["RequestReceived"],
    "resources": [{"group": group} for group in _GROUPS],
}


def audit_policy(*, with_rights: bool) -> dict[str, object]:
    """Return the audit policy; the first rule that matches a request applies."""
    rules = [*AUDIT_POLICY["rules"], *([_REQUESTS_OF_PROGRAMS] if with_rights else [])]
    return {**AUDIT_POLICY, "rules": [*rules, {"level": "None"}]}


def write_files(cluster: Cluster) -> None:
    """Write the components' files: tokens, the key for service account tokens, the audit policy."""
    cluster.write_tokens()
    if not _key_file(cluster).exists():
        write_private(_key_file(cluster), keys.new_ec_private_key())
    certificate, key = kubelet_client(cluster)
    if not key.exists():
        pair = client_certificate.new_client_pair(KUBELET_CLIENT, "system:masters")
        for file, text in zip((certificate, key), pair, strict=True):
            write_private(file, text)
    policy = audit_policy(with_rights=RIGHTS_FOLDER in os.environ)
    write_private(_audit_policy(cluster), json.dumps(policy, indent=2) + "\n")


def start(cluster: Cluster, programs: dict[str, Path], progress: Progress) -> None:
    """Start what is not running; return when the API server answers and pods can be created."""
    for name in ("etcd", "kube-apiserver"):
        start_component(cluster, name, programs[name])
    api.wait(
        cluster, api.Condition("API server", lambda: is_ready(cluster), "kube-apiserver"), progress
    )
    for name in ("kube-controller-manager", "kube-scheduler"):
        start_component(cluster, name, programs[name])
    cluster.write_kubeconfig(ADMIN)
    account = "/api/v1/namespaces/default/serviceaccounts/default"  # without it, no pod is admitted
    given = api.Condition(
        "service account",
        lambda: bool(api.call(cluster, "GET", account)),
        "kube-controller-manager",
    )
    api.wait(cluster, given, progress)


def is_ready(cluster: Cluster) -> bool:
    """Return whether the API server reports ready; raises as `api.call` does."""
    return bool(api.call(cluster, "GET", "/readyz") == "ok")


def start_component(cluster: Cluster, name: str, program: Path) -> None:
    """Start one of COMPONENTS unless it runs."""
    cluster.processes.start(name, [program, *_ARGUMENTS[name](cluster)])


def _etcd(cluster: Cluster) -> list[str]:
    clients, peers = (f"http://127.0.0.1:{cluster.port(name)}" for name in ("etcd", "etcd-peer"))
    return [
        f"--name={cluster.name}",
        f"--data-dir={cluster.home / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster={cluster.name}={peers}",
        # A crash of the machine loses this cluster, but a slow disk does not slow every write.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _api_server(cluster: Cluster) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{cluster.port('etcd')}",
        "--bind-address=127.0.0.1",
        f"--secure-port={cluster.port('kube-apiserver')}",
        # Loopback is no valid endpoint of the Service "kubernetes"; real_nodes.service_address
        # answers at its address.
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={cluster.home / 'pki'}",
        f"--token-auth-file={cluster.home / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-key-file={_key_file(cluster)}",
        f"--service-account-signing-key-file={_key_file(cluster)}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={cluster.service_cidr}",
        # There is no kube-proxy: calls of webhooks go to the pods of their Services.
        "--enable-aggregator-routing=true",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={kubelet_client(cluster)[0]}",
        f"--kubelet-client-key={kubelet_client(cluster)[1]}",
        "--allow-privileged=true",
        f"--audit-policy-file={_audit_policy(cluster)}",
        f"--audit-log-path={cluster.audit_log}",
        "--audit-log-maxsize=100",
        "--audit-log-maxbackup=9",  # ten thousand victims fill two
        *_feature_gates(cluster),
        *(
            [f"--runtime-config={cluster.settings.runtime_config}"]
            if cluster.settings.runtime_config
            else []
        ),
    ]


def _controller_manager(cluster: Cluster) -> list[str]:
    return [
        *_client("kube-controller-manager", cluster),
        # Each controller has its own user, as in a real cluster.
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={_key_file(cluster)}",
        # Becomes the ConfigMap kube-root-ca.crt, which pods' token volumes mount.
        f"--root-ca-file={cluster.ca_file}",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        *(
            [f"--node-monitor-grace-period={SLOW_GRACE_SECONDS}s"]
            if cluster.settings.kwok_nodes > MANY_NODES
            else []
        ),
    ]


def _scheduler(cluster: Cluster) -> list[str]:
    arguments = _client("kube-scheduler", cluster)
    if cluster.settings.scheduler_config:
        kubeconfig = cluster.kubeconfig_of("system:kube-scheduler")
        arguments.append(f"--config={scheduler_config.write(cluster, kubeconfig)}")
    return arguments


def _client(component: str, cluster: Cluster) -> list[str]:
    """Return the arguments that controller-manager and scheduler share."""
    kubeconfig = cluster.write_kubeconfig(f"system:{component}")
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={cluster.port(component)}",
        f"--cert-dir={cluster.home / 'pki' / component}",
        "--leader-elect=false",  # one of each: a lease would only delay a restart
        *_feature_gates(cluster),
    ]


def _feature_gates(cluster: Cluster) -> list[str]:
    return (
        [f"--feature-gates={cluster.settings.feature_gates}"]
        if cluster.settings.feature_gates
        else []
    )


def kubelet_client(cluster: Cluster) -> tuple[Path, Path]:
    """Return the certificate and key that the API server presents to the kubelets of real nodes."""
    return cluster.home / "pki" / "kubelet-client.crt", cluster.home / "pki" / "kubelet-client.key"


def _key_file(cluster: Cluster) -> Path:
    return cluster.home / "pki" / "service-accounts.key"


def _audit_policy(cluster: Cluster) -> Path:
    return cluster.home / "conf" / "audit-policy.json"


_ARGUMENTS: dict[str, Callable[[Cluster], list[str]]] = {
    "etcd": _etcd,
    "kube-apiserver": _api_server,
    "kube-controller-manager": _controller_manager,
    "kube-scheduler": _scheduler,
}
