"""A scene, from objects of the API and `Facts` of their Namespaces. Pure: whoever has seen the objects calls it.

A pod is read when it, its Namespace, its PriorityClass or the policy changes. Gangs are what their pods say.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from reprieve_policy import facts as known
from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.config import koordinator, toleration, walltime
from reprieve_policy.config.namespace import ENFORCE, EXEMPT, OFF
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.toleration import Candidate, Toleration
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import disruption, membership, pod_group
from reprieve_policy.gangs.disruption import Mode
from reprieve_policy.gangs.pod_group import NativeGroup
from reprieve_policy.kube import pod_requests, quota, timestamp
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_policy.preemption import cost
from reprieve_policy.preemption.cost import Work

from . import pod_constraints, release
from .api_objects import Node, Pod, PodDisruptionBudget
from .snapshot import Budget, Group, GroupKey, Guest, Preemptor, Room, Scene, Taint, Tenant

HIGHEST_USER_PRIORITY = 1_000_000_000
"""Above are Kubernetes' own (`scheduling.HighestUserDefinablePriority`)."""

_SERVICE = "service"
_GUARDED_LABELS = frozenset({keys.PREEMPTION_CLASS, keys.PREEMPTIBLE, keys.SOFT_EVICTION})
_GUARDED_ANNOTATIONS = frozenset({keys.CHECKPOINT, keys.CHECKPOINT_HINT})
"""As `preemptions.reprieve.dev` has them in its `matchConditions`; a test compares them."""


def tenant_of(
    pod: Pod, facts: Facts, *, native: NativeGroup | None = None, job: Walltime | None = None, now: datetime
) -> Tenant:
    """Return a pod that has room; `native` is the PodGroup that it names, `job` its Job's walltime, as far as known."""
    view, metadata = pod.view, pod.metadata
    priority = pod_group.priority_of(_priority(pod, facts), native)
    found, going = membership.read(view), release.read(pod)
    tenant = Tenant(
        uid=metadata.uid or "",
        namespace=metadata.namespace or "",
        name=metadata.name or "",
        node=pod.spec.nodeName or "",
        priority=priority,
        # Never less: a scheduler that does not ask would not take it either.
        defence=max(priority, known.defended_with(view, priority, facts)),
        preemption_class=facts.settings.default_class,
        is_going=going is not None,
        goes_at=None if going is None else going.goes_at,
        is_told=going is not None and going.is_told,
        is_held=going is not None and going.is_held,
        is_deleted=going is not None and going.is_deleted,
        goes_for="" if going is None else release.goes_for(pod),
        lacks_priority_class=bool(pod.spec.priorityClassName) and known.priority_class_of(view, facts) is None,
        toleration=_candidate(pod, facts),
        work=Work(started_at=timestamp.parse(pod.status.startTime)),
        amounts=pod_requests.of_pod(pod.spec),
        ports=pod_constraints.ports_of(pod.spec),
        labels=view.labels,
        quota=_quota(pod, facts),
        group=_group_key(pod, found),
        mode=_mode(pod, found, native),
        gang_minimum=_minimum_kept(found, native),
        is_guarded=_is_guarded(pod, facts),
        repels=pod_constraints.repels(pod.spec, metadata.namespace or ""),
    )
    return tenant if facts.namespace.enforcement == OFF else _with_policy(tenant, pod, facts, job, now)


def preemptor_of(pod: Pod, facts: Facts, *, native: NativeGroup | None = None) -> Preemptor:
    """Return a pod that waits for a node, by itself; see `with_gang`."""
    view, found = pod.view, membership.read(pod.view)
    no_default = facts.settings.default_can_preempt is False
    policy = known.preemption_policy(view, facts)
    return Preemptor(
        # By its own priority, in a native group too: kube-scheduler 1.37 places no group whose pods have another (its
        # `validatePodGroup`), and asks only about pods that it places one by one, by theirs.
        guest=guest_of(pod, facts),
        namespace=pod.metadata.namespace or "",
        name=pod.metadata.name or "",
        preemption_class=known.effective_class(view, facts),
        is_exempt=is_exempt(pod, _priority(pod, facts)),
        never_preempts=policy == "Never",
        can_preempt=koordinator.can_preempt(view.labels, policy, disable_default_trigger_preemption=no_default),
        quota=_quota(pod, facts),
        group=_group_key(pod, found),
        gang_minimum=_minimum(found, native),
        labels=view.labels,
        nominated_node=pod.status.nominatedNodeName or None,
        devices=cost.devices_of(pod.spec)[1],
        walltime_seconds=pod.spec.activeDeadlineSeconds,
        scheduler=pod.spec.schedulerName,
        is_gated=bool(pod.spec.schedulingGates),
        depends_on_pods=pod_constraints.depends_on_pods(pod.spec),
    )


