"""Builds a snapshot from API objects and the `Facts` of their Namespaces. Pure: no I/O.

A pod is read when it, its Namespace, its PriorityClass or the policy changes. Gangs follow from
their pods.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from reprieve_policy import facts as known
from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.config import koordinator, toleration, walltime
from reprieve_policy.config.namespace import ENFORCE, EXEMPT, OFF
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.toleration import PreemptionToleration, VictimToleration
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import disruption, membership, pod_group
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.kube import conditions, pod_requests
from reprieve_policy.kube.limits import quota
from reprieve_policy.kube.limits.disruption_budgets import MAX_BUDGETS, PodDisruptionBudget
from reprieve_policy.kube.nodes import Node
from reprieve_policy.kube.objects import PodView, annotations_of, labels_of
from reprieve_policy.kube.pods import Pod
from reprieve_policy.kube.values import timestamp
from reprieve_policy.preemption import cost, first_refusal, loss
from reprieve_policy.preemption.cost import WorkProgress
from reprieve_policy.preemption.loss import LossInputs

from . import node_fit, release, selector_size
from .snapshot import (
    DisruptionBudget,
    GangInfo,
    GangKey,
    NodeInfo,
    PodDemand,
    Preemptor,
    ScheduledPod,
    Snapshot,
    Taint,
)

_GATED = "SchedulingGated"
_ZERO_TIME = datetime.min.replace(tzinfo=UTC)
"""Go's zero time."""
_SERVICE = "service"
_GUARDED_LABELS = frozenset({keys.PREEMPTION_CLASS, keys.PREEMPTIBLE, keys.SOFT_EVICTION})
_GUARDED_ANNOTATIONS = frozenset({keys.CHECKPOINT, keys.CHECKPOINT_HINT, keys.CLEANERS_BEFORE})
"""As in the `matchConditions` of `preemptions.reprieve.dev`; a test compares them."""


def scheduled_pod_of(
    pod: Pod,
    facts: Facts,
    *,
    native: PodGroupInfo | None = None,
    job_walltime: Walltime | None = None,
    now: datetime,
) -> ScheduledPod:
    """Return a pod on a node.

    `native` is the PodGroup that it names, `job_walltime` its Job's walltime, as far as known.
    """
    view, metadata = pod.view, pod.metadata
    priority = pod_group.priority_of(_priority(pod, facts), native)
    own_quota = _quota(pod, facts)
    gang = _gang_of(pod, own_quota)
    scheduled = ScheduledPod(
        uid=metadata.uid or "",
        namespace=metadata.namespace or "",
        name=metadata.name or "",
        node=pod.spec.nodeName or "",
        priority=priority,
        preemption_priority=_preemption_priority(view, priority, native, facts),
        preemption_class=facts.settings.default_class,
        release=release.read(pod),
        lacks_priority_class=bool(pod.spec.priorityClassName)
        and known.priority_class_of(view, facts) is None,
        toleration=_victim_toleration(pod, facts),
        loss_inputs=LossInputs(devices=cost.devices_of(pod.spec)[1]),
        progress=WorkProgress(started_at=timestamp.parse(pod.status.startTime)),
        # Also where no rule holds: a gang there protects its pods, too.
        refused_since=first_refusal.read(view.annotations, metadata.uid or ""),
        amounts=pod_requests.of_pod(pod.spec),
        ports=node_fit.host_ports_of(pod.spec),
        labels=view.labels,
        quota=own_quota,
        counts_against_min=known.counts_against_min(view, facts),
        gang=_gang_key(pod, gang),
        disruption_mode=_mode(pod, gang, native),
        gang_minimum=_protected_minimum(gang, native),
        is_guarded=_is_guarded(pod, facts),
        anti_affinity=node_fit.anti_affinity_of(pod.spec, metadata.namespace or ""),
    )
    return (
        scheduled
        if facts.namespace.enforcement == OFF
        else _with_policy(scheduled, pod, facts, job_walltime, now)
    )


