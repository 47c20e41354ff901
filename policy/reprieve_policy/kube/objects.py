"""The few fields of Kubernetes objects that rules read. No other field is decoded in a review.

Field names are the API's own, so that a decoder can fill these classes directly from JSON. One
class serves every kind, so that a review is decoded in a single pass whatever it carries (a second
pass costs 50 % more on a 30 KB pod). Each field added here costs time in every review: add only
what a rule reads. What the programs read of pods, Jobs, nodes and other kinds beyond that is in the
module of the kind (`pods`, `jobs`, `nodes`, …), which no review of a rule decodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeGuard


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    """An owner of an object. The one with `controller` set creates its replacement."""

    apiVersion: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMeta:
    """Identity and metadata. `labels_of` and `annotations_of` read `null` as empty."""

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
class VersionedMeta(ObjectMeta):
    """Metadata with the version of the object, for preconditions, and the generation of its spec.

    A separate class: rules read neither, and the cache of pods compares pods without their version.
    """

    resourceVersion: str = ""
    generation: int = 0
    deletionGracePeriodSeconds: int | None = None

    @property
    def key(self) -> str:
        """`namespace/name`, for logs."""
        return f"{self.namespace}/{self.name}"

    @property
    def version(self) -> int:
        """The resourceVersion as the number that it is since Kubernetes 1.35; else 0."""
        return int(self.resourceVersion) if self.resourceVersion.isdigit() else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NameOnly:
    """An entry of which only the name is read, such as a scheduling gate."""

    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPort:
    """A port that a container declares."""

    containerPort: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeMount:
    """The path at which a container mounts a volume."""

    name: str = ""
    mountPath: str = ""
    subPath: str = ""
    subPathExpr: str = ""


Quantities = Mapping[str, str | int | float]
"""Amounts by resource as they are written: text, or in a custom resource also a bare number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRequirements:
    """The requests and limits of a container, or of a pod as a whole."""

    requests: Quantities | None = None
    limits: Quantities | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """An object of which only is read that it is there.

    Nothing is built of what it contains: lists within lists, as any value, would take forty times
    the bytes of their review.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyDir:
    """A volume with the lifetime of its pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume of a pod; of its source, only whether it is an `emptyDir`."""

    name: str = ""
    emptyDir: EmptyDir | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityContext:
    """The user of a container, or of all containers of a pod that set none of their own."""

    runAsUser: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """A container, or an init container (a native sidecar if `restartPolicy` is `Always`)."""

    name: str = ""
    ports: Sequence[ContainerPort] | None = None
    volumeMounts: Sequence[VolumeMount] | None = None
    resources: ResourceRequirements | None = None
    restartPolicy: str | None = None
    command: Sequence[str] | None = None
    args: Sequence[str] | None = None
    securityContext: SecurityContext | None = None
    env: Sequence[NameOnly] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeToleration:
    """A toleration of a node's taint."""

    key: str = ""
    operator: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelectorRequirement:
    """The values that one label of a node must or must not have."""

    key: str = ""
    operator: str = ""
    values: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelectorTerm:
    """Requirements of which a node must meet all."""

    matchExpressions: Sequence[NodeSelectorRequirement] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelector:
    """Terms of which a node must meet one."""

    nodeSelectorTerms: Sequence[NodeSelectorTerm] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAffinity:
    """The nodes that a pod requires; its preferences are not read."""

    requiredDuringSchedulingIgnoredDuringExecution: NodeSelector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Affinity:
    """Where a pod must run, as far as rules read it."""

    nodeAffinity: NodeAffinity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingGroup:
    """The native PodGroup that a pod belongs to (1.36 and later)."""

    podGroupName: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadReference:
    """The native Workload that a PodGroup was made from (1.37)."""

    workloadName: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroupTemplate:
    """A template of pod groups in a native Workload, or of groups of pod groups."""

    priorityClassName: str | None = None
    priority: int | None = None
    podGroupTemplates: "Sequence[PodGroupTemplate] | None" = None
    compositePodGroupTemplates: "Sequence[PodGroupTemplate] | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitCodes:
    """The exit codes that a rule of a Job matches."""

    operator: str = ""
    values: Sequence[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodConditionPattern:
    """The pod condition that a rule of a Job matches."""

    type: str = ""
    status: str = "True"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFailurePolicyRule:
    """What a Job does about a failed pod that matches."""

    action: str = ""
    onExitCodes: ExitCodes | None = None
    onPodConditions: Sequence[PodConditionPattern] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFailurePolicy:
    """A Job's rules about failed pods: the first that matches decides."""

    rules: Sequence[PodFailurePolicyRule] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The union of the specs of pods, templated workloads, native groups and ElasticQuotas."""

    # Of a pod.
    priority: int | None = None
    priorityClassName: str | None = None
    preemptionPolicy: str | None = None
    nodeName: str | None = None
    nodeSelector: Mapping[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: Sequence[NodeToleration] | None = None
    terminationGracePeriodSeconds: int | None = None
    containers: Sequence[Container] | None = None
    initContainers: Sequence[Container] | None = None
    schedulingGates: Sequence[NameOnly] | None = None
    schedulingGroup: SchedulingGroup | None = None
    resources: ResourceRequirements | None = None
    resourceClaims: Sequence[NameOnly] | None = None
    overhead: Quantities | None = None
    volumes: Sequence[Volume] | None = None
    securityContext: SecurityContext | None = None
    shareProcessNamespace: bool | None = None
    hostPID: bool | None = None
    hostNetwork: bool | None = None
    os: NameOnly | None = None
    # Of a workload.
    template: "PodTemplate | None" = None
    jobTemplate: "JobTemplate | None" = None
    replicas: int | None = None
    podManagementPolicy: str | None = None
    parallelism: int | None = None
    completions: int | None = None
    podFailurePolicy: PodFailurePolicy | None = None
    # Of an ElasticQuota.
    min: Quantities | None = None
    max: Quantities | None = None
    # Of a native PodGroup.
    disruptionMode: Mapping[str, Unread | None] | None = None
    workloadRef: WorkloadReference | None = None
    # Of a native Workload.
    podGroupTemplates: Sequence[PodGroupTemplate] | None = None
    compositePodGroupTemplates: Sequence[PodGroupTemplate] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """`spec.template` of a Deployment, a Job and similar kinds."""

    metadata: ObjectMeta | None = None
    spec: Spec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTemplate:
    """`spec.jobTemplate` of a CronJob."""

    metadata: ObjectMeta | None = None
    spec: Spec | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Any object that a rule may see: a Pod, a workload with a template, or an admin's object."""

    kind: str = ""
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Spec | None = None
    # At the top level of a PriorityClass.
    value: int | None = None
    globalDefault: bool | None = None
    preemptionPolicy: str | None = None
    # At the top level of a ConfigMap.
    data: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplatedResource(Resource):
    """An object of a kind in `templateKinds`, with the templates found in it, each with its prefix.

    A separate class: without it, an object's own field `templates` would be taken for these.
    """

    templates: Sequence[tuple[str, PodTemplate]] = ()
    upstream_kind: tuple[str, str] = ("", "")
    """Its API group and its kind there; `kind` is the one by which rules are selected."""


class PodView(NamedTuple):
    """A pod or a pod template, with its path prefix in its object (`""` or `"spec.template."`)."""

    prefix: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Spec
    is_template: bool
    finalizers: Sequence[str] = ()


_EMPTY: Mapping[str, str] = {}
_NO_SPEC = Spec()


def labels_of(metadata: ObjectMeta | None) -> Mapping[str, str]:
    """Return the labels, empty if there are none."""
    return _EMPTY if metadata is None or metadata.labels is None else metadata.labels


def annotations_of(metadata: ObjectMeta | None) -> Mapping[str, str]:
    """Return the annotations, empty if there are none."""
    return _EMPTY if metadata is None or metadata.annotations is None else metadata.annotations


def finalizers_of(metadata: ObjectMeta | None) -> Sequence[str]:
    """Return the finalizers, empty if there are none."""
    return () if metadata is None else metadata.finalizers or ()


def pod_group_name_of(group: SchedulingGroup | None) -> str:
    """Return the name of the native PodGroup in a pod's `schedulingGroup`, or an empty text."""
    return "" if group is None else group.podGroupName or ""


def controller_of(metadata: ObjectMeta) -> OwnerReference | None:
    """Return the owner that will replace this object, `None` if it has no controller."""
    return next((owner for owner in metadata.ownerReferences or () if owner.controller), None)


def group_of(api_version: str) -> str:
    """Return the API group in an `apiVersion`; empty: the core group."""
    return api_version.rpartition("/")[0]


def is_of_kind(owner: OwnerReference | None, group: str, kind: str) -> TypeGuard[OwnerReference]:
    """True for an owner of this kind.

    The kind alone would not do: other projects have kinds of the same names, and a pod may name an
    owner of a group that does not exist, which no garbage collector looks for.
    """
    return owner is not None and owner.kind == kind and group_of(owner.apiVersion) == group


def is_being_deleted_unchanged(resource: Resource, old: Resource | None) -> bool:
    """True for an object that is being deleted, unless the request changes a template of it.

    Such a change counts: controllers still use the template. That of StatefulSets writes it to a
    ControllerRevision, which another StatefulSet may adopt; that of Deployments rolls back to the
    template of a ReplicaSet.
    """
    return resource.metadata.deletionTimestamp is not None and (
        old is None or tuple(_templates(resource)) == tuple(_templates(old))
    )


@dataclass(slots=True)
class _LastViews:
    """The object last asked about, and its views. Objects never change, so the views stay valid."""

    resource: Resource | None = None
    views: tuple[PodView, ...] = ()


_LAST = _LastViews()


def pod_views(resource: Resource) -> Iterator[PodView]:
    """Yield the pod that `resource` is, or the templates from which it makes pods; else nothing."""
    # A dozen rules in a row ask about one object. Without this cache, making its views each time
    # would take a quarter of the time of all rules.
    if _LAST.resource is not resource:
        _LAST.views = tuple(_make_views(resource))
        _LAST.resource = resource
    return iter(_LAST.views)


def _make_views(resource: Resource) -> Iterator[PodView]:
    if resource.kind == "Pod":
        metadata = resource.metadata
        spec = resource.spec or _NO_SPEC
        labels, annotations = labels_of(metadata), annotations_of(metadata)
        finalizers = finalizers_of(metadata)
        yield PodView("", labels, annotations, spec, is_template=False, finalizers=finalizers)
        return
    for prefix, template in _templates(resource):
        labels, annotations = labels_of(template.metadata), annotations_of(template.metadata)
        spec, finalizers = template.spec or _NO_SPEC, finalizers_of(template.metadata)
        yield PodView(prefix, labels, annotations, spec, is_template=True, finalizers=finalizers)


def _templates(resource: Resource) -> Iterator[tuple[str, PodTemplate]]:
    if isinstance(resource, TemplatedResource):
        yield from resource.templates
    spec = resource.spec or _NO_SPEC
    if spec.template is not None:
        yield "spec.template.", spec.template
    job = spec.jobTemplate.spec if spec.jobTemplate is not None else None
    if job is not None and job.template is not None:
        yield "spec.jobTemplate.spec.template.", job.template