def is_exempt(pod: Pod, priority: int) -> bool:
    """True for one that no policy keeps from its victims: Kubernetes' own, or one of an exempt Namespace."""
    return priority > HIGHEST_USER_PRIORITY or pod.metadata.namespace in EXEMPT


def with_gang(preemptor: Preemptor, waiting: Iterable[Preemptor], placed: Iterable[Tenant]) -> Preemptor:
    """Return the preemptor with the rest of its gang: of those that wait, as many as it needs beside those that stay."""
    if preemptor.group is None:
        return preemptor
    mates = [other for other in waiting if other.group == preemptor.group and other.guest.uid != preemptor.guest.uid]
    coming = [other for other in mates if other.nominated_node is not None]
    rest = sorted((other for other in mates if other.nominated_node is None), key=lambda other: other.name)
    if preemptor.gang_minimum:
        # Without this, those of it that go, to be replaced by the ones that wait, would count beside them.
        staying = sum(not tenant.is_going for tenant in placed)
        rest = rest[: max(0, preemptor.gang_minimum - staying - len(coming) - 1)]
    return replace(
        preemptor,
        rest=tuple(other.guest for other in rest),
        mates=frozenset(other.guest.uid for other in coming),
        mates_nominated_to=tuple(sorted({other.nominated_node for other in coming if other.nominated_node})),
        devices=preemptor.devices + sum(other.devices for other in rest),
    )


def guest_of(pod: Pod, facts: Facts) -> Guest:
    """Return what a pod needs of a node."""
    return Guest(
        uid=pod.metadata.uid or "",
        priority=_priority(pod, facts),
        amounts=pod_requests.of_pod(pod.spec),
        ports=pod_constraints.ports_of(pod.spec),
        wish=pod_constraints.wish_of(pod.spec),
    )


def room_of(node: Node, tenants: Collection[Tenant] = (), nominees: Iterable[Guest] = ()) -> Room:
    """Return a node with those on it, and those who are to be."""
    return Room(
        name=node.metadata.name or "",
        allocatable=quota.read_amounts(node.status.allocatable or {}),
        labels=labels_of(node.metadata),
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints or ()),
        is_unschedulable=bool(node.spec.unschedulable),
        tenants=tuple(tenants),
        nominees=tuple(nominees),
    )


def budget_of(found: PodDisruptionBudget) -> Budget:
    """Return a PodDisruptionBudget."""
    return Budget(
        namespace=found.metadata.namespace or "",
        requirements=pod_constraints.requirements_of(found.spec.selector),
        allowed=found.status.disruptionsAllowed,
        disrupted=frozenset(found.status.disruptedPods or ()),
    )


def group_of(key: GroupKey, members: Collection[Tenant]) -> Group:
    """Return the gang of these pods: it goes as a whole where one of them says so."""
    return Group(
        key=key,
        mode=Mode.ALL if any(member.mode is Mode.ALL for member in members) else Mode.SINGLE,
        min_available=max((member.gang_minimum for member in members), default=0),
        members=tuple(members),
    )


def groups_of(tenants: Iterable[Tenant]) -> Mapping[GroupKey, Group]:
    """Return the gangs of all these pods."""
    members: dict[GroupKey, list[Tenant]] = {}
    for tenant in tenants:
        if tenant.group is not None:
            members.setdefault(tenant.group, []).append(tenant)
    return {key: group_of(key, pods) for key, pods in members.items()}


def scene_of(
    nodes: Iterable[Node],
    tenants: Collection[Tenant],
    waiting: Collection[Preemptor],
    budgets: Iterable[Budget],
    settings: PolicySettings,
    now: datetime,
) -> Scene:
    """Return the cluster, from all that is in it."""
    here: dict[str, list[Tenant]] = {}
    coming: dict[str, list[Guest]] = {}
    allowed: dict[str, list[Budget]] = {}
    for tenant in tenants:
        here.setdefault(tenant.node, []).append(tenant)
    for pending in waiting:
        if pending.nominated_node is not None:
            coming.setdefault(pending.nominated_node, []).append(pending.guest)
    for budget in budgets:
        allowed.setdefault(budget.namespace, []).append(budget)
    rooms = (room_of(node, here.get(name, ()), coming.get(name, ())) for node in nodes if (name := node.metadata.name))
    return Scene(
        now=now,
        rooms={room.name: room for room in rooms},
        budgets=allowed,
        groups=groups_of(tenants),
        settings=settings,
    )


