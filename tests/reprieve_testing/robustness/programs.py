"""The programs of a run: two replicas of the operator behind a proxy, and the webhooks."""

from dataclasses import dataclass, field
from pathlib import Path

from mainjob.installation import Installation, Nodes
from realcluster import install
from reprieve_testing.chaos import stepped_clock
from reprieve_testing.chaos.proxy import ApiProxy
from reprieve_testing.cluster.handle import (
    OPERATOR_NAMESPACE,
    ClusterHandle,
    Program,
    wait_for,
)

from .victims import CEILING_SECONDS, SLOT, VICTIMS_OF_A_PREEMPTOR, priority_classes

REPLICAS = ("first", "second")
_LEASE = {"lease_duration_seconds": 8, "renew_deadline_seconds": 6.0, "retry_period_seconds": 0.5}
_POLICY = {
    "extensionPercent": "100",
    "ceiling": f"{CEILING_SECONDS}s",
    "maxDeferral": "4s",
    "gracePeriodCap": "3s",
    "nearCompletion": "0s",
}
_GUARDED_SECONDS = 180.0
"""A review must be answered within three seconds, which a starved program manages only later."""
_SECRET = "reprieve-webhook-certs"


def install_reprieve(handle: ClusterHandle) -> None:
    """Install Reprieve, the policy of a run, and what preemptions need."""
    install.install(handle.kubectl, install.DEMO, handle.cluster.port("webhooks"))
    handle.set_policy(**_POLICY)
    handle.client.apply(*priority_classes())
    amount = {SLOT: str(VICTIMS_OF_A_PREEMPTOR)}
    patch = {"status": {"capacity": amount, "allocatable": amount}}
    for number in range(handle.cluster.settings.kwok_nodes):
        handle.client.patch("node", f"kwok-{number}", patch, subresource="status")


@dataclass
class RobustnessPrograms:
    """Starts the programs, again and again."""

    handle: ClusterHandle
    proxy: ApiProxy
    folder: Path
    operators: dict[str, Program] = field(default_factory=dict)
    webhooks: Program | None = None

    def __post_init__(self) -> None:
        cluster = self.handle.cluster
        self._installation = Installation.for_cluster(cluster, Nodes.LOCAL)
        self._kubeconfig = Path()

    def start(self) -> None:
        """Start all of them; return once the guard is asked and an operator leads."""
        account = self.handle.account_kubeconfig("reprieve-operator")
        self._kubeconfig = self.proxy.kubeconfig(account, self.folder / "kubeconfig")
        self.start_webhooks()
        for name in REPLICAS:
            self.step_clock(name, 0)
            self.start_operator(name)
        self.wait_guarded()

    def start_operator(self, name: str) -> None:
        """Start one replica."""
        self.operators[name] = self.handle.prepare_operator(
            stepped_clock.prelude(self._clock(name)),
            identity=name,
            kubeconfig=self._kubeconfig,
            log_format="json",
            **_LEASE,
        )
        self.operators[name].release()

    def start_webhooks(self) -> None:
        """Start the webhooks at the cluster's own port."""
        self.webhooks = self.handle._start(
            "reprieve-webhooks",
            {
                "kubeconfig": self.handle.account_kubeconfig("reprieve-webhooks"),
                "listen_port": self.handle.cluster.port("webhooks"),
                "serving_ips": "127.0.0.1",
                "drain_seconds": 0.2,
                "certificate_check_seconds": 1.0,
            },
        )

    def wait_guarded(self) -> None:
        """Return once the API server calls the webhooks."""
        what = "the API server calls the webhooks"
        wait_for(what, self._installation.is_guarded, _GUARDED_SECONDS)

    def step_clock(self, name: str, seconds: float) -> None:
        """Step the clock of one replica."""
        stepped_clock.step(self._clock(name), seconds)

    def rotate(self, *, ca: bool) -> None:
        """Have the webhooks issue a certificate anew, or also its CA; return once they have."""
        before = self._certificates()
        lost = None if ca else {"tls.crt": None, "tls.key": None}
        self.handle.client.patch("secret", _SECRET, {"data": lost}, namespace=OPERATOR_NAMESPACE)
        name = "ca.crt" if ca else "tls.crt"
        wait_for(
            f"a new {name}", lambda: self._certificates().get(name, before[name]) != before[name]
        )

    def running(self) -> dict[str, int]:
        """Return the process id of each program."""
        programs = dict(self.operators)
        if self.webhooks is not None:
            programs["webhooks"] = self.webhooks
        return {name: one.process.pid for name, one in programs.items()}

    def ended_by_themselves(self) -> list[str]:
        """Return a sentence for each program that no fault has ended."""
        programs = [*self.operators.values(), *([self.webhooks] if self.webhooks else [])]
        return [
            f"{one.log.name}: ended by itself with {one.process.returncode}\n{one.tail(10)}"
            for one in programs
            if one.process.poll() is not None
        ]

    def _certificates(self) -> dict[str, str]:
        secret = self.handle.kubectl.get("secret", _SECRET, "-n", OPERATOR_NAMESPACE)
        found: dict[str, str] = secret.get("data") or {}
        return found

    def _clock(self, name: str) -> Path:
        return self.folder / f"clock-{name}"