def preemptor_of(pod: Pod, facts: Facts, *, native: PodGroupInfo | None = None) -> Preemptor:
    """Return a pod that waits for a node, by itself; see `with_gang`."""
    view, own_quota = pod.view, _quota(pod, facts)
    gang = _gang_of(pod, own_quota)
    no_default = facts.settings.default_can_preempt is False
    policy = known.preemption_policy(view, facts)
    return Preemptor(
        # By its own priority, in a native group too: kube-scheduler 1.37 places no group whose pods
        # have different priorities (`validatePodGroup`), and asks only about pods that it places
        # one by one.
        demand=pod_demand_of(pod, facts),
        namespace=pod.metadata.namespace or "",
        name=pod.metadata.name or "",
        preemption_class=known.effective_class(view, facts),
        is_exempt=is_exempt(pod, _priority(pod, facts)),
        never_preempts=policy == "Never",
        can_preempt=koordinator.can_preempt(
            view.labels, policy, disable_default_trigger_preemption=no_default
        ),
        quota=own_quota,
        counts_against_min=known.counts_against_min(view, facts),
        gang=_gang_key(pod, gang),
        gang_minimum=_minimum(gang, native),
        labels=view.labels,
        namespace_labels=facts.namespace.labels,
        nominated_node=pod.status.nominatedNodeName or None,
        devices=cost.devices_of(pod.spec)[1],
        walltime_seconds=pod.spec.activeDeadlineSeconds,
        scheduler=pod.spec.schedulerName,
        is_gated=bool(pod.spec.schedulingGates),
        unschedulable_since=_unschedulable_since(pod),
        depends_on_other_pods=node_fit.depends_on_other_pods(pod.spec),
        volumes_limit_nodes=node_fit.volumes_limit_nodes(pod.spec),
    )


def is_exempt(pod: Pod, priority: int) -> bool:
    """True for a system-critical or exempt pod: no policy restricts its victims."""
    return priority > known.HIGHEST_USER_PRIORITY or pod.metadata.namespace in EXEMPT


def with_gang(
    preemptor: Preemptor, waiting: Iterable[Preemptor], placed: Iterable[ScheduledPod]
) -> Preemptor:
    """Return the preemptor with as many pending members of its gang as it needs."""
    if preemptor.gang is None:
        return preemptor
    members = [
        other
        for other in waiting
        if other.gang == preemptor.gang and other.demand.uid != preemptor.demand.uid
    ]
    nominated_by_node = [other for other in members if other.nominated_node is not None]
    rest = sorted(
        (other for other in members if other.nominated_node is None), key=lambda other: other.name
    )
    if preemptor.gang_minimum:
        # Without this, leaving members would count beside the pending ones that replace them.
        staying = sum(not scheduled.is_leaving for scheduled in placed)
        rest = rest[: max(0, preemptor.gang_minimum - staying - len(nominated_by_node) - 1)]
    return replace(
        preemptor,
        pending_members=tuple(other.demand for other in rest),
        nominated_member_uids=frozenset(other.demand.uid for other in nominated_by_node),
        member_nominated_nodes=tuple(
            sorted({other.nominated_node for other in nominated_by_node if other.nominated_node})
        ),
        devices=preemptor.devices + sum(other.devices for other in rest),
    )


def pod_demand_of(pod: Pod, facts: Facts) -> PodDemand:
    """Return what a pod needs of a node."""
    return PodDemand(
        uid=pod.metadata.uid or "",
        priority=_priority(pod, facts),
        amounts=pod_requests.of_pod(pod.spec),
        ports=node_fit.host_ports_of(pod.spec),
        constraints=node_fit.scheduling_constraints_of(pod.spec),
    )


def node_info_of(
    node: Node, pods: Collection[ScheduledPod] = (), nominated: Iterable[PodDemand] = ()
) -> NodeInfo:
    """Return a node with its pods and the pods nominated to it."""
    return NodeInfo(
        name=node.metadata.name or "",
        allocatable=quota.read_amounts(node.status.allocatable or {}),
        labels=labels_of(node.metadata),
        taints=tuple(
            Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints or ()
        ),
        is_unschedulable=bool(node.spec.unschedulable),
        pods=tuple(pods),
        nominated_pods=tuple(nominated),
    )


def disruption_budget_of(budget: PodDisruptionBudget) -> DisruptionBudget:
    """Return a PodDisruptionBudget."""
    return DisruptionBudget(
        namespace=budget.metadata.namespace or "",
        requirements=node_fit.requirements_of(budget.spec.selector),
        disruptions_allowed=budget.status.disruptionsAllowed,
        disrupted_pods=frozenset(budget.status.disruptedPods or ()),
    )


_MAX_DISRUPTED_BYTES = 256 * 1024
"""Of the names of the pods evicted already: 2,000, of 64 characters each. The API server evicts no
pod beyond these."""


def usual_budget(budget: DisruptionBudget) -> DisruptionBudget | None:
    """Return what is kept of a budget; `None` if its selector is beyond any usual one.

    Such a budget counts as none. Without this, a user who creates a hundred budgets of 1.5 MB would
    fill the memory of the program that keeps them.
    """
    if selector_size.is_too_large(budget.requirements):
        return None
    if selector_size.count_bytes(budget.disrupted_pods) > _MAX_DISRUPTED_BYTES:
        # Pods that are evicted already count once more: the budget allows less, never more.
        return replace(budget, disrupted_pods=frozenset())
    return budget


_MAX_REQUIREMENTS = 1000
"""Of all selectors of a namespace's budgets together; each value counts as one."""


