"""The few fields of a Deployment that say whether it is to have pods."""

from dataclasses import dataclass, field

from reprieve_policy.kube.objects import ObjectMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDeploymentSpec:
    """How many pods it is to have."""

    replicas: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDeployment:
    """A Deployment, as far as its end is concerned."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: OwnDeploymentSpec = field(default_factory=OwnDeploymentSpec)

    @property
    def is_going(self) -> bool:
        """True if it is being deleted, or is to have no pods."""
        return self.metadata.deletionTimestamp is not None or self.spec.replicas == 0
