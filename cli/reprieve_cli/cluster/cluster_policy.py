"""What is small enough to be kept of a cluster: settings, Namespaces, PriorityClasses. No I/O."""

from dataclasses import dataclass, field, replace

from reprieve_policy.config import namespace, settings
from reprieve_policy.config.namespace import ENFORCE, NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.limits.quota import Quotas
from reprieve_policy.kube.objects import Resource, annotations_of, labels_of

POLICY_NAMESPACE, POLICY_NAME = Facts().policy_config_map
_DEFAULT_POLICY = NamespacePolicy()


@dataclass(slots=True)
class ClusterPolicy:
    """The policy of a whole cluster."""

    settings: PolicySettings = field(default_factory=PolicySettings)
    namespaces: dict[str, NamespacePolicy] = field(default_factory=dict)
    priority_classes: dict[str, Resource] = field(default_factory=dict)

    def namespace_policy(self, name: str) -> NamespacePolicy:
        """Return the policy of a Namespace; the default for an unknown one and for no Namespace."""
        return self.namespaces.get(name, _DEFAULT_POLICY)

    def add(self, resource: Resource) -> None:
        """Add a Namespace, a PriorityClass or the policy's ConfigMap.

        Ignores every other object, and a ConfigMap that cannot be parsed.
        """
        metadata = resource.metadata
        if resource.kind == "Namespace":
            self.namespaces[metadata.name or ""] = namespace.read_leniently(
                labels_of(metadata), annotations_of(metadata)
            )
        elif resource.kind == "PriorityClass":
            self.priority_classes[metadata.name or ""] = resource
        elif (metadata.namespace, metadata.name) == (POLICY_NAMESPACE, POLICY_NAME):
            parsed = settings.parse(resource.data or {})
            self.settings = parsed if isinstance(parsed, PolicySettings) else self.settings

    def facts_in_force(self, name: str, quotas: Quotas) -> Facts:
        """Return the facts for a Namespace."""
        return Facts(
            settings=self.settings,
            namespace=self.namespace_policy(name),
            priority_classes=self.priority_classes,
            quotas=quotas,
        )

    def facts_as_enforced(self, name: str) -> Facts:
        """Return the facts for a Namespace as if it enforced all rules."""
        policy = replace(self.namespace_policy(name), enforcement=ENFORCE)
        return Facts(
            settings=self.settings, namespace=policy, priority_classes=self.priority_classes
        )
