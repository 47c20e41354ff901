"""The pods of one gang agree; which of them comes first does not matter."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy import keys
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts, GangStatement, GangTraits
from reprieve_policy.gangs import divergence, membership
from reprieve_policy.kube import kinds
from reprieve_policy.kube.objects import (
    ObjectMeta,
    PodTemplate,
    Resource,
    TemplatedResource,
    pod_views,
)
from reprieve_testing.objects.builders import PodBuilder, a_pod, a_priority_class

CLASS = f"metadata.labels[{keys.PREEMPTION_CLASS}]"
PREEMPTIBLE = f"metadata.labels[{keys.PREEMPTIBLE}]"
CAN_PREEMPT = f"metadata.labels[{keys.CAN_PREEMPT}]"
DEFENCE = f"metadata.annotations[{keys.PREEMPTION_PRIORITY_CLASS}]"
GANG = f"metadata.annotations[{keys.KOORDINATOR_GANG}]"
MINIMUM = f"metadata.annotations[{keys.KOORDINATOR_MIN_AVAILABLE}]"
TOTAL = f"metadata.annotations[{keys.KOORDINATOR_TOTAL}]"
MODE = f"metadata.annotations[{keys.DISRUPTION_MODE}]"
REST = 'as in the rest of gang "a"'
CLASSES = {
    "high": a_priority_class("high").worth(1000).build(),
    "defended": a_priority_class("defended").worth(0).defended_as("high").build(),
}
FACTS = Facts(priority_classes=CLASSES, settings=PolicySettings(max_preemption_priority_lift=1000))


def traits(pod: PodBuilder, facts: Facts = FACTS) -> GangTraits:
    view = next(pod_views(pod.build()))
    own = membership.read(view)
    assert own is not None
    return divergence.traits_of(view, own, facts)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A new pod, a member of its gang, and what is refused."""

    pod: PodBuilder
    rest: PodBuilder
    refused: tuple[str, ...] = ()
    facts: Facts = field(default=FACTS)


