"""The agent: a native sidecar that delivers requests inside the pod, to a file or as a signal.

It is added on request (annotation `reprieve.dev/agent`) when a pod is created, never to a template.
For the operator it is one more HTTP endpoint of the pod. This module decides what the agent needs
of the pod, so that admission can refuse a pod that lacks it. What is added to the pod is in
`admission.sidecar`; the program is `reprieve_agent`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from reprieve_policy import keys
from reprieve_policy.config.annotation_values import OneOf
from reprieve_policy.kube.objects import Container, PodView, Spec, VolumeMount
from reprieve_policy.verdict import Violation, ViolationKind, annotation_path

from . import checkpoint_plan
from .checkpoint_plan import FileHint, Hint, HttpHint, SignalHint

ENABLED, DISABLED = "enabled", "disabled"
ACCEPTED_VALUES = OneOf((ENABLED, DISABLED))

NAME = "reprieve-agent"
"""The name of its container and of its volume."""
PORT = 10473
"""On the pod's address. Registered for no other service, and below the range of outgoing
connections."""
_ENDPOINT = HttpHint(PORT, "/")
MAX_CONTAINERS = 100
"""Containers of a pod that can have the agent. Each of them gets a volume mount: without this, a
pod of 60,000 would take the webhooks a second."""
TOKEN_AUDIENCE = "reprieve.dev"  # noqa: S105 - a name
"""The audience of the token with which an agent reports. The API server accepts no such token for
its own API."""
SIGNAL_FOLDER = "/run/reprieve"
"""The folder in which a container that gets signals finds the request."""
_REQUEST = "request"

HINTS_FOR_AGENT = (FileHint, SignalHint)
_SYSTEM_FOLDER = re.compile(
    "/?"
    "|/(bin|boot|etc|home|lib|lib32|lib64|media|mnt|opt|root|run|sbin|srv|tmp)"
    "|/(dev|usr|var)(/[^/]*)?"
    "|/(proc|sys|etc|dev/pts|dev/mqueue|run/secrets|var/run/secrets)(/.*)?"
)
"""Folders for no empty volume: there it would hide files that programs need (PyTorch's loaders fill
`/dev/shm`), or keep the container from starting."""


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


@dataclass(frozen=True, slots=True)
class CheckpointService:
    """Where agents report when their workload saved: the webhooks, as pods reach them."""

    url: str
    ca_bundle: str
    """The CAs that sign the webhooks' certificate: PEM as base64, as in a `caBundle`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlacement:
    """Where the agent writes, in a pod that can have one."""

    folder: str
    request: str
    signal: str | None = None
    volume: str | None = None
    """The pod's own volume that is mounted there; `None`: the agent's volume must be added."""
    containers_to_mount: tuple[int, ...] = ()
    """Positions of the containers that need that volume."""
    run_as_user: int | None = None
    """The user that the agent must run as; `None`: the pod's."""


def wants_agent(view: PodView) -> bool:
    """True if the pod asks for the agent and has a hint that the agent delivers."""
    return view.annotations.get(keys.AGENT) == ENABLED and isinstance(
        hint_of(view), HINTS_FOR_AGENT
    )


def has_agent(init_containers: Iterable[_HasName] | None) -> bool:
    """True if the agent is one of these containers."""
    return any(container.name == NAME for container in init_containers or ())


def endpoint(hint: Hint, init_containers: Iterable[_HasName] | None) -> HttpHint | None:
    """Return the endpoint of a pod's agent; `None`: no agent, or it does not deliver this hint."""
    return _ENDPOINT if isinstance(hint, HINTS_FOR_AGENT) and has_agent(init_containers) else None


def hint_of(view: PodView) -> Hint | None:
    """Return the pod's hint, `None` if it has none that can be read."""
    text = view.annotations.get(keys.CHECKPOINT_HINT)
    hint = None if text is None else checkpoint_plan.parse_hint(text, "")
    return None if isinstance(hint, Violation) else hint


def find_placement(view: PodView) -> AgentPlacement | tuple[Violation, ...]:
    """Return where the agent writes in a pod that wants one, or all that keeps it from working."""
    hint, violations = hint_of(view), list(_incompatibilities(view))
    assert isinstance(hint, HINTS_FOR_AGENT)
    place = (
        _signal_placement(view, hint)
        if isinstance(hint, SignalHint)
        else _file_placement(view, hint)
    )
    if isinstance(place, AgentPlacement):
        return tuple(violations) or place
    return (*violations, *place)


