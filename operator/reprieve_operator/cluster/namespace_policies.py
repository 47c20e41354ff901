"""The policies of Namespaces, as the operator uses them.

They also bound labels on pods that were admitted while no webhook ran.
"""

from reprieve_policy.config import namespace
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_runtime.client.api import Api, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector


class NamespacePolicies:
    """Watches the metadata of Namespaces during one term."""

    def __init__(self, api: Api) -> None:
        self.reflector = Reflector(
            api, object_path("namespaces"), PartialObjectMetadata, _read_policy
        )

    def get(self, name: str | None) -> NamespacePolicy:
        """Return a Namespace's policy; the default for one that is not known."""
        return self.reflector.items.get(("", name or ""), _DEFAULT_POLICY)


_DEFAULT_POLICY = NamespacePolicy()


def _read_policy(namespace_object: PartialObjectMetadata) -> NamespacePolicy:
    return namespace.read_leniently(
        labels_of(namespace_object.metadata), annotations_of(namespace_object.metadata)
    )
