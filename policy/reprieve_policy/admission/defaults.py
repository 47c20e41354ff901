"""Defaults: never over a value that is set, never in a template.

In a template a default would cause rollouts, GitOps drift and changes of immutable Jobs. Pods get
their class, where an admin wants it the PriorityClass of their class, the admin's defaults for
Koordinator's labels, their predecessor's data, what the JobSet or PodGroup of their gang states,
and the agent if they ask for it. Native PodGroups get the annotations of their Workload.
PriorityClasses get the other half of a toleration. Marked pods get the label that the operator's
watch selects. Deployments lose what Reprieve keeps on their ReplicaSets.
"""

from collections.abc import Iterator

from reprieve_policy import facts as known
from reprieve_policy import keys
from reprieve_policy.config import toleration
from reprieve_policy.config.namespace import OFF
from reprieve_policy.config.toleration import PreemptionToleration
from reprieve_policy.facts import Facts, GangStatement
from reprieve_policy.gangs import gang_objects, gate, pod_group
from reprieve_policy.kube.objects import (
    PodView,
    Resource,
    Spec,
    annotations_of,
    labels_of,
    pod_views,
)
from reprieve_policy.lifecycle import mark, replacement_annotations
from reprieve_policy.verdict import AnnotationRemoval, Change, MetadataChange, SpecChange

from . import sidecar

KEPT_ON_REPLICA_SETS = (keys.LEDGER, keys.LAST_CHECKPOINT_AT)
"""The annotations that the operator writes to a ReplicaSet, and never to a Deployment."""


def decide_defaults(resource: Resource, old: Resource | None, facts: Facts) -> tuple[Change, ...]:
    """Return the changes of one object; `old` is `None` at creation."""
    if resource.metadata.deletionTimestamp is not None:
        return ()
    if resource.kind == "PriorityClass":
        return tuple(_default_toleration(resource))
    if resource.kind == "PodGroup" and old is None:
        return tuple(_inherit_from_workload(resource, facts))
    if resource.kind == "Deployment":
        return tuple(_drop_ledger(resource))
    if resource.kind != "Pod":
        return ()
    created = (
        tuple(_default_pod(resource, facts))
        if old is None and facts.namespace.enforcement != OFF
        else ()
    )
    return created + tuple(_label_mark(resource, old))


def _default_pod(pod: Resource, facts: Facts) -> Iterator[Change]:
    view = next(pod_views(pod))
    if keys.PREEMPTION_CLASS not in view.labels:
        yield MetadataChange("labels", keys.PREEMPTION_CLASS, str(known.default_class(view, facts)))
    yield from _give_class_priority(view, facts)
    by_setting = {
        keys.PREEMPTIBLE: facts.settings.default_preemptible,
        keys.CAN_PREEMPT: facts.settings.default_can_preempt,
    }
    for key, value in by_setting.items():
        if value is not None and key not in view.labels:
            yield MetadataChange("labels", key, str(value).lower())
    if facts.ledger_entry is not None:
        yield from replacement_annotations.decide_changes(facts.ledger_entry, view, facts.settings)
    if facts.gang_statement is not None:
        yield from _inherit_from_gang(view, facts.gang_statement)
    yield from gate.decide_gate(pod, facts)
    yield from sidecar.decide_sidecar(pod, facts)


def _give_class_priority(view: PodView, facts: Facts) -> Iterator[SpecChange]:
    """Yield the PriorityClass of the pod's class, with what the API server has derived from it.

    The API server resolves the priority before it calls a webhook, and again afterwards. Without
    the value and the policy, it would then refuse the pod, because those that it wrote itself are
    not those of the new name.
    """
    given = known.class_priority_class(view, facts)
    if given is None or given.metadata.name == view.spec.priorityClassName:
        return
    yield SpecChange("priorityClassName", given.metadata.name or "")
    yield SpecChange("priority", given.value or 0)
    yield SpecChange("preemptionPolicy", given.preemptionPolicy or "PreemptLowerPriority")


def _default_toleration(priority_class: Resource) -> Iterator[MetadataChange]:
    """Yield the half that upstream would assume, so that it is visible.

    A class without a toleration stays as it is.
    """
    annotations = annotations_of(priority_class.metadata)
    minimum_key, seconds_key = toleration.annotation_keys(keys.TOLERATION_PREFIX)
    parsed = toleration.parse(annotations, priority_class.value or 0)
    if (minimum_key in annotations) == (seconds_key in annotations) or not isinstance(
        parsed, PreemptionToleration
    ):
        return
    defaults = {minimum_key: parsed.minimum_preemptable_priority, seconds_key: parsed.seconds}
    for key, value in defaults.items():
        if key not in annotations:
            yield MetadataChange("annotations", key, str(value))


def _inherit_from_gang(view: PodView, statement: GangStatement) -> Iterator[MetadataChange]:
    for key, value in gang_objects.inherited_annotations(view, statement).items():
        yield MetadataChange("annotations", key, value)


def _inherit_from_workload(group: Resource, facts: Facts) -> Iterator[MetadataChange]:
    inherited = pod_group.inherited_annotations(
        group.spec or Spec(), annotations_of(group.metadata), facts.workload_annotations
    )
    for key, value in inherited.items():
        yield MetadataChange("annotations", key, value)


def _drop_ledger(deployment: Resource) -> Iterator[AnnotationRemoval]:
    """Yield the annotations that a Deployment never needs, if it has them.

    `kubectl rollout undo` copies them from an earlier ReplicaSet. Without this, the Deployment's
    controller would write them over each newer ledger of the current ReplicaSet.
    """
    annotations = annotations_of(deployment.metadata)
    yield from (AnnotationRemoval(key) for key in KEPT_ON_REPLICA_SETS if key in annotations)


def _label_mark(pod: Resource, old: Resource | None) -> Iterator[MetadataChange]:
    """Yield our label for a new mark in another dialect, if it can be read.

    Only for a new one: without this, a label that a user removed to cancel would come back. And a
    mark with the label stays as it is: its author could not correct one that cannot be read.
    """
    labels, annotations = labels_of(pod.metadata), annotations_of(pod.metadata)
    is_readable = isinstance(mark.read(labels, annotations), mark.Mark)
    if keys.SOFT_EVICTION in labels or not is_readable:
        return
    if old is None or _marks(pod) != _marks(old):
        yield MetadataChange("labels", keys.SOFT_EVICTION, mark.MARKED)


def _marks(pod: Resource) -> tuple[str | None, str | None]:
    key = keys.KOORDINATOR_SOFT_EVICTION
    return labels_of(pod.metadata).get(key), annotations_of(pod.metadata).get(key)
