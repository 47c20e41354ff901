"""A checkpoint hint has its other half in the pod: a port, a container or a mount.

Checked: `http://:PORT/…` and `grpc://:PORT` name a `containerPort` that a container declares, `signal://…?container=NAME` a
container, `file:///PATH` a path inside a volume that a container mounts; native sidecars are containers too. Warned of: a
scheme that this version does not carry yet (`grpc`, `signal`, `file`); its workload is asked by annotation.

Why: a hint that reaches nobody is a checkpoint that fails at the worst moment, and nobody learns of it before. Kubernetes does
not need ports to be declared; here they say that the workload knows of the hint.

Source: document 001, "Preemption Sequence"; the keys' table in the README.

Setting: none.
"""

from collections.abc import Iterator

from reprieve_policy import checkpoint
from reprieve_policy.checkpoint import DELIVERED, AnnotationHint, FileHint, Hint, SignalHint
from reprieve_policy.facts import Facts
from reprieve_policy.keys import CHECKPOINT_HINT
from reprieve_policy.objects import Container, PodView, Resource, Spec, pod_views
from reprieve_policy.verdict import SILENT, Kind, Verdict, Violation, annotation_path

_NO_PORT = "must be a port that a container of the pod declares"
_NO_CONTAINER = "must name a container of the pod"
_NO_MOUNT = "must be a path inside a volume that a container of the pod mounts"


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check the hint of the pod or of the template against its containers."""
    violations: list[Violation] = []
    warnings: list[str] = []
    for view in pod_views(resource):
        hint = _hint(view)
        if hint is None:
            continue
        path, missing = annotation_path(view.prefix, CHECKPOINT_HINT), _missing_half(hint, view.spec)
        if missing:
            violations.append(Violation(path, Kind.INVALID, view.annotations[CHECKPOINT_HINT], missing))
        if type(hint) not in DELIVERED:
            warnings.append(f"{path}: asked by annotation only as yet")
    if not violations and not warnings:
        return SILENT
    return Verdict(violations=tuple(violations), warnings=tuple(warnings))


def _hint(view: PodView) -> Hint | None:
    text = view.annotations.get(CHECKPOINT_HINT)
    hint = None if text is None else checkpoint.parse_hint(text, "")
    # That it cannot be read is another rule's to say.
    return None if isinstance(hint, Violation) else hint


def _missing_half(hint: Hint, spec: Spec) -> str:
    """Return what is wrong, empty where nothing is."""
    # Every pod has containers; where they were not read, nothing is known of them.
    if spec.containers is None or isinstance(hint, AnnotationHint):
        return ""
    containers = tuple(_containers(spec))
    if isinstance(hint, SignalHint):
        return "" if any(container.name == hint.container for container in containers) else _NO_CONTAINER
    if isinstance(hint, FileHint):
        return "" if any(_holds(container, hint.path) for container in containers) else _NO_MOUNT
    ports = (port.containerPort for container in containers for port in container.ports or ())
    return "" if hint.port in ports else _NO_PORT


def _containers(spec: Spec) -> Iterator[Container]:
    yield from spec.containers or ()
    yield from (container for container in spec.initContainers or () if container.restartPolicy == "Always")


def _holds(container: Container, path: str) -> bool:
    mounts = (mount.mountPath.rstrip("/") for mount in container.volumeMounts or ())
    return any(path.startswith(f"{mount}/") for mount in mounts)
