"""Why a pending pod of a live cluster takes no victims at all, for `reprieve explain`."""

from collections.abc import Callable
from datetime import datetime

from reprieve_cli.cluster.cluster import ClusterReader
from reprieve_cli.cluster.cluster_policy import ClusterPolicy
from reprieve_policy.kube.limits.elastic_quotas import ElasticQuota
from reprieve_policy.kube.pods import Pod
from reprieve_policy.preemption.selection import Refusal
from reprieve_policy.preemption.selection.explain import explain_preemptor
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path

from .snapshot_builder import SnapshotBuilder


class PreemptorRefusals:
    """Reads the quotas for the first pending pod, and all pods for the first that has a quota."""

    def __init__(
        self, api: Api, policy: ClusterPolicy, now: datetime, report: Callable[[str], None]
    ) -> None:
        """`report` is called with what cannot be read; it then does not count."""
        self._reader = ClusterReader(api, "", report)
        self._builder = SnapshotBuilder(policy, now)
        self._are_quotas_read = False
        self._are_pods_read = False

    async def find(self, pod: Pod) -> Refusal | None:
        """Return why the pod takes no victims; `None` if it may, or if it is not pending."""
        if not pod.is_pending:
            return None
        if not self._are_quotas_read:
            self._are_quotas_read = True
            path = object_path("elasticquotas")
            await self._reader.read_each(path, ElasticQuota, self._builder.add_quota)
        preemptor = self._builder.preemptor_of(pod)
        if preemptor.quota is not None and not self._are_pods_read:
            self._are_pods_read = True
            await self._reader.read_each(object_path("pods"), Pod, self._builder.add_pod)
        return explain_preemptor(self._builder.with_gang(preemptor, ()), self._builder.build())
