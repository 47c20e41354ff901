"""Builders of API objects: `a_pod().in_class(3).marked_by("descheduler").build()`.

Builders are immutable: each method returns another one, so that a table of cases can share a
default. A default sets nothing that a test would want to set itself: no class, no priority, no
owner.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Self

from reprieve_policy import keys
from reprieve_policy.config.preemption_class import priority_class_name
from reprieve_policy.kube.kinds import CUSTOM, KINDS
from reprieve_policy.kube.limits.quota import Quota
from reprieve_policy.kube.objects import (
    Affinity,
    Container,
    JobTemplate,
    NameOnly,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    NodeToleration,
    ObjectMeta,
    OwnerReference,
    PodGroupTemplate,
    PodTemplate,
    Resource,
    ResourceRequirements,
    SchedulingGroup,
    Spec,
    TemplatedResource,
)
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase, Source

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
"""The moment at which a test begins, unless it states another."""


def after(seconds: float) -> datetime:
    """Return the moment `seconds` after `NOW` (negative: before)."""
    return NOW + timedelta(seconds=seconds)


def being_deleted(resource: Resource) -> Resource:
    """Return an object as it is between its deletion and its end."""
    metadata = replace(resource.metadata, deletionTimestamp="2026-11-21T12:00:00Z")
    return replace(resource, metadata=metadata)


@dataclass(frozen=True)
class _Builder:
    """Any object: identity and metadata."""

    resource: Resource

    def build(self) -> Resource:
        return self.resource

    def named(self, name: str) -> Self:
        return self._with_metadata(name=name)

    def with_uid(self, uid: str) -> Self:
        return self._with_metadata(uid=uid)

    def labelled(self, key: str, value: str) -> Self:
        return self._with_metadata(labels={**(self.resource.metadata.labels or {}), key: value})

    def annotated(self, key: str, value: str) -> Self:
        return self._with_metadata(
            annotations={**(self.resource.metadata.annotations or {}), key: value}
        )

    def being_deleted(self) -> Self:
        return replace(self, resource=being_deleted(self.resource))

    def _with_metadata(self, **fields: object) -> Self:
        metadata = replace(self.resource.metadata, **fields)  # type: ignore[arg-type]  # named by this module only
        return replace(self, resource=replace(self.resource, metadata=metadata))


@dataclass(frozen=True)
class PodBuilder(_Builder):
    """A Pod."""

    def in_class(self, preemption_class: int | str) -> Self:
        return self.labelled(keys.PREEMPTION_CLASS, str(preemption_class))

    def with_checkpoint(self, strategy: str) -> Self:
        return self.annotated(keys.CHECKPOINT, strategy)

    def with_hint(self, hint: str = "http://:8080/checkpoint") -> Self:
        return self.annotated(keys.CHECKPOINT_HINT, hint)

    def with_agent(self, wish: str = "enabled") -> Self:
        return self.annotated(keys.AGENT, wish)

    def with_containers(self, *containers: Container, **fields: object) -> Self:
        """Set its containers, and other fields of its spec."""
        return self._with_spec(containers=containers, **fields)

    def with_priority(self, priority: int, class_name: str | None = None) -> Self:
        return self._with_spec(priority=priority, priorityClassName=class_name)

    def in_priority_class(self, name: str) -> Self:
        return self._with_spec(priorityClassName=name)

    def defended_as(self, priority_class: str) -> Self:
        return self.annotated(keys.PREEMPTION_PRIORITY_CLASS, priority_class)

    def preempting(self, policy: str) -> Self:
        return self._with_spec(preemptionPolicy=policy)

    def asking(self, **requests: str) -> Self:
        """Let its only container request resources."""
        return self._with_spec(
            containers=(Container(name="main", resources=ResourceRequirements(requests=requests)),)
        )

    def claiming(self, *names: str) -> Self:
        """Let it use ResourceClaims."""
        return self._with_spec(resourceClaims=tuple(NameOnly(name=name) for name in names))

    def marked(self) -> Self:
        return self.labelled(keys.SOFT_EVICTION, "requested")

    def marked_by(self, initiator: str, reason: str = "") -> Self:
        """Mark it as koord-descheduler does."""
        document = {"timestamp": "2026-11-21T11:59:58Z", "initiator": initiator, "reason": reason}
        return self.annotated(keys.KOORDINATOR_SOFT_EVICTION, json.dumps(document))

    def owned_by(
        self,
        kind: str,
        name: str = "owner",
        *,
        controls: bool = True,
        api_version: str | None = None,
    ) -> Self:
        """Name an owner; of a kind that Kubernetes has, in its group."""
        row = KINDS.get(kind)
        owner = OwnerReference(
            apiVersion=api_version or f"{row.group if row else 'batch'}/v1",
            kind=kind,
            name=name,
            uid=f"uid-of-{name}",
            controller=controls,
        )
        return self._with_metadata(ownerReferences=(owner,))

    def on_nodes_of(self, namespace: str) -> Self:
        return self._with_spec(nodeSelector={keys.HOME_NAMESPACE: namespace})

    def on_nodes_where(self, *requirements: tuple[str, str, Sequence[str]]) -> Self:
        """Require nodes that satisfy one of `(key, operator, values)`, by node affinity."""
        terms = [
            NodeSelectorTerm(
                matchExpressions=(
                    NodeSelectorRequirement(key=key, operator=operator, values=values),
                )
            )
            for key, operator, values in requirements
        ]
        choice = NodeSelector(nodeSelectorTerms=terms)
        required = NodeAffinity(requiredDuringSchedulingIgnoredDuringExecution=choice)
        return self._with_spec(affinity=Affinity(nodeAffinity=required))

    def tolerating(self, *tolerations: NodeToleration) -> Self:
        return self._with_spec(tolerations=tolerations)

    def in_gang(self, name: str) -> Self:
        """Put it in a gang by the label of scheduler-plugins."""
        return self.labelled(keys.POD_GROUP, name)

    def in_koordinators_gang(
        self, name: str, minimum: int | str | None = None, total: int | str | None = None
    ) -> Self:
        numbers = {keys.KOORDINATOR_MIN_AVAILABLE: minimum, keys.KOORDINATOR_TOTAL: total}
        builder = self.annotated(keys.KOORDINATOR_GANG, name)
        for key, number in numbers.items():
            if number is not None:
                builder = builder.annotated(key, str(number))
        return builder

    def in_native_gang(self, name: str | None) -> Self:
        return self._with_spec(schedulingGroup=SchedulingGroup(podGroupName=name))

    def in_template_of(self, kind: str) -> Resource:
        """Return a workload of `kind` that makes pods like this one.

        Its template has no priority: the API server resolves that for pods only.
        """
        template = PodTemplate(
            metadata=ObjectMeta(
                labels=self.resource.metadata.labels, annotations=self.resource.metadata.annotations
            ),
            spec=replace(self.resource.spec or Spec(), priority=None),
        )
        spec = Spec(template=template)
        if kind == "CronJob":
            spec = Spec(jobTemplate=JobTemplate(spec=spec))
        metadata = ObjectMeta(name="workload", namespace=self.resource.metadata.namespace)
        return Resource(kind=kind, metadata=metadata, spec=spec)

    def in_listed_kind(self) -> Resource:
        """Return an object of another project's kind that makes pods like this one."""
        metadata = self.resource.metadata
        template = PodTemplate(
            metadata=metadata, spec=replace(self.resource.spec or Spec(), priority=None)
        )
        made = (("spec.jobs[0].template.", template),)
        return TemplatedResource(
            kind=CUSTOM, metadata=ObjectMeta(name="w", namespace=metadata.namespace), templates=made
        )

    def _with_spec(self, **fields: object) -> Self:
        spec = replace(self.resource.spec or Spec(), **fields)  # type: ignore[arg-type]  # named by this module only
        return replace(self, resource=replace(self.resource, spec=spec))


