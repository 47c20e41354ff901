"""The policies of Namespaces: watched, and read once where a Namespace is newer than the watch."""

from reprieve_policy.config import namespace
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.kube.objects import Resource, annotations_of, labels_of
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector
from reprieve_webhooks.lookups.getter import CachedGetter

DEFAULT_POLICY = NamespacePolicy()


class NamespacePolicyReader:
    """The policies by the Namespace's name."""

    def __init__(self, api: Api, *, lookup_timeout_seconds: float) -> None:
        self.reflector = Reflector(api, object_path("namespaces"), Resource, _policy_of)
        self._getter = CachedGetter(
            api, Resource, _policy_of, timeout_seconds=lookup_timeout_seconds
        )

    def watched(self, name: str) -> NamespacePolicy | None:
        """Return the policy of a Namespace; `None` if the watch has not seen it."""
        return self.reflector.items.get(("", name))

    async def look_up(self, name: str) -> NamespacePolicy:
        """Read a Namespace that the watch has not seen; raises `ApiError`."""
        found = await self._getter.find("namespaces", name)
        return DEFAULT_POLICY if found is None else found


def _policy_of(resource: Resource) -> NamespacePolicy:
    return namespace.read_leniently(labels_of(resource.metadata), annotations_of(resource.metadata))
