"""A Namespace's policy annotations are readable and agree with each other.

Checked: `reprieve.dev/workload-type`, `allowed-preemption-classes`, `default-preemption-class` and
`enforcement` (also as a label); the default is one of the allowed classes, and 10 if workloads are
sensitive.

Why: they are the admin's policy, checked by the parsers that apply it: a mistake is refused when it
is made, not ignored later. A value that was written while no webhook watched counts as absent.

Source: document 001, "Per-vCluster Preemption Policy"; a Namespace is its vCluster.

Setting: none. The rule holds also if `enforcement` is `off`: when an admin switches it on again,
the annotations are readable.
"""

from reprieve_policy.config import namespace
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource, annotations_of, labels_of
from reprieve_policy.verdict import NO_FINDINGS, Verdict


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check labels and annotations of a Namespace."""
    parsed = namespace.parse(labels_of(resource.metadata), annotations_of(resource.metadata))
    return NO_FINDINGS if isinstance(parsed, NamespacePolicy) else Verdict(violations=parsed)
