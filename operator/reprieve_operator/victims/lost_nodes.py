"""Whether the node of a victim is lost.

The node is read when the grace period is chosen, if the policy wants that and RBAC allows it.
"""

import logging

from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_policy.kube.conditions import is_true
from reprieve_policy.kube.names import is_object_name
from reprieve_policy.kube.nodes import Node
from reprieve_policy.lifecycle import lost_node
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

_log = logging.getLogger(__name__)

_MISSING_RIGHT_NOTE = (
    "the operator may not read nodes (ClusterRole reprieve:read-nodes is not bound to it): "
    "no grace period is set to 0"
)


class LostNodeChecker:
    """Reads nodes, without a cache: a node that was lost may be back for the next victim."""

    def __init__(self, writes: Writes, policy: PolicySource) -> None:
        self._writes = writes
        self._policy = policy
        self._is_reported = False

    async def is_lost(self, pod: VictimPod) -> bool:
        """True if the pod's node is certainly lost; `False` if the operator may not read nodes."""
        name = pod.spec.nodeName
        if not is_object_name(name):
            return False
        try:
            node = await self._writes.get(object_path("nodes", name=name), Node)
        except ApiError as error:
            if not error.is_forbidden:
                raise
            self._report_missing_right()
            return False
        return lost_node.is_lost(None if node is None else _to_lost_node(node))

    def _report_missing_right(self) -> None:
        if not self._is_reported:
            self._is_reported = True
            _log.warning("the operator may not read nodes")
            self._policy.record_warning("LostNodesUnreadable", _MISSING_RIGHT_NOTE)


def _to_lost_node(node: Node) -> lost_node.NodeHealth:
    return lost_node.NodeHealth(
        is_ready=is_true(node.status.conditions, "Ready"),
        taints={taint.key for taint in node.spec.taints or ()},
    )
