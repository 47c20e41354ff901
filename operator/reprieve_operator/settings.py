"""Settings of `reprieve-operator`: where it runs, and its intervals.

The times of an eviction (timeout, extension, deferral, grace period, ceiling) are no flags. They
are in the ConfigMap `reprieve-policy`, so that webhooks and operator read the same values.
"""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reprieve_runtime.serving.metrics_port import AUTHENTICATION_HELP, MetricsAuthentication
from reprieve_runtime.settings import exit_with_errors, load, port_errors, setting

PROGRAM = "reprieve-operator"
_DESCRIPTION = (
    "Handles victims: notifies them, gives them time to checkpoint, deletes them, "
    "and hands what they saved to their replacements."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """Each field is a flag; see `reprieve-operator --help`."""

    kubeconfig: Path | None = setting(
        None, help="kubeconfig file; without it, the pod's own ServiceAccount is used"
    )
    namespace: str = setting(
        "reprieve-system", help="namespace of the lease and of the ConfigMap reprieve-policy"
    )
    identity: str = setting(
        "", help="name of this replica in the lease; without it, host name and process id"
    )
    lease_name: str = setting(PROGRAM, help="name of the lease that replicas compete for")
    lease_duration_seconds: int = setting(
        15, help="how long other replicas wait for a leader that does not renew [s]"
    )
    renew_deadline_seconds: float = setting(
        10.0, help="a leader that could not renew for this time stops acting [s]"
    )
    retry_period_seconds: float = setting(
        2.0, help="between two tries to acquire or renew the lease [s]"
    )
    sweep_interval_seconds: float = setting(
        300.0, help="between two checks of all pods for marks without a label [s]"
    )
    resync_interval_seconds: float = setting(
        30.0, help="between two reads of a victim without any event, if these are few [s]"
    )
    poll_interval_seconds: float = setting(
        5.0, help="between two polls of a workload that saves [s]"
    )
    hint_timeout_seconds: float = setting(10.0, help="timeout of one call to a workload [s]")
    allow_loopback_pod_ips: bool = setting(
        False, help="call pods at 127.0.0.0/8: for simulated nodes only"
    )
    cleanup_ceiling_seconds: float = setting(
        300.0, help="longest time that the finalizer holds a victim after its grace period [s]"
    )
    deployment_name: str = setting(
        PROGRAM, help="the operator's own Deployment: where it is gone, no finalizer is left behind"
    )
    listen_address: str = setting(
        "", help="address of both ports below; empty for all addresses, IPv4 and IPv6"
    )
    listen_port: int = setting(8080, help="port of /healthz and /readyz")
    metrics_port: int = setting(8081, help="port of /metrics")
    metrics_authentication: MetricsAuthentication = setting("token", help=AUTHENTICATION_HELP)
    metrics_cert_dir: Path | None = setting(
        None,
        help="directory with tls.crt and tls.key for /metrics, which another program renews; "
        "without it, the certificate is self-signed",
    )
    ui: bool = setting(
        False, help="show the read-only page /ui on the metrics port, to tokens with the right"
    )
    log_format: str = setting("json", help='"json" or "text"')
    log_level: str = setting("INFO", help="DEBUG, INFO, WARNING or ERROR")

    @property
    def holder_identity(self) -> str:
        """The name of this replica.

        A container that restarts has the name of the one before, and goes on with its lease.
        """
        return self.identity or f"{socket.gethostname()}_{os.getpid()}"


def read(argv: Sequence[str]) -> OperatorSettings:
    """Return the settings; exit with 2 and all errors if any of them is invalid."""
    settings = load(OperatorSettings, program=PROGRAM, description=_DESCRIPTION, argv=argv)
    if errors := list(_validate(settings)):
        exit_with_errors(PROGRAM, errors)
    return settings


def _validate(settings: OperatorSettings) -> Sequence[str]:
    checks = {
        "--renew-deadline-seconds must be below --lease-duration-seconds: two would lead at once": (
            settings.renew_deadline_seconds < settings.lease_duration_seconds
        ),
        "--retry-period-seconds must be above 0 and below --renew-deadline-seconds": (
            0 < settings.retry_period_seconds < settings.renew_deadline_seconds
        ),
        "--poll-interval-seconds must be above 0": settings.poll_interval_seconds > 0,
        "--sweep-interval-seconds must be above 0": settings.sweep_interval_seconds > 0,
        "--resync-interval-seconds must be above 0": settings.resync_interval_seconds > 0,
        "--ui needs --metrics-authentication=token": (
            not settings.ui or settings.metrics_authentication == "token"
        ),
        "--hint-timeout-seconds must be above 0": settings.hint_timeout_seconds > 0,
    }
    return [
        *(message for message, is_good in checks.items() if not is_good),
        *port_errors(listen_port=settings.listen_port, metrics_port=settings.metrics_port),
    ]