def _with_policy(tenant: Tenant, pod: Pod, facts: Facts, job: Walltime | None, now: datetime) -> Tenant:
    """Return the tenant with what Reprieve's own policy says; without it, it is a pod as upstream knows them."""
    view, settings = pod.view, facts.settings
    plan = checkpoint_plan.read_leniently(view.annotations, settings)
    own = walltime.read(pod.status.startTime, pod.spec.activeDeadlineSeconds)
    bound = walltime.tightest((own, job), now)
    stake = cost.stake_of(view, plan, settings, facts.namespace.workload_type)
    own_class = known.effective_class(view, facts)
    return replace(
        tenant,
        preemption_class=own_class,
        is_non_preemptible=known.is_non_preemptible(view, facts),
        is_service=facts.namespace.workload_type == _SERVICE,
        stake=stake,
        work=Work(
            started_at=tenant.work.started_at,
            saved_at=timestamp.parse(view.annotations.get(keys.LAST_CHECKPOINT_AT)),
            walltime=bound,
        ),
        speaks=own_class != settings.default_class or plan.waits or stake.stated != 0 or bound is not None,
    )


def _priority(pod: Pod, facts: Facts) -> int:
    """Return a pod's priority; before the API server has resolved it, its PriorityClass's."""
    if pod.spec.priority is not None:
        return pod.spec.priority
    named = known.priority_class_of(pod.view, facts)
    return 0 if named is None else named.value or 0


def _candidate(pod: Pod, facts: Facts) -> Candidate:
    named = facts.priority_classes.get(pod.spec.priorityClassName or "")
    policy = None if named is None else toleration.parse(annotations_of(named.metadata), named.value or 0)
    conditions = pod.status.conditions or ()
    scheduled = (found for found in conditions if (found.type, found.status) == ("PodScheduled", "True"))
    since = next((found.lastTransitionTime for found in scheduled), None)
    return Candidate(
        has_priority_class=bool(pod.spec.priorityClassName),
        toleration=policy if isinstance(policy, Toleration) else None,
        scheduled_at=timestamp.parse(since),
    )


def _quota(pod: Pod, facts: Facts) -> quota.Key | None:
    found = facts.quotas.find(labels_of(pod.metadata), pod.metadata.namespace or "")
    return None if found is None else found.key


def _group_key(pod: Pod, found: membership.Gang | None) -> GroupKey | None:
    return None if found is None else GroupKey(pod.metadata.namespace or "", disruption.identity_of(found))


def goes_whole(pod: Pod, native: NativeGroup | None) -> bool:
    """True for one of a gang of which all go; `native`: the group that the pod names, where there is one."""
    return _mode(pod, membership.read(pod.view), native) is Mode.ALL


def _mode(pod: Pod, found: membership.Gang | None, native: NativeGroup | None) -> Mode:
    if found is None:
        return Mode.SINGLE
    mode = disruption.mode_of(found, pod.metadata)
    if mode is Mode.AS_ITS_GROUP_SAYS:
        return Mode.SINGLE if native is None else native.mode
    return mode


def _minimum_kept(found: membership.Gang | None, native: NativeGroup | None) -> int:
    """Return how many of the gang are not to be taken one by one: what itself says so, not a label beside it.

    Without this, a label that anybody may add to the pods of a Job would protect them.
    """
    if found is None or not (found.is_native or found.is_declared):
        return 0
    return _minimum(None if found.is_native else found, native)


def _is_guarded(pod: Pod, facts: Facts) -> bool:
    labels, annotations = labels_of(pod.metadata), annotations_of(pod.metadata)
    says = not (_GUARDED_LABELS.isdisjoint(labels) and _GUARDED_ANNOTATIONS.isdisjoint(annotations))
    return says and facts.namespace.enforcement == ENFORCE and pod.metadata.namespace not in EXEMPT


def _minimum(found: membership.Gang | None, native: NativeGroup | None) -> int:
    said = None if found is None else found.min_available
    placed_together = None if native is None else native.min_count
    return said or placed_together or 0
