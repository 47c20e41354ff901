"""A non-preemptible workload stays off the nodes that other Namespaces lent.

Checked: a non-preemptible pod or template (class 10; class 7 or more without a checkpoint;
Koordinator's label `preemptible: "false"`) does not ask for borrowed nodes, which have the label or
taint `reprieve.dev/home-namespace` of another Namespace. A pod asks by `nodeSelector`, by required
node affinity, or by tolerating the taint of that name, also as one of all taints. A pod that
selects nodes of its own Namespace may have any toleration.

Why: the home Namespace may reclaim its nodes, and then the pods there must be preemptible.

Source: document 001, "Elastic Reclamation" and "Non-Preemptible Allocations": the scheduler avoids
placing these on borrowed nodes.

Setting: `nonPreemptibleOnBorrowedNodes` is `warn` or `refuse`.
"""

from collections.abc import Iterator, Sequence

from reprieve_policy import facts as known
from reprieve_policy.config.settings import WARN
from reprieve_policy.facts import Facts
from reprieve_policy.keys import HOME_NAMESPACE
from reprieve_policy.kube.objects import (
    NodeSelectorRequirement,
    NodeSelectorTerm,
    NodeToleration,
    PodView,
    Resource,
    Spec,
    pod_views,
)
from reprieve_policy.verdict import NO_FINDINGS, Verdict, Violation, ViolationKind


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check where the pod, or the pods of the template, ask to run."""
    home = resource.metadata.namespace
    paths = [
        path
        for view in pod_views(resource)
        if _may_select_borrowed_nodes(view.spec)
        for path in _check_view(view, home, facts)
    ]
    if not paths:
        return NO_FINDINGS
    if facts.settings.non_preemptible_on_borrowed_nodes == WARN:
        return Verdict(
            warnings=tuple(f"{path}: non-preemptible on borrowed nodes" for path in paths)
        )
    return Verdict(
        violations=tuple(Violation(path, ViolationKind.FORBIDDEN, None, _DETAIL) for path in paths)
    )


_TAINTS = ("", HOME_NAMESPACE)
"""A toleration without a key and with `Exists` tolerates every taint, also this one."""
_DETAIL = "a non-preemptible workload may not run on nodes that another namespace lent"


def _may_select_borrowed_nodes(spec: Spec) -> bool:
    """Return quickly, for nearly every pod, that it does not.

    All pods have the two tolerations that the API server adds.
    """
    tolerated = any(found.key in _TAINTS for found in spec.tolerations or ())
    return tolerated or spec.nodeSelector is not None or spec.affinity is not None


def _check_view(view: PodView, home: str | None, facts: Facts) -> Iterator[str]:
    paths = list(_borrowed(view.spec, home))
    if paths and known.is_non_preemptible(view, facts):
        yield from (f"{view.prefix}spec.{path}" for path in paths)


def _borrowed(spec: Spec, home: str | None) -> Iterator[str]:
    """Yield each field of a pod's spec that asks for borrowed nodes."""
    selected, terms = (spec.nodeSelector or {}).get(HOME_NAMESPACE), _terms(spec)
    stays_home = selected is not None or (
        bool(terms) and all(_stays_home(term, home) for term in terms)
    )
    if selected is not None and _is_other(selected, home):
        yield f"nodeSelector[{HOME_NAMESPACE}]"
    if selected is None and any(_leaves_home(term, home) for term in terms):
        yield "affinity.nodeAffinity"
    if not stays_home:
        tolerations = enumerate(spec.tolerations or ())
        yield from (
            f"tolerations[{index}]" for index, found in tolerations if _tolerates_other(found, home)
        )


def _terms(spec: Spec) -> Sequence[NodeSelectorTerm]:
    affinity = spec.affinity.nodeAffinity if spec.affinity else None
    required = affinity.requiredDuringSchedulingIgnoredDuringExecution if affinity else None
    return (required.nodeSelectorTerms if required else None) or ()


def _stays_home(term: NodeSelectorTerm, home: str | None) -> bool:
    return any(
        found.operator == "In" and not _names_other(found, home) for found in _requirements(term)
    )


def _leaves_home(term: NodeSelectorTerm, home: str | None) -> bool:
    """Return whether the term may select another home; one that stays at home cannot."""
    asks = any(
        found.operator == "Exists" or _names_other(found, home) for found in _requirements(term)
    )
    return asks and not _stays_home(term, home)


def _requirements(term: NodeSelectorTerm) -> list[NodeSelectorRequirement]:
    return [found for found in term.matchExpressions or () if found.key == HOME_NAMESPACE]


def _names_other(requirement: NodeSelectorRequirement, home: str | None) -> bool:
    return requirement.operator == "In" and any(
        _is_other(name, home) for name in requirement.values or ()
    )


def _tolerates_other(toleration: NodeToleration, home: str | None) -> bool:
    if toleration.operator == "Exists":
        return toleration.key in _TAINTS
    return toleration.key == HOME_NAMESPACE and _is_other(toleration.value, home)


def _is_other(name: str, home: str | None) -> bool:
    """True for another Namespace; a file without a Namespace may be meant for any."""
    return home is not None and name != home
