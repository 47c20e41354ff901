"""Who is compared, and what each needs in its cluster beside the trace."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mainjob import world
from realcluster import api, build, control_plane, install, lifecycle
from realcluster.kubectl import Kubectl
from realcluster.programs import OPERATOR, WEBHOOKS, Programs
from realcluster.progress import Progress
from realcluster.state import Cluster

from . import objects

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
    """A row of `realcluster.pins.BINARIES`."""
    profile: Mapping[str, object] | None = None
    """Of the scheduler; None: its defaults."""
    rights: Sequence[str] = ()
    """API groups and resources beyond the scheduler's own role, as `GROUP/RESOURCE`, to be read."""
    has_reprieve: bool = False


CONTENDERS = (
    Contender("stock", "stock scheduler"),
    Contender(
        "upstream",
        "PreemptionToleration",
        scheduler="kube-scheduler-plugins",
        profile={
            "schedulerName": "default-scheduler",
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
)
BY_KEY = {contender.key: contender for contender in CONTENDERS}


@dataclass(frozen=True)
class Stage:
    """A cluster in which a contender is ready."""

    cluster: Cluster
    kubectl: Kubectl


@contextmanager
def staged(contender: Contender, name: str, nodes: int, progress: Progress) -> Iterator[Stage]:
    """Make a fresh cluster with the contender in it for as long as the block runs."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-preemption-")))
        configuration = folder / "scheduler.json"
        configuration.write_text(json.dumps(_configuration()))
        lifecycle.down(name, keep_logs=False, progress=progress)
        stack.callback(lifecycle.down, name, keep_logs=False, progress=progress)
        asked: dict[str, object] = {"kwok_nodes": nodes, "scheduler_config": str(configuration)}
        cluster = lifecycle.up(name, asked, None, progress)
        kubectl = Kubectl(build.bin_directory() / "kubectl", cluster.kubeconfig)
        if contender.has_reprieve:
            stack.enter_context(_reprieve(cluster, kubectl, progress))
        kubectl.apply(*objects.before_the_jobs(), *objects.rights(_USER, contender.rights))
        configuration.write_text(json.dumps(_configuration(contender)))
        _restart_scheduler(contender, cluster, progress)
        yield Stage(cluster, kubectl)


def _configuration(contender: Contender | None = None) -> dict[str, object]:
    document: dict[str, object] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    if contender is not None and contender.profile is not None:
        document["profiles"] = [contender.profile]
    return document


def _restart_scheduler(contender: Contender, cluster: Cluster, progress: Progress) -> None:
    """Start the contender's scheduler with its configuration; return when it has placed a pod."""
    program = build.ensure([contender.scheduler], progress)[contender.scheduler]
    lifecycle.stop_component(cluster, _SCHEDULER, kill=False)
    control_plane.start_component(cluster, _SCHEDULER, program)
    what = f"pod placed by {contender.scheduler}"
    api.wait(cluster, api.Condition(what, lambda: _is_probe_placed(cluster), _SCHEDULER), progress)
    api.call(cluster, "DELETE", f"{_PODS}/probe")


def _is_probe_placed(cluster: Cluster) -> bool:
    # Refused, and tried again, for as long as the namespace has no ServiceAccount.
    api.create(cluster, _PODS, _PROBE)
    return "nodeName" in api.call(cluster, "GET", f"{_PODS}/probe")["spec"]


@contextmanager
def _reprieve(cluster: Cluster, kubectl: Kubectl, progress: Progress) -> Iterator[None]:
    """Install the base with a policy in which a minute is a second, and run both programs."""
    places = world.places(cluster.port("webhooks"), cluster.port("operator"), world.Nodes.LOCAL)
    programs = Programs(cluster.home, kubectl, places)
    there = world.World(cluster.home, kubectl, programs, world.Nodes.LOCAL, cluster.audit_log)
    kubectl.read("apply", "-f", install.NAMESPACE_FILE)
    install.install(kubectl, install.LOCAL, cluster.port("webhooks"))
    policy = json.dumps({"data": objects.POLICY})
    kubectl.read("patch", "configmap", "reprieve-policy", "-n", "reprieve-system", "--type=merge", "-p", policy)
    try:
        for name in (WEBHOOKS, OPERATOR):
            with progress.task(f"starting {name}") as task:
                there.start(name, task.tick)
        yield
    finally:
        for name in (WEBHOOKS, OPERATOR):
            programs.stop(name)
