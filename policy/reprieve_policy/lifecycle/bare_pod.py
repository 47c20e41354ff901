"""A pod without a controller: whether Reprieve replaces it, and with what.

The replacement is the victim as its author wrote it, as far as that is known: without what the API
server, admission, the scheduler and Reprieve have added since (they add it again), and with the
annotations of a replacement. Finalizers are left out too: a controller that wants to hold the new
pod adds its own when it sees the pod.

Maps are the API's own, as in JSON, because a spec that is written back must lose no field.
"""

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any

from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.pods import MIRROR_ANNOTATION

from . import replacement_annotations
from .ledger import LedgerEntry

MAX_BYTES = 128 * 1024
"""Of one replacement as JSON. An ordinary pod has about 5 KB."""
MAX_RECORDS = 2000
MAX_RECORDS_OF_NAMESPACE = 500
"""Records of pods that wait to be created. Without the limit for one namespace, one tenant could
use up all of them."""

_MANAGED_BY, _DEBUG = "app.kubernetes.io/managed-by", "kubectl-debug"
_OWN_LABELS = frozenset({keys.SOFT_EVICTION, keys.KOORDINATOR_SOFT_EVICTION, keys.GANG_GATE_LABEL})
_OWN_ANNOTATIONS = frozenset(
    {
        keys.EVICTION,
        keys.PREEMPTOR,
        keys.REFUSED_SINCE,
        keys.CHECKPOINT_REQUEST,
        keys.CHECKPOINT_ANSWER,
        keys.KOORDINATOR_SOFT_EVICTION,
        # The webhooks write it again, as the PodGroup states it then.
        keys.MIN_MEMBER,
        keys.REQUEUED_FROM,
        keys.GANG_RELEASED_AT,
        *replacement_annotations.ENVIRONMENT,
    }
)
_COMPUTED_FIELDS = frozenset(
    {
        "nodeName",
        "ephemeralContainers",
        # Computed from the PriorityClass and the RuntimeClass. If those have changed, the API
        # server refuses the old values.
        "priority",
        "preemptionPolicy",
        "overhead",
        # A deprecated copy of serviceAccountName.
        "serviceAccount",
    }
)
_TOKEN_VOLUME = re.compile("kube-api-access-[a-z0-9]{5}")
_DEFAULT_TOLERATIONS = tuple(
    {
        "key": f"node.kubernetes.io/{key}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    for key in ("not-ready", "unreachable")
)

Document = Mapping[str, Any]


def is_recreatable(pod: Document) -> bool:
    """True for a pod worth recreating: it has no controller, and was not an interactive session."""
    metadata, spec = _part(pod, "metadata"), _part(pod, "spec")
    return not (
        metadata.get("ownerReferences")
        or MIRROR_ANNOTATION in _part(metadata, "annotations")
        or _part(metadata, "labels").get(_MANAGED_BY) == _DEBUG
        # `kubectl run -i`: the input ended with the attached terminal.
        or any(container.get("stdinOnce") for container in _containers(spec, "containers"))
    )


def build_replacement(
    pod: Document, entry: LedgerEntry, settings: PolicySettings
) -> dict[str, Any]:
    """Return the pod that replaces this one, under the same name."""
    metadata = _part(pod, "metadata")
    annotations = _without(_part(metadata, "annotations"), _OWN_ANNOTATIONS)
    annotations_with_history = {
        **annotations,
        **replacement_annotations.build_annotations(entry),
        keys.REQUEUED_FROM: metadata["uid"],
    }
    variables = replacement_annotations.build_variables(entry, annotations, settings)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": _without(_part(metadata, "labels"), _OWN_LABELS),
            "annotations": annotations_with_history,
        },
        "spec": _build_spec(
            _part(pod, "spec"), [variable.to_env_entry() for variable in variables]
        ),
    }


def _build_spec(spec: Document, variables: list[Document]) -> dict[str, Any]:
    tokens = {volume["name"] for volume in spec.get("volumes") or () if _is_token(volume)}
    lists = {
        "volumes": [volume for volume in spec.get("volumes") or () if volume["name"] not in tokens],
        "tolerations": [
            row for row in spec.get("tolerations") or () if row not in _DEFAULT_TOLERATIONS
        ],
        "schedulingGates": [
            gate for gate in spec.get("schedulingGates") or () if gate.get("name") != keys.GANG_GATE
        ],
        **{
            field: [
                _build_container(container, tokens, variables)
                for container in _containers(spec, field)
            ]
            for field in ("containers", "initContainers")
        },
    }
    kept = _without(spec, _COMPUTED_FIELDS | lists.keys())
    return kept | {field: entries for field, entries in lists.items() if entries}


def _build_container(
    container: Document, tokens: set[str], variables: list[Document]
) -> dict[str, Any]:
    own = list(container.get("env") or ())
    known = {variable["name"] for variable in own}
    lists = {
        "env": own + [variable for variable in variables if variable["name"] not in known],
        "volumeMounts": [
            mount for mount in container.get("volumeMounts") or () if mount["name"] not in tokens
        ],
    }
    return _without(container, lists.keys()) | {
        field: entries for field, entries in lists.items() if entries
    }


def _is_token(volume: Document) -> bool:
    """True for the volume that the API server adds with a ServiceAccount's token.

    That token is bound to the pod that is gone.
    """
    return "projected" in volume and _TOKEN_VOLUME.fullmatch(volume["name"]) is not None


def _containers(spec: Document, field: str) -> Iterator[Document]:
    yield from spec.get(field) or ()


def _part(document: Document, field: str) -> Document:
    part: Document = document.get(field) or {}
    return part


def _without(document: Document, fields: Container[str]) -> dict[str, Any]:
    return {field: value for field, value in document.items() if field not in fields}
