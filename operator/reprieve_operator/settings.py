"""Settings of `reprieve-operator`: where it runs and how often it looks. What a victim is given is policy, not a flag.

The times of a victim's life (timeout, extension, deferral, grace, ceiling) are in the ConfigMap `reprieve-policy`, so
that webhooks and operator read the same.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reprieve_runtime.settings import exit_with_errors, load, setting

PROGRAM = "reprieve-operator"
_DESCRIPTION = "Handles victims: tells them, gives them time to checkpoint, deletes them, keeps what they saved."


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """One field a flag; see `reprieve-operator --help`."""

    kubeconfig: Path | None = setting(
        None, help="kubeconfig file; without it the pod's own ServiceAccount"
    )
    namespace: str = setting(
        "reprieve-system", help="namespace of the lease and of the ConfigMap reprieve-policy"
    )
    identity: str = setting(
        "", help="name of this replica in the lease; without it host name and process id"
    )
    lease_name: str = setting(PROGRAM, help="name of the lease that replicas compete for")
    lease_duration_seconds: int = setting(15, help="how long others wait for a silent leader [s]")
    renew_deadline_seconds: float = setting(
        10.0, help="a leader that could not renew for so long stops acting [s]"
    )
    retry_period_seconds: float = setting(
        2.0, help="between two tries to get or renew the lease [s]"
    )
    sweep_interval_seconds: float = setting(
        300.0, help="between two looks at all pods for marks nobody labelled [s]"
    )
    resync_interval_seconds: float = setting(
        30.0, help="between two looks at a victim that no event told of [s]"
    )
    poll_interval_seconds: float = setting(
        5.0, help="between two questions to a workload that saves [s]"
    )
    hint_timeout_seconds: float = setting(10.0, help="for one call to a workload [s]")
    allow_loopback_pod_ips: bool = setting(
        False, help="hint pods at 127.0.0.0/8: simulated nodes only"
    )
    cleanup_finalizer: bool = setting(False, help="hold victims until their containers have ended")
    cleanup_ceiling_seconds: float = setting(
        300.0, help="longest time that the finalizer holds a victim [s]"
    )
    listen_address: str = setting("0.0.0.0", help="address of /healthz, /readyz and /metrics")  # noqa: S104 - a pod's probes come from outside
    listen_port: int = setting(8080, help="port of /healthz, /readyz and /metrics")
    log_format: str = setting("json", help='"json" or "text"')
    log_level: str = setting("INFO", help="DEBUG, INFO, WARNING or ERROR")

    @property
    def holder_identity(self) -> str:
        """The name of this replica: unique, so that a restarted one is not taken for its predecessor."""
        return self.identity or f"{socket.gethostname()}_{os.getpid()}"


def read(argv: Sequence[str], environ: Mapping[str, str]) -> OperatorSettings:
    """Return the settings; exits with 2 and every reason where one is unreadable or makes no sense."""
    settings = load(
        OperatorSettings, program=PROGRAM, description=_DESCRIPTION, argv=argv, environ=environ
    )
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
        "--hint-timeout-seconds must be above 0": settings.hint_timeout_seconds > 0,
        "--listen-port must be between 0 and 65535": 0 <= settings.listen_port <= 65535,
    }
    return [message for message, is_good in checks.items() if not is_good]
