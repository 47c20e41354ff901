"""The contenders, and what each needs in its cluster."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from mainjob import installation
from realcluster import install, lifecycle
from realcluster.binaries import build
from realcluster.client import api
from realcluster.client.kubectl import Kubectl
from realcluster.control_plane import components
from realcluster.programs import NAMESPACE, OPERATOR, WEBHOOKS, Programs
from realcluster.progress import Progress
from realcluster.state import Cluster

from . import counters, objects

STANZA = install.MANIFESTS / "scheduler" / "stanza.yaml"
_EXTENDERS_RIGHTS = install.MANIFESTS / "components" / "extender" / "rbac.yaml"
_SCHEDULER = "kube-scheduler"
_USER = "system:kube-scheduler"
_PODS = f"/api/v1/namespaces/{objects.NAMESPACE}/pods"
_PROBE: Mapping[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "probe"},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}


@dataclass(frozen=True)
class Contender:
    """One way to preempt."""

    key: str
    title: str
    scheduler: str = _SCHEDULER
    """Its scheduler: a row of `realcluster.binaries.pins.BINARIES`."""
    profile: Mapping[str, object] = field(default_factory=dict)
    """The scheduler's arguments beyond the defaults."""
    rights: Sequence[str] = ()
    """Resources to read, as `GROUP/RESOURCE`, beyond those of the scheduler's own role."""
    has_reprieve: bool = False
    has_extender: bool = False
    policy: Mapping[str, str] = field(default_factory=dict)
    """Keys of the ConfigMap `reprieve-policy`, beyond those that all contenders have."""
    has_budgets: bool = False
    """Whether pods that are protected for a time have a PodDisruptionBudget."""
    simulated: str | None = None
    """The simulator's contender that it is compared with."""


STOCK = Contender("stock", "stock scheduler", simulated="stock")
EXTENDER = Contender(
    "extender",
    "Reprieve (guard + extender)",
    has_reprieve=True,
    has_extender=True,
    simulated="patient",
)
NO_NOTICE = replace(
    EXTENDER,
    key="no-notice",
    title="Reprieve (no notice)",
    policy={"podShouldBeDeletedWhenPreempted": "true"},
    simulated="least-loss-only",
)
POLICY_ONLY = replace(
    NO_NOTICE,
    key="policy-only",
    title="Reprieve (policy only)",
    policy={**NO_NOTICE.policy, "victimOrder": "priority"},
    simulated="policy-only",
)
CONTENDERS = (
    STOCK,
    Contender(
        "upstream",
        "PreemptionToleration",
        scheduler="kube-scheduler-plugins",
        profile={
            "plugins": {
                "postFilter": {
                    "enabled": [{"name": "PreemptionToleration"}],
                    "disabled": [{"name": "DefaultPreemption"}],
                }
            },
        },
        rights=("scheduling.k8s.io/priorityclasses",),
    ),
    Contender("guard", "Reprieve (guard)", has_reprieve=True),
    Contender(
        "guard-budgets", "Reprieve (guard, and budgets)", has_reprieve=True, has_budgets=True
    ),
    EXTENDER,
    NO_NOTICE,
    POLICY_ONLY,
)
BY_KEY = {contender.key: contender for contender in CONTENDERS}


@dataclass(frozen=True)
class ContenderCluster:
    """A cluster in which a contender is ready."""

    cluster: Cluster
    programs: Programs | None

    def counted(self) -> dict[str, int]:
        """Return the counters of the API server and of Reprieve's webhooks."""
        return counters.read(
            api.call(self.cluster, "GET", "/metrics"),
            self.programs.read(WEBHOOKS, "/metrics") if self.programs else "",
        )


