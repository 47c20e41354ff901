# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""The Lease of the operator's leader election."""

from dataclasses import dataclass, field

from reprieve_policy.kube.objects import VersionedMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSpec:
    """The spec of a coordination.k8s.io/v1 Lease."""

    holderIdentity: str | None = None
    leaseDurationSeconds: int | None = None
    acquireTime: str | None = None
    renewTime: str | None = None
    leaseTransitions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The Lease that the replicas compete for."""

    metadata: VersionedMeta = field(default_factory=VersionedMeta)
    spec: LeaseSpec = field(default_factory=LeaseSpec)
