"""Which nodes a non-preemptible workload selects, and the message if they are lent."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from reprieve_policy import keys
from reprieve_policy.admission.review import decide_admission
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.preemption_class import ClassSet
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.keys import HOME_NAMESPACE
from reprieve_policy.kube.objects import Affinity, NodeAffinity, NodeToleration, Resource, Spec
from reprieve_testing.objects.builders import PodBuilder, a_pod

ANY_CLASS = NamespacePolicy(allowed_classes=ClassSet(frozenset(range(11))))
WARNS = Facts(namespace=ANY_CLASS)
REFUSES = Facts(
    namespace=ANY_CLASS, settings=PolicySettings(non_preemptible_on_borrowed_nodes="refuse")
)
CRITICAL = a_pod().in_class(10)

SELECTOR = f"spec.nodeSelector[{HOME_NAMESPACE}]"
AFFINITY = "spec.affinity.nodeAffinity"


def taint(value: str = "", *, operator: str = "", key: str = HOME_NAMESPACE) -> NodeToleration:
    return NodeToleration(key=key, operator=operator, value=value)


def requiring(
    operator: str, *values: str, key: str = HOME_NAMESPACE
) -> tuple[str, str, Sequence[str]]:
    return key, operator, values


ASKS = {
    "nothing": (CRITICAL, ()),
    "its own nodes": (CRITICAL.on_nodes_of("team"), ()),
    "another team's nodes": (CRITICAL.on_nodes_of("lender"), (SELECTOR,)),
    "its own nodes, by affinity": (CRITICAL.on_nodes_where(requiring("In", "team")), ()),
    "another team's nodes, by affinity": (
        CRITICAL.on_nodes_where(requiring("In", "lender")),
        (AFFINITY,),
    ),
    "its own or another team's nodes, in one term": (
        CRITICAL.on_nodes_where(requiring("In", "team", "lender")),
        (AFFINITY,),
    ),
    "nodes of any Namespace": (CRITICAL.on_nodes_where(requiring("Exists")), (AFFINITY,)),
    "its own or another team's nodes, in two terms": (
        CRITICAL.on_nodes_where(requiring("In", "team"), requiring("In", "lender")),
        (AFFINITY,),
    ),
    "nodes of no Namespace": (CRITICAL.on_nodes_where(requiring("DoesNotExist")), ()),
    "nodes with another label": (
        CRITICAL.on_nodes_where(requiring("In", "lender", key="zone")),
        (),
    ),
    "an empty affinity": (
        replace(CRITICAL, resource=replace(CRITICAL.resource, spec=Spec(affinity=Affinity()))),
        (),
    ),
    "an affinity that requires nothing": (
        replace(
            CRITICAL,
            resource=replace(
                CRITICAL.resource, spec=Spec(affinity=Affinity(nodeAffinity=NodeAffinity()))
            ),
        ),
        (),
    ),
    "a toleration of another team's taint": (
        CRITICAL.tolerating(taint("lender")),
        ("spec.tolerations[0]",),
    ),
    "a toleration of its own taint": (CRITICAL.tolerating(taint("team", operator="Equal")), ()),
    "a toleration of the taint of any Namespace": (
        CRITICAL.tolerating(taint("x", key="gpu"), taint(operator="Exists")),
        ("spec.tolerations[1]",),
    ),
    "a toleration of every taint": (
        CRITICAL.tolerating(taint(operator="Exists", key="")),
        ("spec.tolerations[0]",),
    ),
    "a toleration of every taint, on its own nodes": (
        CRITICAL.on_nodes_of("team").tolerating(taint(operator="Exists", key="")),
        (),
    ),
    "a toleration of every taint, on its own nodes by affinity": (
        CRITICAL.on_nodes_where(requiring("In", "team")).tolerating(
            taint(operator="Exists", key="")
        ),
        (),
    ),
}


@pytest.mark.parametrize(("pod", "paths"), ASKS.values(), ids=ASKS)
def test_a_non_preemptible_pod_that_requests_borrowed_nodes_by(
    pod: PodBuilder, paths: tuple[str, ...]
) -> None:
    warned, refused = (decide_admission(pod.build(), None, facts) for facts in (WARNS, REFUSES))
    assert warned.violations == ()
    assert warned.warnings == tuple(f"{path}: non-preemptible on borrowed nodes" for path in paths)
    assert [(violation.path, violation.rule) for violation in refused.violations] == [
        (path, "borrowed-nodes") for path in paths
    ]


def test_a_pod_may_not_get_the_toleration_after_it_was_admitted() -> None:
    (found,) = decide_admission(
        CRITICAL.tolerating(taint("lender")).build(), CRITICAL.build(), REFUSES
    ).violations
    assert (found.path, found.rule) == ("spec.tolerations[0]", "borrowed-nodes")


BORROWING = a_pod().on_nodes_of("lender")
PROTECTED = {
    "class 10": (BORROWING.in_class(10), True),
    "class 7 without a checkpoint": (BORROWING.in_class(7), True),
    "class 7 with a checkpoint": (BORROWING.in_class(7).with_hint(), False),
    "class 6 without a checkpoint": (BORROWING.in_class(6), False),
    "Koordinator's label preemptible is false": (
        BORROWING.labelled(keys.PREEMPTIBLE, "false"),
        True,
    ),
    "Koordinator's label preemptible is true": (
        BORROWING.labelled(keys.PREEMPTIBLE, "true"),
        False,
    ),
}


@pytest.mark.parametrize(("pod", "is_refused"), PROTECTED.values(), ids=PROTECTED)
def test_borrowed_nodes_are_refused_to_a_pod_of(pod: PodBuilder, *, is_refused: bool) -> None:
    assert decide_admission(pod.build(), None, REFUSES).is_allowed is not is_refused


def test_a_sensitive_workload_always_counts_as_protected() -> None:
    sensitive = NamespacePolicy(
        workload_type="sensitive", allowed_classes=ClassSet(frozenset({10}))
    )
    assert not decide_admission(
        BORROWING.build(), None, replace(REFUSES, namespace=sensitive)
    ).is_allowed


def test_a_template_is_refused_before_its_pods_are_created() -> None:
    (found,) = decide_admission(
        BORROWING.in_class(10).in_template_of("CronJob"), None, REFUSES
    ).violations
    assert str(found) == (
        f"spec.jobTemplate.spec.template.{SELECTOR}: Forbidden: "
        "a non-preemptible workload may not run on nodes that another namespace lent"
    )


def test_a_file_without_a_namespace_may_belong_to_the_home_namespace() -> None:
    pod = BORROWING.in_class(10).build()
    anywhere = Resource(kind="Pod", metadata=replace(pod.metadata, namespace=None), spec=pod.spec)
    assert decide_admission(anywhere, None, REFUSES).is_allowed
