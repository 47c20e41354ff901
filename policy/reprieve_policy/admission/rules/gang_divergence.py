"""The pods of one gang agree on the fields that decide about their preemption.

Checked: whether they are preemptible and can preempt, class, priority, preemption priority, the
gang's `min-available` and size, and its disruption mode, unless that is what the JobSet or PodGroup
of the pod states, which may change or go while old pods live, or they cannot be read. A pod is
compared with the gang's living members when it is created or joins; the templates of one object are
compared with each other. The pods of a JobSet or LeaderWorkerSet are one gang, too, but an
undeclared one: a difference is warned of, and their pods are not compared. Which member comes first
does not matter.
A change of a template is warned of: the pods of a rollout would differ from those that it replaces
one by one, so the workload has to be scaled to 0 in between. After creation protection may only
fall, and falls one pod after another: that is not refused, nor is what two replicas of the webhooks
admit at the same moment. The operator reports what is left, by Event, metric and, on a native
PodGroup, the condition `PodsNotMatchingPriority`.

Why: a gang is preempted as a whole or not at all. One member that may not be a victim, or that is
not preempted while the others are, makes the preemption of the others useless.

Source: documents 000 ("one job's pods should be homogeneous"), 003 ("priority divergence") and 004
(`min-available`). The pods of a batch Job are all of one template, and are not compared.
"""

from collections.abc import Iterator, Mapping

from reprieve_policy.facts import Facts, GangTraits
from reprieve_policy.gangs import divergence, gang_objects, membership
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.kube.objects import PodView, Resource, pod_views
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:
    """Compare a pod with its gang, or the templates of one object with each other."""
    first: dict[tuple[str, str], GangTraits] = {}
    found: list[Violation] = []
    warnings: list[str] = []
    for view in pod_views(resource):
        own = _gang_of(view, resource)
        if own is None or not (own.is_declared or view.is_template):
            continue
        stated = divergence.traits_of(view, own, facts)
        traits = _as_pods_have_them(stated, resource) if view.is_template else stated
        rest = (
            first.setdefault(own.key, traits) if view.is_template else _rest_of(view, traits, facts)
        )
        if rest is not None and rest != traits and own.is_declared:
            found.extend(_differences(view, traits, rest, own.name))
        elif rest is not None and rest != traits:
            # Without this, installing the webhooks would refuse a driver and workers of different
            # priorities.
            names = divergence.differences(traits, rest)
            warnings.extend(
                f"{view.prefix}metadata: {divergence.TRAIT_LABELS[name]} differs within the gang"
                for name in names
            )
        # A LeaderWorkerSet replaces a whole group at a time.
        if (
            own.is_declared
            and view.is_template
            and old is not None
            and _is_changed(view, own, stated, old, facts)
        ):
            warnings.append(
                f"{view.prefix}metadata: new pods of the gang are refused while old ones live"
            )
    return (
        Verdict(violations=tuple(found), warnings=tuple(warnings))
        if found or warnings
        else NO_FINDINGS
    )


def _as_pods_have_them(traits: GangTraits, resource: Resource) -> GangTraits:
    """Return a template's traits with what its pods get from the object, such as a JobSet."""
    mode = traits.disruption_mode or gang_objects.stated_mode(resource)
    return traits._replace(disruption_mode=mode)


def _rest_of(view: PodView, traits: GangTraits, facts: Facts) -> GangTraits | None:
    """Return the traits of the pod's gang, with its own mode where an object of the gang states it.

    Without this, a change of a PodGroup's annotation would refuse every pod that replaces an old
    one, and so would a PodGroup that cannot be read now, or is gone: a new pod gets no mode from
    it.
    """
    rest, statement = facts.gang_traits, facts.gang_statement
    if rest is None:
        return rest
    if statement is None:
        is_own_mode = bool(traits.disruption_mode) or not gang_objects.named_by(view)
    else:
        is_own_mode = statement.is_known and statement.disruption_mode != traits.disruption_mode
    if is_own_mode:
        return rest
    return rest._replace(disruption_mode=traits.disruption_mode)


def _is_changed(view: PodView, own: Gang, traits: GangTraits, old: Resource, facts: Facts) -> bool:
    """True if a rollout would make pods that differ from those that it replaces one by one."""
    before = next((found for found in pod_views(old) if found.prefix == view.prefix), None)
    gang_before = None if before is None else _gang_of(before, old)
    if before is None or gang_before is None or gang_before.key != own.key:
        return False
    return divergence.traits_of(before, gang_before, facts) != traits


def _gang_of(view: PodView, resource: Resource) -> Gang | None:
    """Return the gang of a pod, or of a template's pods by their controller's labels."""
    own = membership.read(view)
    if own is not None or not view.is_template:
        return own
    dialect = next(
        (dialect for prefix, dialect in _LABELLED_AS.items() if view.prefix.startswith(prefix)),
        None,
    )
    name = resource.metadata.name or ""
    return None if dialect is None else Gang(dialect=dialect, name=name, is_declared=False)


_LABELLED_AS: Mapping[str, str] = {
    "spec.replicatedJobs[": "jobset",
    "spec.leaderWorkerTemplate.": "leader-worker-set",
}
"""Dialects by template path of JobSet and LeaderWorkerSet: rules do not see their kinds."""


def _differences(
    view: PodView, traits: GangTraits, rest: GangTraits, gang_name: str
) -> Iterator[Violation]:
    for name in divergence.differences(traits, rest):
        yield divergence.violation(view, name, traits, rest, gang_name)