@contextmanager
def running_contender(
    contender: Contender, name: str, nodes: int, progress: Progress
) -> Iterator[ContenderCluster]:
    """Create a fresh cluster with the contender for the block."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-preemption-")))
        file = folder / "scheduler.json"
        file.write_text(json.dumps(configuration({})))
        lifecycle.down(name, keep_logs=False, progress=progress)
        stack.callback(lifecycle.down, name, keep_logs=False, progress=progress)
        cluster = lifecycle.up(
            name, {"kwok_nodes": nodes, "scheduler_config": str(file)}, None, progress
        )
        kubectl = Kubectl(build.bin_directory() / "kubectl", cluster.kubeconfig)
        programs = None
        if contender.has_reprieve:
            programs = stack.enter_context(_reprieve(contender, cluster, kubectl, progress))
        kubectl.apply(*objects.before_the_jobs(), *objects.rights(_USER, contender.rights))
        if contender.has_budgets:
            kubectl.apply(*objects.budgets())
        if contender.has_extender:
            authority = folder / "ca.crt"
            authority.write_bytes(_certificate_authority(kubectl))
            wanted = with_extender(
                STANZA.read_text(), f"https://127.0.0.1:{cluster.port('webhooks')}", authority
            )
        else:
            wanted = configuration(contender.profile)
        file.write_text(json.dumps(wanted))
        _restart_scheduler(contender, cluster, progress)
        yield ContenderCluster(cluster, programs)


def configuration(profile: Mapping[str, object]) -> objects.Document:
    """Return a scheduler's configuration file with one profile."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", **profile}],
    }


def with_extender(stanza: str, server: str, authority: Path) -> objects.Document:
    """Return the shipped configuration file, with the extender at this server."""
    document: objects.Document = yaml.safe_load(stanza)
    for extender in document["extenders"]:
        extender["urlPrefix"] = server + urlsplit(extender["urlPrefix"]).path
        extender["tlsConfig"]["caFile"] = str(authority)
    return document


def _certificate_authority(kubectl: Kubectl) -> bytes:
    secret = kubectl.get("secret", "reprieve-webhook-certs", "-n", NAMESPACE)
    return base64.b64decode(secret["data"]["ca.crt"])


def _restart_scheduler(contender: Contender, cluster: Cluster, progress: Progress) -> None:
    """Start the contender's scheduler with its configuration; return when it has placed a pod."""
    program = build.ensure([contender.scheduler], progress)[contender.scheduler]
    lifecycle.stop_component(cluster, _SCHEDULER, kill=False)
    components.start_component(cluster, _SCHEDULER, program)
    what = f"pod placed by {contender.scheduler}"
    api.wait(cluster, api.Condition(what, lambda: _is_probe_placed(cluster), _SCHEDULER), progress)
    api.call(cluster, "DELETE", f"{_PODS}/probe")


def _is_probe_placed(cluster: Cluster) -> bool:
    # Refused, and repeated, until the namespace has a ServiceAccount.
    api.create(cluster, _PODS, _PROBE)
    return "nodeName" in api.call(cluster, "GET", f"{_PODS}/probe")["spec"]


@contextmanager
def _reprieve(
    contender: Contender, cluster: Cluster, kubectl: Kubectl, progress: Progress
) -> Iterator[Programs]:
    """Install the base with a policy in which a minute is a second, and run both programs."""
    places = installation.places(
        cluster.port("webhooks"), cluster.port("operator"), installation.Nodes.LOCAL
    )
    kubectl.read("apply", "-f", install.NAMESPACE_FILE)
    install.install(kubectl, install.LOCAL, cluster.port("webhooks"))
    metadata = {"name": "reprieve-policy", "namespace": NAMESPACE}
    data = {**objects.POLICY, **contender.policy}
    kubectl.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    if contender.has_extender:
        kubectl.read("apply", "-f", _EXTENDERS_RIGHTS)
        places[WEBHOOKS] = replace(
            places[WEBHOOKS], flags=[*places[WEBHOOKS].flags, "--extender=true"]
        )
    programs = Programs(cluster.home, kubectl, places)
    there = installation.Installation(
        cluster.home, kubectl, programs, installation.Nodes.LOCAL, cluster.audit_log
    )
    try:
        for name in (WEBHOOKS, OPERATOR):
            with progress.task(f"starting {name}") as task:
                there.start(name, task.tick)
        yield programs
    finally:
        for name in (WEBHOOKS, OPERATOR):
            programs.stop(name)