@dataclass(frozen=True)
class PriorityClassBuilder(_Builder):
    """A PriorityClass."""

    def worth(self, value: int) -> Self:
        return replace(self, resource=replace(self.resource, value=value))

    def for_all(self) -> Self:
        return replace(self, resource=replace(self.resource, globalDefault=True))

    def never_preempting(self) -> Self:
        return replace(self, resource=replace(self.resource, preemptionPolicy="Never"))

    def tolerating(self, *, seconds: str | None = None, below: str | None = None) -> Self:
        """Set upstream's two annotations as texts.

        Preemptors of a priority lower than `below` are tolerated for `seconds`.
        """
        texts = {keys.TOLERATION_SECONDS: seconds, keys.MINIMUM_PREEMPTABLE_PRIORITY: below}
        builder = self
        for name, text in texts.items():
            if text is not None:
                builder = builder.annotated(keys.TOLERATION_PREFIX + name, text)
        return builder

    def defended_as(self, priority_class: str) -> Self:
        return self.annotated(keys.PREEMPTION_PRIORITY_CLASS, priority_class)

    def giving_class(self, preemption_class: int | str) -> Self:
        return self.annotated(keys.DEFAULT_PREEMPTION_CLASS, str(preemption_class))


@dataclass(frozen=True)
class GroupBuilder(_Builder):
    """A native Workload or PodGroup."""

    def defended_as(self, priority_class: str) -> Self:
        return self.annotated(keys.PREEMPTION_PRIORITY_CLASS, priority_class)

    def in_priority_class(self, name: str, priority: int | None = None) -> Self:
        """Give a PodGroup a PriorityClass, and the priority that the API server resolves it to."""
        return self._with_spec(Spec(priorityClassName=name, priority=priority))

    def with_templates(
        self, *priority_classes: str | None, inside: Sequence[PodGroupTemplate] = ()
    ) -> Self:
        """Give a Workload a group template of each PriorityClass, and composite ones."""
        templates = [PodGroupTemplate(priorityClassName=name) for name in priority_classes]
        return self._with_spec(Spec(podGroupTemplates=templates, compositePodGroupTemplates=inside))

    def _with_spec(self, spec: Spec) -> Self:
        return replace(self, resource=replace(self.resource, spec=spec))


