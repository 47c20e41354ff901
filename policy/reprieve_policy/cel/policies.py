"""All policies of one cluster's settings."""

from reprieve_policy.settings import PolicySettings

from . import defaults, pods, priority_classes
from .document import Document


def render(settings: PolicySettings) -> list[Document]:
    """Return them as documents, in the order in which they are written to a file.

    Limits stand in them as numbers: after a change of the ConfigMap they have to be rendered again.
    """
    groups = (document for group in pods.groups() for document in pods.render(group, settings))
    return [
        *defaults.of_pods(settings),
        *defaults.of_priority_classes(),
        *groups,
        *priority_classes.render(),
    ]
