"""All policies of one cluster's settings."""

from reprieve_policy.config.settings import PolicySettings

from . import defaults, pods, priority_classes
from .document import Document

RULES = frozenset(
    {
        "preemption-class",
        "koordinator-labels",
        "checkpoint",
        "soft-eviction-mark",
        "preemption-toleration",
        "priority-class-default",
    }
)
"""The rules that the policies check completely, as far as the object and its Namespace tell."""


def render(settings: PolicySettings) -> list[Document]:
    """Return the policies as documents, in the order in which they are written to a file.

    Limits are numbers in them: after a change of the ConfigMap the policies must be rendered again.
    """
    groups = (document for group in pods.kind_groups() for document in pods.render(group, settings))
    return [
        *defaults.of_pods(settings),
        *defaults.of_priority_classes(),
        *groups,
        *priority_classes.render(),
    ]