@dataclass(frozen=True)
class NamespaceBuilder(_Builder):
    """A Namespace."""

    def for_workloads(self, workload_type: str) -> Self:
        return self.annotated(keys.WORKLOAD_TYPE, workload_type)

    def allowing_classes(self, classes: str) -> Self:
        return self.annotated(keys.ALLOWED_PREEMPTION_CLASSES, classes)

    def giving_class(self, preemption_class: int | str) -> Self:
        return self.annotated(keys.DEFAULT_PREEMPTION_CLASS, str(preemption_class))

    def enforcing(self, enforcement: str) -> Self:
        return self.annotated(keys.ENFORCEMENT, enforcement)


@dataclass(frozen=True)
class EvictionBuilder:
    """The state of a soft eviction of pod `pod-uid`, requested at `NOW`."""

    eviction: Eviction

    def build(self) -> Eviction:
        return self.eviction

    def in_phase(self, phase: Phase, *, deadline: datetime | None = None) -> Self:
        return replace(self, eviction=replace(self.eviction, phase=phase, deadline=deadline))

    def asked_by_scheduler(self) -> Self:
        """Let a scheduler request it: a preemption, which may be refused."""
        return replace(self, eviction=replace(self.eviction, source=Source.KOORDINATOR))

    def hinted(self, *, deadline: datetime, attempt: int = 1) -> Self:
        """Hinted at `NOW`, not answered yet."""
        state = replace(
            self.eviction, phase=Phase.HINTED, hinted_at=NOW, attempt=attempt, deadline=deadline
        )
        return replace(self, eviction=state)

    def answered(self, phase: Phase, *, deadline: datetime) -> Self:
        """Hinted and answered at `NOW`, now in `phase`."""
        state = replace(self.hinted(deadline=deadline).eviction, phase=phase, answered_at=NOW)
        return replace(self, eviction=state)

    def ended(self, outcome: CheckpointOutcome) -> Self:
        """Let it be terminating, with this outcome."""
        return replace(
            self, eviction=replace(self.eviction, phase=Phase.TERMINATING, outcome=outcome)
        )

    def with_grace(self, seconds: int) -> Self:
        return replace(self, eviction=replace(self.eviction, mark_grace_seconds=seconds))


def a_pod() -> PodBuilder:
    """Return a pod without preferences about its preemption."""
    metadata = ObjectMeta(
        name="pod", namespace="team", uid="pod-uid", creationTimestamp="2026-11-21T09:00:00Z"
    )
    return PodBuilder(Resource(kind="Pod", metadata=metadata, spec=Spec(priority=0)))


def class_priorities(*classes: int) -> dict[str, Resource]:
    """Return the PriorityClasses of these preemption classes, of all without one: class 3 has
    value 3000.
    """
    return {
        name: a_priority_class(name).worth(1000 * value).giving_class(value).build()
        for value in classes or range(11)
        for name in (priority_class_name(value),)
    }


def a_priority_class(name: str = "training") -> PriorityClassBuilder:
    """Return a PriorityClass of value 1000."""
    return PriorityClassBuilder(
        Resource(kind="PriorityClass", metadata=ObjectMeta(name=name), value=1000)
    )


def a_workload() -> GroupBuilder:
    """Return a native Workload without group templates."""
    return GroupBuilder(
        Resource(
            kind="Workload", metadata=ObjectMeta(name="workload", namespace="team"), spec=Spec()
        )
    )


def a_pod_group() -> GroupBuilder:
    """Return a native PodGroup without a priority."""
    return GroupBuilder(
        Resource(kind="PodGroup", metadata=ObjectMeta(name="group", namespace="team"), spec=Spec())
    )


def a_policy_map(name: str = "reprieve-policy", **data: str) -> Resource:
    """Return a ConfigMap in Reprieve's namespace."""
    return Resource(
        kind="ConfigMap", metadata=ObjectMeta(name=name, namespace="reprieve-system"), data=data
    )


def a_namespace(name: str = "team") -> NamespaceBuilder:
    """Return a Namespace without a policy of its own."""
    return NamespaceBuilder(Resource(kind="Namespace", metadata=ObjectMeta(name=name)))


def an_eviction() -> EvictionBuilder:
    """Return an eviction that was just requested."""
    state = Eviction(eviction_id="pod-uid-1795262400", phase=Phase.REQUESTED, requested_at=NOW)
    return EvictionBuilder(state)


def a_quota(name: str, namespace: str, *used_by: str) -> Quota:
    """Return an ElasticQuota with empty amounts, used by the pods of these namespaces."""
    empty: dict[str, int] = {}
    return Quota(
        namespace=namespace,
        name=name,
        min_amounts=empty,
        max_amounts=empty,
        used=empty,
        non_preemptible_used=empty,
        non_preemptible_request=empty,
        namespaces=used_by,
    )
