"""The additions to a pod that asks for the agent: a native sidecar, a memory volume, and mounts.

The sidecar passes Pod Security's `restricted`, and has no API credentials: it gets an empty folder
where Kubernetes would mount a token. The token that it does get proves to the webhooks in which pod
it runs; no API server accepts it. Its limits equal its requests, so that no pod loses its quality
of service; if the pod sets resources as a whole, the sidecar sets none, so that the sum still fits.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from reprieve_policy.checkpointing import agent
from reprieve_policy.checkpointing.agent import NAME, PORT, AgentPlacement, CheckpointService
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource, Spec, annotations_of, pod_views
from reprieve_policy.kube.pods import MIRROR_ANNOTATION
from reprieve_policy.verdict import ListAddition

_NO_TOKEN = f"{NAME}-no-token"
_TOKEN_FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"  # noqa: S105 - a folder
"""The ServiceAccount plugin mounts no token where a mount exists; it runs again after webhooks."""
_REPORT_TOKEN = f"{NAME}-report-token"
_REPORT_TOKEN_FOLDER = "/var/run/secrets/reprieve.dev"  # noqa: S105 - a folder
_REPORT_TOKEN_SECONDS = 3600
"""The kubelet replaces a token when four fifths of this time are over."""
_SIZE = "1Mi"
"""For the volume: a request and an answer of 16 KiB each, twice while they are replaced."""
_RESOURCES = {"cpu": "50m", "memory": "32Mi"}

_SECURITY_CONTEXT = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}

_INIT_CONTAINERS, _VOLUMES = "/spec/initContainers", "/spec/volumes"


def decide_sidecar(pod: Resource, facts: Facts) -> tuple[ListAddition, ...]:
    """Return the additions to a new pod: none if it has the agent, wants none, or cannot have one.

    A pod that cannot have it is refused, or its author warned, by the rule; if it is created
    nevertheless, it is notified by annotation.
    """
    view = next(pod_views(pod))
    if agent.has_agent(view.spec.initContainers) or not agent.wants_agent(view):
        return ()
    place = agent.find_placement(view)
    if not isinstance(place, AgentPlacement):
        return ()
    service = facts.checkpoint_service if _may_report(pod, view.spec) else None
    image = facts.settings.agent_image or facts.own_image
    return tuple(_entries(view.spec, place, image, service))


def _may_report(pod: Resource, spec: Spec) -> bool:
    """True if the pod may have the volume with the token.

    The API server refuses two volumes of one name, and a static pod's mirror with any token.
    """
    return MIRROR_ANNOTATION not in annotations_of(pod.metadata) and not any(
        volume.name == _REPORT_TOKEN for volume in spec.volumes or ()
    )


def _entries(
    spec: Spec, place: AgentPlacement, image: str, service: CheckpointService | None
) -> Iterator[ListAddition]:
    has_volumes = spec.volumes is not None
    if place.volume is None:
        memory = {"name": NAME, "emptyDir": {"medium": "Memory", "sizeLimit": _SIZE}}
        yield ListAddition(_VOLUMES, memory, has_volumes)
    yield ListAddition(
        _VOLUMES,
        {"name": _NO_TOKEN, "emptyDir": {"medium": "Memory", "sizeLimit": _SIZE}},
        has_volumes,
    )
    if service is not None:
        yield ListAddition(_VOLUMES, _report_token_volume(), has_volumes)
    containers = spec.containers or ()
    for index in place.containers_to_mount:
        mounts = f"/spec/containers/{index}/volumeMounts"
        yield ListAddition(mounts, _mount(place), containers[index].volumeMounts is not None)
    yield ListAddition(
        _INIT_CONTAINERS, _container(spec, place, image, service), spec.initContainers is not None
    )


def _report_token_volume() -> Mapping[str, object]:
    token = {
        "audience": agent.TOKEN_AUDIENCE,
        "expirationSeconds": _REPORT_TOKEN_SECONDS,
        "path": "token",
    }
    return {"name": _REPORT_TOKEN, "projected": {"sources": [{"serviceAccountToken": token}]}}


def _container(
    spec: Spec, place: AgentPlacement, image: str, service: CheckpointService | None
) -> Mapping[str, object]:
    arguments = ["--request", place.request, *(["--signal", place.signal] if place.signal else [])]
    as_user = {} if place.run_as_user is None else {"runAsUser": place.run_as_user}
    container: dict[str, Any] = {
        "name": NAME,
        "image": image,
        "command": [NAME, *arguments],
        "restartPolicy": "Always",
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "ports": [{"name": NAME, "containerPort": PORT}],
        "securityContext": {**_SECURITY_CONTEXT, **as_user},
        "volumeMounts": [
            _mount(place),
            {"name": _NO_TOKEN, "mountPath": _TOKEN_FOLDER, "readOnly": True},
        ],
    }
    if service is not None:
        # Variables, not arguments: an agent of an earlier version does not know them, and would not
        # start with arguments that it does not know.
        container["env"] += [
            {"name": "REPRIEVE_REPORT_URL", "value": service.url},
            {"name": "REPRIEVE_REPORT_CA", "value": service.ca_bundle},
            {"name": "REPRIEVE_REPORT_TOKEN_FILE", "value": f"{_REPORT_TOKEN_FOLDER}/token"},
        ]
        container["volumeMounts"].append(
            {"name": _REPORT_TOKEN, "mountPath": _REPORT_TOKEN_FOLDER, "readOnly": True}
        )
    if spec.resources is None:
        container["resources"] = {"requests": _RESOURCES, "limits": _RESOURCES}
    return container


def _mount(place: AgentPlacement) -> Mapping[str, str]:
    return {"name": place.volume or NAME, "mountPath": place.folder}
