"""What Namespaces allow, as the operator uses it: a label that got in while no webhook watched is not taken at its word."""

from reprieve_policy.config import namespace
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_runtime.client.api import Api, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector


class NamespacePolicies:
    """Watches the metadata of Namespaces, for as long as its term runs."""

    def __init__(self, api: Api) -> None:
        self.reflector = Reflector(
            api, object_path("namespaces"), PartialObjectMetadata, _read_policy
        )

    def get(self, name: str | None) -> NamespacePolicy:
        """Return a Namespace's policy; of one that is not known, what holds where nobody says anything."""
        return self.reflector.items.get(("", name or ""), _DEFAULT_POLICY)


_DEFAULT_POLICY = NamespacePolicy()


def _read_policy(found: PartialObjectMetadata) -> NamespacePolicy:
    return namespace.read_leniently(labels_of(found.metadata), annotations_of(found.metadata))
