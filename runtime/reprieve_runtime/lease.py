# ruff: noqa: N815 - field names are the API's own, so that JSON decodes into them directly
"""The Lease by which the operator's replicas agree on a leader, as all programs read it."""

from dataclasses import dataclass, field

from reprieve_policy.kube.objects import ObjectMeta


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseMeta(ObjectMeta):
    """Metadata with what a precondition needs."""

    resourceVersion: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSpec:
    """As coordination.k8s.io/v1 has it."""

    holderIdentity: str | None = None
    leaseDurationSeconds: int | None = None
    acquireTime: str | None = None
    renewTime: str | None = None
    leaseTransitions: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The object that replicas compete for."""

    metadata: LeaseMeta = field(default_factory=LeaseMeta)
    spec: LeaseSpec = field(default_factory=LeaseSpec)