def usual_budgets(budgets: Sequence[DisruptionBudget]) -> Sequence[DisruptionBudget]:
    """Return the budgets of a namespace, or none if they are more than usual.

    Each of its pods is compared with all of them. Without this, a user who may create budgets would
    have a decision take seconds.
    """
    requirements = sum(
        max(1, len(requirement.values or ()))
        for budget in budgets
        for requirement in budget.requirements
    )
    are_usual = len(budgets) <= MAX_BUDGETS and requirements <= _MAX_REQUIREMENTS
    return budgets if are_usual else ()


def gang_info_of(key: GangKey, members: Collection[ScheduledPod]) -> GangInfo:
    """Return the gang of these pods: it is evicted as a unit if one of them says so."""
    return GangInfo(
        key=key,
        disruption_mode=DisruptionMode.ALL
        if any(member.disruption_mode is DisruptionMode.ALL for member in members)
        else DisruptionMode.SINGLE,
        min_available=max((member.gang_minimum for member in members), default=0),
        members=tuple(members),
    )


def gang_infos_of(pods: Iterable[ScheduledPod]) -> Mapping[GangKey, GangInfo]:
    """Return the gangs of all these pods."""
    members: dict[GangKey, list[ScheduledPod]] = {}
    for scheduled in pods:
        if scheduled.gang is not None:
            members.setdefault(scheduled.gang, []).append(scheduled)
    return {key: gang_info_of(key, pods) for key, pods in members.items()}


def snapshot_of(
    nodes: Iterable[Node],
    pods: Collection[ScheduledPod],
    waiting: Collection[Preemptor],
    budgets: Iterable[DisruptionBudget],
    settings: PolicySettings,
    now: datetime,
) -> Snapshot:
    """Return the snapshot of the cluster."""
    pods_by_node: dict[str, list[ScheduledPod]] = {}
    nominated_by_node: dict[str, list[PodDemand]] = {}
    budgets_by_namespace: dict[str, list[DisruptionBudget]] = {}
    for scheduled in pods:
        pods_by_node.setdefault(scheduled.node, []).append(scheduled)
    for pending in waiting:
        if pending.nominated_node is not None:
            nominated_by_node.setdefault(pending.nominated_node, []).append(pending.demand)
    for budget in budgets:
        budgets_by_namespace.setdefault(budget.namespace, []).append(budget)
    node_infos = (
        node_info_of(node, pods_by_node.get(name, ()), nominated_by_node.get(name, ()))
        for node in nodes
        if (name := node.metadata.name)
    )
    return Snapshot(
        now=now,
        nodes={node_info.name: node_info for node_info in node_infos},
        budgets={
            namespace: usual
            for namespace, found in budgets_by_namespace.items()
            if (usual := usual_budgets(found))
        },
        gangs=gang_infos_of(pods),
        settings=settings,
    )


def _with_policy(
    scheduled: ScheduledPod, pod: Pod, facts: Facts, job_walltime: Walltime | None, now: datetime
) -> ScheduledPod:
    """Return the pod with Reprieve's own policy; without it, it is as upstream knows it."""
    view, settings = pod.view, facts.settings
    plan = checkpoint_plan.read_leniently(view.annotations, settings)
    own = walltime.read(pod)
    bound = walltime.tightest((own, job_walltime), now)
    cost_inputs = cost.cost_inputs_of(view, plan, settings, facts.namespace.workload_type)
    own_class = known.effective_class(view, facts)
    return replace(
        scheduled,
        preemption_class=own_class,
        is_non_preemptible=known.is_non_preemptible(view, facts),
        is_service=facts.namespace.workload_type == _SERVICE,
        cost_inputs=cost_inputs,
        loss_inputs=loss.loss_inputs_of(view, plan, settings),
        progress=WorkProgress(
            started_at=scheduled.progress.started_at,
            saved_at=timestamp.parse(view.annotations.get(keys.LAST_CHECKPOINT_AT)),
            walltime=bound,
        ),
        states_preferences=own_class != settings.default_class
        or plan.gives_notice
        or cost_inputs.stated != 0
        or bound is not None,
    )


def _preemption_priority(
    view: PodView, priority: int, native: PodGroupInfo | None, facts: Facts
) -> int:
    """Return the highest of a pod's priority, its preemption priority and that of its group.

    Never below the priority: a scheduler that does not ask Reprieve would not take it either.
    """
    own = known.preemption_priority_of(view, priority, facts)
    if native is None:
        return max(priority, own)
    groups_class = known.priority_class_named(native.priority_class, facts)
    annotated = native.preemption_priority_class
    return max(
        priority, own, known.preemption_priority_from(priority, annotated, groups_class, facts)
    )


