"""A lent node is reclaimed: its home Namespace, and which of its pods are evicted."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import pod_views
from reprieve_policy.lifecycle import cause, mark
from reprieve_policy.lifecycle.eviction import PreemptionCause, Source
from reprieve_policy.preemption import reclaim
from reprieve_policy.preemption.reclaim import NodePod, ReclaimAction, ReclaimResult
from reprieve_policy.verdict import Violation, ViolationKind
from reprieve_testing.objects.builders import NOW, PodBuilder, a_pod, after, an_eviction

KEY = keys.HOME_NAMESPACE
PATH = f"metadata.labels[{KEY}]"
HOME = "home"


def a_node_pod(
    pod: PodBuilder, walltime: Walltime | None = None, *, is_going: bool = False
) -> NodePod:
    resource = pod.build()
    (view,) = pod_views(resource)
    return NodePod(metadata=resource.metadata, view=view, walltime=walltime, is_leaving=is_going)


def of(namespace: str) -> PodBuilder:
    pod = a_pod()
    metadata = replace(pod.resource.metadata, namespace=namespace)
    return replace(pod, resource=replace(pod.resource, metadata=metadata))


ORDINARY = a_node_pod(a_pod())
UNSAYING = NamespacePolicy()
PROTECTED = a_pod().named("p").in_class(6).labelled(keys.PREEMPTIBLE, "false")
ENDS_SOON = Walltime(after(-3500), 3600)


@dataclass(frozen=True, kw_only=True)
class Case:
    pod: NodePod = ORDINARY
    others: Sequence[NodePod] = ()
    namespace: NamespacePolicy = UNSAYING
    want: ReclaimResult


CASES = {
    "a pod of another namespace is evicted": Case(want=ReclaimResult(ReclaimAction.EVICT)),
    "a pod of the node's home namespace stays": Case(
        pod=a_node_pod(of(HOME)), want=ReclaimResult(ReclaimAction.STAYS, "it is at home")
    ),
    "a pod that is leaving already counts as leaving": Case(
        pod=a_node_pod(a_pod(), is_going=True), want=ReclaimResult(ReclaimAction.LEAVING)
    ),
    "a leaving pod of the node's home namespace stays": Case(
        pod=a_node_pod(of(HOME), is_going=True),
        want=ReclaimResult(ReclaimAction.STAYS, "it is at home"),
    ),
    "a pod of kube-system stays": Case(
        pod=a_node_pod(of("kube-system")),
        want=ReclaimResult(ReclaimAction.STAYS, "kube-system is exempt"),
    ),
    "a DaemonSet's pod stays, because it would be recreated on the node": Case(
        pod=a_node_pod(a_pod().owned_by("DaemonSet", "logs")),
        want=ReclaimResult(
            ReclaimAction.STAYS, "DaemonSet logs would create it again on this node"
        ),
    ),
    "a pod that names a DaemonSet of a made-up group is evicted": Case(
        pod=a_node_pod(a_pod().owned_by("DaemonSet", "logs", api_version="made-up.example.com/v1")),
        want=ReclaimResult(ReclaimAction.EVICT),
    ),
    "a Job's pod is evicted": Case(
        pod=a_node_pod(a_pod().owned_by("Job")), want=ReclaimResult(ReclaimAction.EVICT)
    ),
    "a kubelet's own pod stays": Case(
        pod=a_node_pod(a_pod().annotated("kubernetes.io/config.mirror", "x")),
        want=ReclaimResult(ReclaimAction.STAYS, "it is a static pod of the node"),
    ),
    "a pod that is not preemptible stays": Case(
        pod=a_node_pod(PROTECTED), want=ReclaimResult(ReclaimAction.STAYS, "non-preemptible")
    ),
    "a pod of a sensitive namespace stays": Case(
        namespace=NamespacePolicy(workload_type="sensitive"),
        want=ReclaimResult(ReclaimAction.STAYS, "non-preemptible"),
    ),
    "a pod that is nearly complete is evicted once its walltime is over": Case(
        pod=a_node_pod(a_pod(), ENDS_SOON),
        want=ReclaimResult(ReclaimAction.EVICT, "near-completion", after(100)),
    ),
    "a pod is evicted with its gang": Case(
        others=[a_node_pod(a_pod().named("q"))], want=ReclaimResult(ReclaimAction.EVICT)
    ),
    "a pod stays if a member of its gang is not preemptible": Case(
        others=[a_node_pod(a_pod().named("q"), ENDS_SOON), a_node_pod(PROTECTED)],
        want=ReclaimResult(ReclaimAction.STAYS, "p of its gang is non-preemptible"),
    ),
    "a pod does not wait for a member of its gang that is nearly complete": Case(
        others=[a_node_pod(a_pod().named("q"), ENDS_SOON)], want=ReclaimResult(ReclaimAction.EVICT)
    ),
    "a pod waits if all members of its gang are nearly complete": Case(
        pod=a_node_pod(a_pod(), Walltime(NOW, 50)),
        others=[a_node_pod(a_pod().named("q"), ENDS_SOON)],
        want=ReclaimResult(ReclaimAction.EVICT, "q of its gang is near-completion", after(100)),
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_which_pods_of_a_lent_node_are_evicted(case: Case) -> None:
    facts = Facts(namespace=case.namespace)
    assert reclaim.decide_reclaim(case.pod, case.others, HOME, facts, NOW) == case.want


NOT_DECLARED = Violation(
    PATH,
    ViolationKind.REQUIRED,
    None,
    "without it the node belongs to all namespaces, and no pod on it is a borrower",
)
HOMES = {
    "by its label": ({KEY: "a"}, [], "a"),
    "by its taint": ({}, [(KEY, "a")], "a"),
    "by both": ({KEY: "a"}, [(KEY, "a"), (KEY, "a")], "a"),
    "another taint has no effect": ({KEY: "a"}, [("dedicated", "b")], "a"),
    "an empty taint has no effect": ({KEY: "a"}, [(KEY, "")], "a"),
    "unknown without either": ({}, [], NOT_DECLARED),
    "unknown if they are empty": ({KEY: ""}, [(KEY, "")], NOT_DECLARED),
    "unknown if they differ": (
        {KEY: "a"},
        [(KEY, "b"), (KEY, "a")],
        Violation(PATH, ViolationKind.INVALID, "a", 'the node\'s taint of that name says "b"'),
    ),
    "unknown if two taints differ": (
        {},
        [(KEY, "b"), (KEY, "c")],
        Violation(
            PATH, ViolationKind.INVALID, "", 'the node\'s taint of that name says "b" and "c"'
        ),
    ),
}


@pytest.mark.parametrize(("labels", "taints", "want"), HOMES.values(), ids=HOMES)
def test_the_home_namespace_of_a_node(
    labels: dict[str, str], taints: list[tuple[str, str]], want: str | Violation
) -> None:
    assert reclaim.home_namespace_of(labels, taints) == want


def test_the_mark_is_a_preemption_that_is_counted_as_a_reclamation() -> None:
    found = mark.read({}, {keys.KOORDINATOR_SOFT_EVICTION: reclaim.build_mark(NOW)})
    assert isinstance(found, mark.Mark)
    assert mark.is_written_by_reprieve({keys.KOORDINATOR_SOFT_EVICTION: reclaim.build_mark(NOW)})
    assert (found.initiator, found.requested_at) == ("reprieve-reclaim", NOW)
    state = replace(
        an_eviction().build(),
        source=Source.KOORDINATOR,
        reason=found.reason,
        initiator=found.initiator,
    )
    assert state.source.is_preemption
    assert cause.decide_cause(state, is_for_sensitive=False) is PreemptionCause.RECLAIM


def test_the_mark_names_no_namespace() -> None:
    assert set(json.loads(reclaim.build_mark(NOW))) == {"timestamp", "initiator", "reason"}
