"""What can be set for this program; each field is a flag, an environment variable and a key of the file."""

from dataclasses import dataclass
from pathlib import Path

from reprieve_runtime.settings import setting


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of `reprieve-webhooks`."""

    listen_address: str = setting(
        "", help="address to listen on; empty for all addresses, IPv4 and IPv6"
    )
    listen_port: int = setting(
        8443, help="TCP port of the reviews, the probes and the metrics, all with TLS"
    )
    kubeconfig: Path | None = setting(
        None, help="kubeconfig file; without it the pod's ServiceAccount, else kubectl's"
    )
    namespace: str = setting(
        "reprieve-system", help="Reprieve's own namespace: its Secret, ConfigMap and Service"
    )
    policy_config_map: str = setting(
        "reprieve-policy", help="ConfigMap with the cluster's policy; it may be absent"
    )
    operator_lease: str = setting(
        "reprieve-operator", help="Lease by which the operator shows that it is there"
    )
    operator_account: str = setting(
        "reprieve-operator",
        help="ServiceAccount of the operator, whose deletions and evictions the guard lets pass",
    )
    webhook_configuration: str = setting(
        "reprieve-webhooks",
        help="name of the mutating and of the validating configuration that get the CA",
    )
    secret_name: str = setting(
        "reprieve-webhook-certs", help="Secret that holds CA and serving certificate"
    )
    service_name: str = setting(
        "reprieve-webhooks", help="Service by which the API server calls; in the certificate"
    )
    serving_names: tuple[str, ...] = setting(
        (), help="further DNS names in the certificate, separated by commas"
    )
    serving_ips: tuple[str, ...] = setting(
        (), help="IP addresses in the certificate, separated by commas"
    )
    cert_dir: Path | None = setting(
        None,
        help="directory with tls.crt and tls.key that somebody else renews; no Secret and no injection then",
    )
    certificate_check_seconds: float = setting(60.0, help="between two looks at certificates [s]")
    max_review_bytes: int = setting(
        8 * 1024 * 1024, help="largest review that is read; an update holds two objects [B]"
    )
    read_timeout_seconds: float = setting(5.0, help="for a client to send its review [s]")
    extender: bool = setting(
        False,
        help="answer kube-scheduler's extender API at /scheduler/preempt; watches pods, nodes and their budgets",
    )
    extender_timeout_seconds: float = setting(
        4.0,
        help="for one call of a scheduler; less than its `httpTimeout`, 5 s unless it is told otherwise [s]",
    )
    extender_schedulers: tuple[str, ...] = setting(
        ("default-scheduler", "reprieve-scheduler"),
        help="`schedulerName` of pods that the extender answers for, separated by commas; empty for any",
    )
    max_extender_bytes: int = setting(
        48 * 1024 * 1024,
        help="largest call of a scheduler that is read: 5,000 nodes with three whole pods of 3 KB each, or 110 uids [B]",
    )
    lookup_timeout_seconds: float = setting(
        1.0, help="for one object that is asked for because no watch has it yet [s]"
    )
    drain_seconds: float = setting(
        10.0, help="from SIGTERM to the last answer, so that no caller meets a closed port [s]"
    )
    log_format: str = setting("json", help="json or text")
    log_level: str = setting("info", help="debug, info, warning or error")