def _incompatibilities(view: PodView) -> Iterator[Violation]:
    """Yield what no agent can work with, whatever the hint."""
    spec, agent_path = view.spec, annotation_path(view.prefix, keys.AGENT)
    if spec.hostNetwork:
        detail = "must be false with the agent, whose port would be the node's"
        yield Violation(f"{view.prefix}spec.hostNetwork", ViolationKind.INVALID, "true", detail)
    if spec.os is not None and spec.os.name != "linux":
        yield Violation(
            f"{view.prefix}spec.os.name",
            ViolationKind.INVALID,
            spec.os.name,
            "must be linux with the agent",
        )
    if any(
        port.containerPort == PORT for container in _all(spec) for port in container.ports or ()
    ):
        yield Violation(
            agent_path,
            ViolationKind.INVALID,
            ENABLED,
            f"port {PORT} is the agent's, and a container declares it",
        )
    if len(spec.containers or ()) > MAX_CONTAINERS:
        yield Violation(
            agent_path,
            ViolationKind.INVALID,
            ENABLED,
            f"the agent works in a pod of up to {MAX_CONTAINERS} containers",
        )
    if any(volume.name == NAME for volume in spec.volumes or ()):
        yield Violation(
            agent_path,
            ViolationKind.INVALID,
            ENABLED,
            f"volume {NAME} is the agent's, and the pod has one",
        )


def _file_placement(view: PodView, hint: FileHint) -> AgentPlacement | tuple[Violation, ...]:
    folder = hint.path.rpartition("/")[0]
    mounts = [_mount_at(container, folder) for container in view.spec.containers or ()]
    present = [mount for mount in mounts if mount is not None]
    user = None if _user_of(view.spec, None) else _DEFAULT_USER
    if not present:
        if _SYSTEM_FOLDER.fullmatch(folder):
            return (
                _bad_hint(view, f"must be in a folder of its own, like {SIGNAL_FOLDER}/{_REQUEST}"),
            )
        return AgentPlacement(
            folder=folder,
            request=hint.path,
            containers_to_mount=tuple(range(len(mounts))),
            run_as_user=user,
        )
    own = {volume.name for volume in view.spec.volumes or () if volume.emptyDir is not None}
    if (
        len({mount.name for mount in present}) > 1
        or any(map(_is_partial, present))
        or present[0].name not in own
    ):
        return (
            _bad_hint(
                view,
                f"what is mounted at {folder} must be one emptyDir, without subPath, for the agent",
            ),
        )
    return AgentPlacement(
        folder=folder, request=hint.path, volume=present[0].name, run_as_user=user
    )


def _signal_placement(view: PodView, hint: SignalHint) -> AgentPlacement | tuple[Violation, ...]:
    spec = view.spec
    index = next(
        (
            index
            for index, container in enumerate(spec.containers or ())
            if container.name == hint.container
        ),
        None,
    )
    if index is None:
        return (_bad_hint(view, "must name a container of the pod, no sidecar, for the agent"),)
    target = (spec.containers or ())[index]
    violations: list[Violation] = []
    if not spec.shareProcessNamespace:
        detail = "must be true for the agent to send signals"
        violations.append(
            Violation(
                f"{view.prefix}spec.shareProcessNamespace", ViolationKind.INVALID, "false", detail
            )
        )
    user = _user_of(spec, target)
    if not user:
        path = f"{view.prefix}spec.containers[{index}].securityContext.runAsUser"
        shown = None if user is None else "0"
        kind = ViolationKind.REQUIRED if user is None else ViolationKind.INVALID
        violations.append(
            Violation(
                path, kind, shown, "must be the user to signal, not root, here or for the whole pod"
            )
        )
    if _mount_at(target, SIGNAL_FOLDER) is not None:
        violations.append(
            _bad_hint(view, f"what is mounted at {SIGNAL_FOLDER} must be the agent's own volume")
        )
    if violations:
        return tuple(violations)
    request = f"{SIGNAL_FOLDER}/{_REQUEST}"
    return AgentPlacement(
        folder=SIGNAL_FOLDER,
        request=request,
        signal=hint.signal,
        containers_to_mount=(index,),
        run_as_user=user,
    )


_DEFAULT_USER = 65532
"""The user that it runs as if the pod names none. It is a number, so that `runAsNonRoot` holds."""


def _user_of(spec: Spec, container: Container | None) -> int | None:
    """Return the user that a container runs as; `None`: its image decides."""
    for context in (container.securityContext if container else None, spec.securityContext):
        if context is not None and context.runAsUser is not None:
            return context.runAsUser
    return None


def _all(spec: Spec) -> Iterator[Container]:
    yield from spec.containers or ()
    yield from spec.initContainers or ()


def _mount_at(container: Container, folder: str) -> VolumeMount | None:
    mounts = container.volumeMounts or ()
    return next(
        (mount for mount in mounts if mount.mountPath.rstrip("/") == folder.rstrip("/")), None
    )


def _is_partial(mount: VolumeMount) -> bool:
    return bool(mount.subPath or mount.subPathExpr)


def _bad_hint(view: PodView, detail: str) -> Violation:
    path = annotation_path(view.prefix, keys.CHECKPOINT_HINT)
    return Violation(path, ViolationKind.INVALID, view.annotations[keys.CHECKPOINT_HINT], detail)
