"""The ElasticQuotas of the cluster, as Koordinator writes them; none if they are not installed."""

from reprieve_policy.kube.limits import elastic_quotas
from reprieve_policy.kube.limits.elastic_quotas import ElasticQuota
from reprieve_policy.kube.limits.quota import Quota, Quotas
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector

ABSENT_RETRY_SECONDS = 60.0
"""A CustomResourceDefinition that is installed later is noticed after at most this time."""


class ElasticQuotas:
    """A watch, and the quotas that rules find in it."""

    def __init__(self, api: Api) -> None:
        self.quotas = Quotas()
        path = object_path("elasticquotas")
        self.reflector = Reflector(
            api,
            path,
            ElasticQuota,
            self._keep,
            on_delete=self.quotas.remove,
            absent_retry_seconds=ABSENT_RETRY_SECONDS,
        )

    def _keep(self, elastic_quota: ElasticQuota) -> Quota:
        parsed = elastic_quotas.read(elastic_quota)
        self.quotas.put(parsed)
        return parsed
