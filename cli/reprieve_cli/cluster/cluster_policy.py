"""What is known of a cluster's policy, and small enough to be kept: its settings, Namespaces and PriorityClasses. No I/O."""

from dataclasses import dataclass, field, replace

from reprieve_policy.config import namespace, settings
from reprieve_policy.config.namespace import ENFORCE, NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import Resource, annotations_of, labels_of
from reprieve_policy.kube.quota import Quotas

POLICY_NAMESPACE, POLICY_NAME = Facts().policy_config_map
_DEFAULT_POLICY = NamespacePolicy()


@dataclass(slots=True)
class ClusterPolicy:
    """The facts of a whole cluster: its policy, and what is small enough to be kept."""

    settings: PolicySettings = field(default_factory=PolicySettings)
    namespaces: dict[str, NamespacePolicy] = field(default_factory=dict)
    priority_classes: dict[str, Resource] = field(default_factory=dict)

    def namespace_policy(self, name: str) -> NamespacePolicy:
        """Return the policy of a Namespace; the default's for one that is not known, and for what is in none."""
        return self.namespaces.get(name, _DEFAULT_POLICY)

    def add(self, found: Resource) -> None:
        """Take what an object says of the policy, if it is of a kind that says any; one that is broken says nothing."""
        metadata = found.metadata
        if found.kind == "Namespace":
            self.namespaces[metadata.name or ""] = namespace.read_leniently(
                labels_of(metadata), annotations_of(metadata)
            )
        elif found.kind == "PriorityClass":
            self.priority_classes[metadata.name or ""] = found
        elif (metadata.namespace, metadata.name) == (POLICY_NAMESPACE, POLICY_NAME):
            parsed = settings.parse(found.data or {})
            self.settings = parsed if isinstance(parsed, PolicySettings) else self.settings

    def facts_in_force(self, name: str, quotas: Quotas) -> Facts:
        """Return what is in force in a Namespace."""
        return Facts(
            settings=self.settings,
            namespace=self.namespace_policy(name),
            priority_classes=self.priority_classes,
            quotas=quotas,
        )

    def facts_as_enforced(self, name: str) -> Facts:
        """Return what rules may know; what they say is asked for in full, however little the Namespace enforces."""
        policy = replace(self.namespace_policy(name), enforcement=ENFORCE)
        return Facts(
            settings=self.settings, namespace=policy, priority_classes=self.priority_classes
        )
