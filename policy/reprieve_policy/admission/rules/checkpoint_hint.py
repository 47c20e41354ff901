"""A checkpoint hint matches a port, a container or a mount of the pod.

Checked: `http://:PORT/…` and `grpc://:PORT` name a `containerPort` that a container declares,
`signal://…?container=NAME` a container, `file:///PATH` a path inside a volume that a container
mounts, unless the pod asks for the agent, which brings one. Native sidecars are containers too.
Warned of: a hint that cannot be delivered, so that the workload is notified by annotation: `file`
without the agent, and `signal` without the agent if process 1 of a container is not its own program
(`hostPID`, `shareProcessNamespace`).

Why: a hint that reaches no container is a checkpoint that fails when the pod is evicted, and not
before. Kubernetes does not need ports to be declared; here a declared port shows that the workload
knows of the hint.

Source: document 001, "Preemption Sequence"; the table of keys in docs/keys.md.

Setting: none.
"""

from collections.abc import Iterator

from reprieve_policy.checkpointing import agent
from reprieve_policy.checkpointing.checkpoint_plan import (
    DELIVERED_BY_OPERATOR,
    AnnotationHint,
    FileHint,
    Hint,
    SignalHint,
    SigtermHint,
)
from reprieve_policy.facts import Facts
from reprieve_policy.keys import CHECKPOINT_HINT
from reprieve_policy.kube import processes
from reprieve_policy.kube.objects import Container, PodView, Resource, Spec, pod_views
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind, annotation_path

_NO_PORT = "must be a port that a container of the pod declares"
_NO_CONTAINER = "must name a container of the pod"
_NO_AGENT = "asked by annotation: has no agent"
_NO_MOUNT = "must be a path inside a volume that a container of the pod mounts"


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check the hint of the pod or of the template against its containers."""
    violations: list[Violation] = []
    warnings: list[str] = []
    for view in pod_views(resource):
        hint = agent.hint_of(view)
        if hint is None:
            continue
        path, missing = annotation_path(view.prefix, CHECKPOINT_HINT), _missing_half(hint, view)
        if missing:
            violations.append(
                Violation(path, ViolationKind.INVALID, view.annotations[CHECKPOINT_HINT], missing)
            )
        if warning := _warning(hint, view):
            warnings.append(f"{path}: {warning}")
    if not violations and not warnings:
        return NO_FINDINGS
    return Verdict(violations=tuple(violations), warnings=tuple(warnings))


def _warning(hint: Hint, view: PodView) -> str:
    """Return why the hint cannot be delivered, empty if it can."""
    if agent.wants_agent(view):
        return ""
    if isinstance(hint, SignalHint):
        obstacle = processes.field_that_moves_pid_1(view.spec)
        return f"asked by annotation: has {obstacle}, and no agent" if obstacle else ""
    return "" if type(hint) in DELIVERED_BY_OPERATOR else _NO_AGENT


def _missing_half(hint: Hint, view: PodView) -> str:
    """Return what the pod lacks, empty if it has all."""
    spec = view.spec
    # Every pod has containers; if they were not read, they are unknown.
    if spec.containers is None or isinstance(hint, AnnotationHint | SigtermHint):
        return ""
    containers = tuple(_containers(spec))
    if isinstance(hint, SignalHint):
        return (
            ""
            if any(container.name == hint.container for container in containers)
            else _NO_CONTAINER
        )
    if isinstance(hint, FileHint):
        return (
            ""
            if agent.wants_agent(view)
            or any(_holds(container, hint.path) for container in containers)
            else _NO_MOUNT
        )
    ports = (port.containerPort for container in containers for port in container.ports or ())
    return "" if hint.port in ports else _NO_PORT


def _containers(spec: Spec) -> Iterator[Container]:
    yield from spec.containers or ()
    yield from (
        container for container in spec.initContainers or () if container.restartPolicy == "Always"
    )


def _holds(container: Container, path: str) -> bool:
    mounts = (mount.mountPath.rstrip("/") for mount in container.volumeMounts or ())
    return any(path.startswith(f"{mount}/") for mount in mounts)
