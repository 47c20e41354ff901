"""The ElasticQuotas of the cluster, as Koordinator writes them; none if they are not installed."""

from dataclasses import dataclass, field

from reprieve_policy.kube import quota
from reprieve_policy.kube.objects import ObjectMeta, Quantities, Spec
from reprieve_policy.kube.quota import Quota, Quotas
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector

ABSENT_RETRY_SECONDS = 60.0
"""A CustomResourceDefinition that is installed later is noticed after at most this time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ElasticQuotaStatus:
    used: Quantities | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _ElasticQuota:
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: Spec | None = None
    status: _ElasticQuotaStatus | None = None


class ElasticQuotas:
    """A watch, and the quotas that rules find in it."""

    def __init__(self, api: Api) -> None:
        self.quotas = Quotas()
        path = object_path("elasticquotas")
        self.reflector = Reflector(
            api,
            path,
            _ElasticQuota,
            self._keep,
            on_delete=self.quotas.remove,
            absent_retry_seconds=ABSENT_RETRY_SECONDS,
        )

    def _keep(self, elastic_quota: _ElasticQuota) -> Quota:
        spec = elastic_quota.spec or Spec()
        used = elastic_quota.status.used if elastic_quota.status else None
        parsed = quota.read_leniently(
            elastic_quota.metadata, spec.min or {}, spec.max or {}, used or {}
        )
        self.quotas.put(parsed)
        return parsed
