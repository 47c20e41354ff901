"""The fields of ElasticQuotas beyond those that rules read: the status that Koordinator writes."""

from dataclasses import dataclass, field

from reprieve_policy.kube.objects import ObjectMeta, Quantities, Spec

from . import quota
from .quota import Quota


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticQuotaStatus:
    """The status of an ElasticQuota."""

    used: Quantities | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticQuota:
    """An ElasticQuota of Koordinator."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Spec | None = None
    status: ElasticQuotaStatus | None = None


def read(found: ElasticQuota) -> Quota:
    """Return the quota, which may not have been validated."""
    spec, status = found.spec or Spec(), found.status or ElasticQuotaStatus()
    return quota.read_leniently(found.metadata, spec.min or {}, spec.max or {}, status.used or {})
