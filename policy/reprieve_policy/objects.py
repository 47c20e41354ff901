"""The few fields of Kubernetes objects that rules and the operator read. Everything else is never decoded.

Field names are the API's own, so that a decoder can fill these classes from JSON directly. One class serves every
kind: a review is then decoded in a single pass, whatever it carries (a second pass costs 50 % more on a 30 KB pod).
Each field added here costs time in every review: add only what a rule reads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    """Who made an object; the one with `controller` set will replace it."""

    apiVersion: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMeta:
    """Identity and metadata. Absent and `null` maps both read as empty, through `labels_of` and `annotations_of`."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str] | None = None
    finalizers: Sequence[str] | None = None
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    ownerReferences: Sequence[OwnerReference] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The union of a pod's spec and of the specs that hold a pod template."""

    priority: int | None = None
    priorityClassName: str | None = None
    template: "PodTemplate | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """`spec.template` of a Deployment, Job and their like."""

    metadata: ObjectMeta | None = None
    spec: Spec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Any object that a rule may see: a Pod, a workload with a template, a PriorityClass or a Namespace."""

    kind: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Spec | None = None
    # A PriorityClass has these at the top level.
    value: int | None = None
    globalDefault: bool | None = None


class PodView(NamedTuple):
    """A pod, or the template of one, and where it stands in its object (`""` or `"spec.template."`)."""

    prefix: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Spec
    is_template: bool


_EMPTY: Mapping[str, str] = {}
_NO_SPEC = Spec()


def labels_of(metadata: ObjectMeta | None) -> Mapping[str, str]:
    """Return the labels, empty where there are none."""
    return _EMPTY if metadata is None or metadata.labels is None else metadata.labels


def annotations_of(metadata: ObjectMeta | None) -> Mapping[str, str]:
    """Return the annotations, empty where there are none."""
    return _EMPTY if metadata is None or metadata.annotations is None else metadata.annotations


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """Return the owner that will replace this object, `None` where nobody will."""
    return next((owner for owner in metadata.ownerReferences or () if owner.controller), None)


def pod_views(resource: Resource) -> Iterator[PodView]:
    """Yield the pod that `resource` is, or the templates that it makes pods from; nothing for any other kind."""
    spec = resource.spec or _NO_SPEC
    if resource.kind == "Pod":
        metadata = resource.metadata
        yield PodView("", labels_of(metadata), annotations_of(metadata), spec, is_template=False)
    elif spec.template is not None:
        template = spec.template
        labels, annotations = labels_of(template.metadata), annotations_of(template.metadata)
        yield PodView("spec.template.", labels, annotations, template.spec or _NO_SPEC, is_template=True)