MEMBER = a_pod().in_koordinators_gang("a", 2, 2)
CASES = {
    "pods with the same values": Case(pod=MEMBER, rest=MEMBER),
    "an explicit default is no difference": Case(
        pod=MEMBER.in_class(4)
        .labelled(keys.PREEMPTIBLE, "true")
        .labelled(keys.CAN_PREEMPT, "true"),
        rest=MEMBER,
    ),
    "two dialects of one gang do not diverge": Case(
        pod=a_pod().in_gang("a"), rest=a_pod().in_koordinators_gang("a")
    ),
    "another class": Case(
        pod=MEMBER.in_class(5),
        rest=MEMBER,
        refused=(f'{CLASS}: Invalid value: "5": must be "4", {REST}',),
    ),
    "a non-preemptible pod in a preemptible gang": Case(
        pod=MEMBER.labelled(keys.PREEMPTIBLE, "false"),
        rest=MEMBER,
        refused=(f'{PREEMPTIBLE}: Invalid value: "false": must be "true", {REST}',),
    ),
    "a pod that may not preempt": Case(
        pod=MEMBER.labelled(keys.CAN_PREEMPT, "false"),
        rest=MEMBER,
        refused=(f'{CAN_PREEMPT}: Invalid value: "false": must be "true", {REST}',),
    ),
    "another priority, which is one difference": Case(
        pod=MEMBER.with_priority(1000, "high"),
        rest=MEMBER,
        refused=(f'spec.priority: Invalid value: "1000": must be "0", {REST}',),
    ),
    "another preemption priority": Case(
        pod=MEMBER.defended_as("high"),
        rest=MEMBER,
        refused=(f'{DEFENCE}: Invalid value: "1000": must be "0", {REST}',),
    ),
    "a defence that its PriorityClass gives": Case(
        pod=MEMBER.with_priority(0, "defended"),
        rest=MEMBER,
        refused=(f'{DEFENCE}: Invalid value: "1000": must be "0", {REST}',),
    ),
    "another minimum and size": Case(
        pod=a_pod().in_koordinators_gang("a", 3, 3),
        rest=MEMBER,
        refused=(
            f'{MINIMUM}: Invalid value: "3": must be "2", {REST}',
            f'{TOTAL}: Invalid value: "3": must be "2", {REST}',
        ),
    ),
    "no minimum and size": Case(
        pod=a_pod().in_koordinators_gang("a"),
        rest=MEMBER,
        refused=(
            f'{GANG}: Required value: min-available must be "2", {REST}',
            f'{GANG}: Required value: size must be "2", {REST}',
        ),
    ),
    "a minimum and size where the others have none": Case(
        pod=MEMBER,
        rest=a_pod().in_koordinators_gang("a"),
        refused=(
            f'{MINIMUM}: Invalid value: "2": must be unset, {REST}',
            f'{TOTAL}: Invalid value: "2": must be unset, {REST}',
        ),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_new_pod_agrees_with_the_rest_of_its_gang(case: Case) -> None:
    facts = replace(case.facts, gang_traits=traits(case.rest, case.facts))
    verdict = decide_admission(case.pod.build(), None, facts)
    assert tuple(str(violation) for violation in verdict.violations) == case.refused


STATED = {
    "its own mode": ("pod", None, (f'{MODE}: Invalid value: "pod": must be unset, {REST}',)),
    "a mode that its PodGroup states": ("pod", GangStatement("pod"), ()),
    "a mode while its PodGroup cannot be read": ("pod", GangStatement(is_known=False), ()),
    "another mode than its PodGroup states": (
        "pod",
        GangStatement("gang"),
        (f'{MODE}: Invalid value: "pod": must be unset, {REST}',),
    ),
}


@pytest.mark.parametrize(("mode", "statement", "refused"), STATED.values(), ids=STATED)
def test_a_pod_has_the_mode_of_its_pod_group_while_old_pods_have_another(
    mode: str, statement: GangStatement | None, refused: tuple[str, ...]
) -> None:
    facts = replace(FACTS, gang_traits=traits(MEMBER), gang_statement=statement)
    pod = MEMBER.annotated(keys.DISRUPTION_MODE, mode).build()
    assert tuple(map(str, decide_admission(pod, None, facts).violations)) == refused


def test_a_pod_without_a_mode_is_accepted_once_the_pod_group_that_stated_one_is_gone() -> None:
    member = a_pod().in_gang("a")
    rest = traits(member.annotated(keys.DISRUPTION_MODE, "pod"))
    facts = replace(FACTS, gang_traits=rest)
    assert decide_admission(member.build(), None, facts).is_allowed
    # No PodGroup could have stated it: this gang is named by an annotation.
    rest = traits(MEMBER.annotated(keys.DISRUPTION_MODE, "pod"))
    verdict = decide_admission(MEMBER.build(), None, replace(FACTS, gang_traits=rest))
    assert list(map(str, verdict.violations)) == [
        f'{MODE}: Required value: disruption mode must be "pod", {REST}'
    ]


def test_without_facts_about_the_gang_no_pod_is_refused() -> None:
    assert decide_admission(MEMBER.in_class(5).build(), None, FACTS).is_allowed


def test_a_pod_without_a_gang_is_not_compared() -> None:
    assert decide_admission(
        a_pod().in_class(5).build(), None, replace(FACTS, gang_traits=traits(MEMBER))
    ).is_allowed


def test_a_pod_that_joins_a_gang_agrees_with_the_rest() -> None:
    joining = MEMBER.in_class(5)
    facts = replace(FACTS, gang_traits=traits(MEMBER.in_class(3)))
    for before in (a_pod().in_class(5), a_pod().in_class(5).in_koordinators_gang("b", 2, 2)):
        verdict = decide_admission(joining.build(), before.build(), facts)
        assert [str(found) for found in verdict.violations] == [
            f'{CLASS}: Invalid value: "5": must be "3", {REST}'
        ]


def of_templates(**templates: PodBuilder) -> Resource:
    """Return an object of another project that makes pods of several templates; `name__0__x` stands
    at `spec.name[0].x.`.
    """
    found = []
    for place, pod in templates.items():
        made = pod.in_template_of("Job").spec
        assert made is not None
        assert made.template is not None
        found.append(
            (
                f"spec.{place.replace('__0', '[0]').replace('__1', '[1]').replace('__', '.')}.",
                made.template,
            )
        )
    return TemplatedResource(
        kind=kinds.CUSTOM, metadata=ObjectMeta(name="a"), templates=tuple(found)
    )


def messages_about(resource: Resource) -> list[str]:
    return [str(found) for found in decide_admission(resource, None, FACTS).violations]


def test_the_templates_of_one_object_are_compared_without_any_facts() -> None:
    workers = f'spec.workers.{CLASS}: Invalid value: "5": must be "4", {REST}'
    assert messages_about(of_templates(head=MEMBER, workers=MEMBER.in_class(5))) == [workers]


def test_templates_of_different_gangs_or_without_a_gang_are_not_compared() -> None:
    other = a_pod().in_koordinators_gang("b", 1, 1).in_class(5)
    assert messages_about(of_templates(head=MEMBER, workers=other, rest=a_pod().in_class(3))) == []


def test_templates_of_a_jobset_and_of_a_leader_worker_set_are_not_compared() -> None:
    other = a_pod().in_class(5)
    jobset = of_templates(replicatedJobs__0__template=a_pod(), replicatedJobs__1__template=other)
    group = of_templates(
        leaderWorkerTemplate__leaderTemplate=other, leaderWorkerTemplate__workerTemplate=a_pod()
    )
    for made, path in (
        (jobset, "replicatedJobs[1].template"),
        (group, "leaderWorkerTemplate.workerTemplate"),
    ):
        verdict = decide_admission(made, None, FACTS)
        assert verdict.is_allowed
        assert f"spec.{path}.metadata: class differs within the gang" in verdict.warnings


def test_templates_have_the_mode_of_their_jobset_where_they_state_none() -> None:
    stated = {keys.DISRUPTION_MODE: "pod"}
    made = of_templates(
        replicatedJobs__0__template=a_pod().annotated(keys.DISRUPTION_MODE, "pod"),
        replicatedJobs__1__template=a_pod(),
    )
    assert isinstance(made, TemplatedResource)
    differs = "spec.replicatedJobs[1].template.metadata: disruption mode differs within the gang"
    assert decide_admission(made, None, FACTS).warnings == (differs,)
    jobset = replace(
        made,
        metadata=ObjectMeta(name="a", annotations=stated),
        upstream_kind=("jobset.x-k8s.io", "JobSet"),
    )
    assert decide_admission(jobset, None, FACTS).is_empty


GENERATED = {
    "a JobSet's": a_pod().labelled(keys.JOBSET, "a"),
    "a Volcano Job's": a_pod()
    .annotated(keys.VOLCANO_GROUP, "a")
    .annotated(keys.VOLCANO_TASK, "worker"),
    "a pod group of Kueue": a_pod()
    .labelled(keys.KUEUE_GROUP, "a")
    .annotated(keys.KUEUE_PARENT, "ReplicaSet"),
}


@pytest.mark.parametrize("member", GENERATED.values(), ids=GENERATED)
def test_a_pod_of_an_undeclared_gang_is_not_compared(member: PodBuilder) -> None:
    verdict = decide_admission(
        member.in_class(5).build(), None, replace(FACTS, gang_traits=traits(member))
    )
    assert verdict.is_empty


def test_a_template_is_not_compared_with_the_pods_that_it_replaces() -> None:
    template = MEMBER.in_class(5).in_template_of("Deployment")
    assert template.spec is not None
    assert isinstance(template.spec.template, PodTemplate)
    assert decide_admission(template, None, replace(FACTS, gang_traits=traits(MEMBER))).is_allowed


CHANGES = {
    "another class": (MEMBER.in_class(5), MEMBER, True),
    "no gang": (MEMBER.labelled("app", "x"), MEMBER, False),
    "another gang": (MEMBER.in_class(5), a_pod().in_koordinators_gang("b", 2, 2), False),
    "a rollout that adds a gang": (MEMBER.in_class(5), a_pod(), False),
}


@pytest.mark.parametrize(("after", "before", "is_warned"), CHANGES.values(), ids=CHANGES)
def test_a_rollout_that_differs_from_the_replaced_pods_causes_a_warning(
    after: PodBuilder, before: PodBuilder, *, is_warned: bool
) -> None:
    verdict = decide_admission(
        after.in_template_of("StatefulSet"), before.in_template_of("StatefulSet"), FACTS
    )
    assert verdict.is_allowed
    warning = "spec.template.metadata: new pods of the gang are refused while old ones live"
    assert (warning in verdict.warnings) is is_warned


def test_a_new_template_of_an_object_replaces_no_other() -> None:
    before = of_templates(head=MEMBER)
    after = of_templates(head=MEMBER, workers=MEMBER)
    assert decide_admission(after, before, FACTS).is_empty


def test_a_leader_worker_set_replaces_whole_gangs() -> None:
    before = of_templates(leaderWorkerTemplate__workerTemplate=a_pod())
    after = of_templates(leaderWorkerTemplate__workerTemplate=a_pod().in_class(5))
    assert decide_admission(after, before, FACTS).is_empty


def any_pod(
    preemption_class: int, priority: int, preemptible: str, minimum: int | None
) -> PodBuilder:
    pod = (
        a_pod()
        .in_class(preemption_class)
        .with_priority(priority)
        .in_koordinators_gang("a", minimum)
    )
    return pod.labelled(keys.PREEMPTIBLE, preemptible) if preemptible else pod


MEMBERS = st.builds(
    any_pod,
    st.sampled_from((3, 4)),
    st.sampled_from((0, 1000)),
    st.sampled_from(("", "true", "false")),
    st.sampled_from((None, 2)),
)


def admitted(pods: Sequence[PodBuilder]) -> list[PodBuilder]:
    """Create pods one after another, and return those that are admitted."""
    living: list[PodBuilder] = []
    for pod in pods:
        facts = replace(FACTS, gang_traits=traits(living[0])) if living else FACTS
        if decide_admission(pod.build(), None, facts).is_allowed:
            living.append(pod)
    return living


@given(
    st.lists(MEMBERS, min_size=1, max_size=5).flatmap(
        lambda pods: st.tuples(st.just(pods), st.permutations(pods))
    )
)
def test_the_order_of_creation_does_not_matter(
    orders: tuple[list[PodBuilder], list[PodBuilder]],
) -> None:
    one, other = (admitted(pods) for pods in orders)
    everything = len(orders[0])
    assert (len(one) == everything) == (len(other) == everything)
    for living in (one, other):
        assert len({traits(pod) for pod in living}) == 1