def _priority(pod: Pod, facts: Facts) -> int:
    """Return a pod's priority; before the API server resolves it, its PriorityClass's."""
    if pod.spec.priority is not None:
        return pod.spec.priority
    named = known.priority_class_of(pod.view, facts)
    return 0 if named is None else named.value or 0


def _victim_toleration(pod: Pod, facts: Facts) -> VictimToleration:
    named = facts.priority_classes.get(pod.spec.priorityClassName or "")
    policy = (
        None
        if named is None
        else toleration.parse(annotations_of(named.metadata), named.value or 0)
    )
    return VictimToleration(
        has_priority_class=bool(pod.spec.priorityClassName),
        policy=policy if isinstance(policy, PreemptionToleration) else None,
        scheduled_at=_scheduled_at(pod),
    )


def _scheduled_at(pod: Pod) -> datetime | None:
    """Return when the pod was scheduled, `None` if it is not; without a time, as upstream, year 1.

    Without this, a client that writes the condition without its time would protect a pod for ever.
    """
    scheduled = conditions.find_true(pod.status.conditions, "PodScheduled")
    if scheduled is None:
        return None
    return timestamp.parse(scheduled.lastTransitionTime) or _ZERO_TIME


def _unschedulable_since(pod: Pod) -> datetime | None:
    """Return since when the scheduler has found no node for the pod, `None` if it was not asked.

    The condition keeps its time as the last scheduling gate goes. The gate of gangs writes when it
    has let a pod go; with gates of others, the time at the gate counts, too.
    """
    found = conditions.find_false(pod.status.conditions, "PodScheduled")
    if found is None or found.reason == _GATED:
        return None
    since = timestamp.parse(found.lastTransitionTime)
    released_at = timestamp.parse(annotations_of(pod.metadata).get(keys.GANG_RELEASED_AT))
    return since if since is None or released_at is None else max(since, released_at)


def _quota(pod: Pod, facts: Facts) -> quota.QuotaKey | None:
    own_quota = facts.quotas.find(labels_of(pod.metadata), pod.metadata.namespace or "")
    return None if own_quota is None else own_quota.key


def gang_without_quota(pod: Pod) -> GangKey | None:
    """Return the gang of a pod as if no quota admitted its Job as a whole."""
    return _gang_key(pod, _gang_of(pod, None))


def _gang_of(pod: Pod, own_quota: quota.QuotaKey | None) -> membership.Gang | None:
    """Return the gang that counts in decisions.

    The pods of a Job that declares no gang work without each other: each is placed and evicted by
    itself, unless they say that they are evicted as a unit. With a quota they are one gang, because
    document 000 admits a job as a whole.
    """
    gang = membership.read(pod.view)
    is_one_by_one = (
        gang is not None
        and gang.is_batch_job
        and own_quota is None
        and _mode(pod, gang, None) is DisruptionMode.SINGLE
    )
    return None if is_one_by_one else gang


def _gang_key(pod: Pod, gang: membership.Gang | None) -> GangKey | None:
    return (
        None
        if gang is None
        else GangKey(pod.metadata.namespace or "", disruption.identity_of(gang))
    )


def evicted_as_a_unit(pod: Pod, native: PodGroupInfo | None) -> bool:
    """True for a pod of a gang evicted as a unit; `native`: the PodGroup that it names, if any."""
    return _mode(pod, membership.read(pod.view), native) is DisruptionMode.ALL


def _mode(pod: Pod, gang: membership.Gang | None, native: PodGroupInfo | None) -> DisruptionMode:
    if gang is None:
        return DisruptionMode.SINGLE
    mode = disruption.disruption_mode_of(gang, pod.metadata)
    if mode is DisruptionMode.FROM_POD_GROUP:
        return DisruptionMode.SINGLE if native is None else native.disruption_mode
    return mode


def _protected_minimum(gang: membership.Gang | None, native: PodGroupInfo | None) -> int:
    """Return how many of the gang are protected from one-by-one disruption."""
    if gang is None:
        return 0
    return _minimum(None, native) if gang.is_native else disruption.protected_minimum(gang)


def _is_guarded(pod: Pod, facts: Facts) -> bool:
    labels, annotations = labels_of(pod.metadata), annotations_of(pod.metadata)
    is_relevant = not (
        _GUARDED_LABELS.isdisjoint(labels) and _GUARDED_ANNOTATIONS.isdisjoint(annotations)
    )
    return (
        is_relevant
        and facts.namespace.enforcement == ENFORCE
        and pod.metadata.namespace not in EXEMPT
    )


def _minimum(gang: membership.Gang | None, native: PodGroupInfo | None) -> int:
    own_minimum = None if gang is None else gang.min_available
    placed_together = None if native is None else native.min_count
    return own_minimum or placed_together or 0
