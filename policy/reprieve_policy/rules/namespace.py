"""A Namespace's policy annotations can be read and agree with each other.

They are the admin's policy, checked by the parsers that apply it: a slip is refused when it is made, not ignored later.
"""

from reprieve_policy import namespace
from reprieve_policy.facts import Facts
from reprieve_policy.namespace import NamespacePolicy
from reprieve_policy.objects import Resource, annotations_of, labels_of
from reprieve_policy.verdict import Verdict


def check(resource: Resource, old: Resource | None, facts: Facts) -> Verdict:  # noqa: ARG001 - every rule has one form
    """Check labels and annotations of a Namespace."""
    parsed = namespace.parse(labels_of(resource.metadata), annotations_of(resource.metadata))
    return Verdict() if isinstance(parsed, NamespacePolicy) else Verdict(violations=parsed)
