"""The settings of this program; each is a flag, an environment variable and a key of the file."""

from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from reprieve_runtime.serving.metrics_port import AUTHENTICATION_HELP, MetricsAuthentication
from reprieve_runtime.settings import setting
from reprieve_webhooks.admission.large_review import LARGEST_BYTES


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of `reprieve-webhooks`."""

    listen_address: str = setting(
        "", help="address to listen on; empty for all addresses, IPv4 and IPv6"
    )
    listen_port: int = setting(8443, help="TCP port for reviews and probes, both with TLS")
    workers: int = setting(
        1,
        help="processes that answer on that port, each with memory and watches of its own; more "
        "than one is for reviews that take more than one processor",
    )
    metrics_port: int = setting(8081, help="TCP port for /metrics")
    metrics_authentication: MetricsAuthentication = setting("token", help=AUTHENTICATION_HELP)
    kubeconfig: Path | None = setting(
        None, help="kubeconfig file; by default the pod's ServiceAccount, or else kubectl's file"
    )
    namespace: str = setting(
        "reprieve-system", help="Reprieve's own namespace: its Secret, ConfigMap and Service"
    )
    policy_config_map: str = setting(
        "reprieve-policy", help="ConfigMap with the cluster's policy; it may be absent"
    )
    operator_lease: str = setting(
        "reprieve-operator", help="Lease that the operator renews while it leads"
    )
    operator_account: str = setting(
        "reprieve-operator",
        help="ServiceAccount of the operator, whose deletions and evictions the guard allows",
    )
    webhook_configuration: str = setting(
        "reprieve-webhooks",
        help="name of the mutating and the validating configuration into which the CA is written",
    )
    secret_name: str = setting(
        "reprieve-webhook-certs", help="Secret with the CA and the serving certificate"
    )
    service_name: str = setting(
        "reprieve-webhooks",
        help="Service through which the API server calls; its name is in the certificate",
    )
    serving_names: tuple[str, ...] = setting(
        (), help="further DNS names in the certificate, separated by commas"
    )
    serving_ips: tuple[str, ...] = setting(
        (), help="IP addresses in the certificate, separated by commas"
    )
    cert_dir: Path | None = setting(
        None,
        help="directory with tls.crt and tls.key that another program renews; "
        "then no Secret is used and no CA is injected",
    )
    client_ca_file: Path | None = setting(
        None,
        help="CA of the certificates that API servers show to webhooks, where they do; a client "
        "that shows one goes first, and others are still answered",
    )
    client_names: tuple[str, ...] = setting(
        (),
        help="common names of such certificates, separated by commas; empty for all of that CA",
    )
    certificate_check_seconds: float = setting(
        60.0, help="time between two checks of the certificates [s]"
    )
    max_review_bytes: int = setting(
        LARGEST_BYTES,
        help="size limit of a review; more than an API server sends of two objects. Above 8 MiB, "
        "the change is refused as too large to be checked [B]",
    )
    read_timeout_seconds: float = setting(5.0, help="time for a client to send its review [s]")
    extender: bool = setting(
        False,
        help="serve kube-scheduler's extender API at /scheduler/preempt; watches pods, nodes, "
        "PodDisruptionBudgets, Jobs and PodGroups",
    )
    extender_timeout_seconds: float = setting(
        4.0,
        help="time for one call of a scheduler; less than its `httpTimeout`, by default 5 s [s]",
    )
    extender_schedulers: tuple[str, ...] = setting(
        ("default-scheduler", "reprieve-scheduler"),
        help="`schedulerName` of the pods that the extender chooses victims for, separated by "
        "commas; empty for any",
    )
    extender_all_nodes: bool = setting(
        True,
        help="choose victims on nodes too that the scheduler has not offered, for pods whose fit "
        "is known without it; false: on offered nodes only",
    )
    max_extender_bytes: int = setting(
        48 * 1024 * 1024,
        help="size limit of a call of a scheduler: 5,000 nodes with three whole pods of 3 KB each, "
        "or with 110 uids [B]",
    )
    checkpoint_url: str = setting(
        "",
        help="URL at which agents in pods report when their workload saved; empty for that of the "
        "Service, `none` so that they report nothing",
    )
    agent_image: str = setting(
        f"reprieve:{version('reprieve')}",
        help="image of agents in pods, unless the policy names one (`agentImage`); the manifests "
        "give that of the webhooks themselves",
    )
    lookup_timeout_seconds: float = setting(
        1.0, help="time to read one object that no watch has yet [s]"
    )
    drain_seconds: float = setting(
        10.0,
        help="time from SIGTERM to the last response, so that no caller meets a closed port [s]",
    )
    log_format: str = setting("json", help="json or text")
    log_level: str = setting("info", help="debug, info, warning or error")


def to_message(settings: Settings) -> Any:
    """Return the settings in a form for another worker."""
    return msgspec.to_builtins(settings, enc_hook=str)


def from_message(message: Any) -> Settings:
    """Return the settings of a message."""
    return msgspec.convert(message, Settings, dec_hook=lambda kind, value: kind(value))
