"""Whether the node of a victim is gone: read where its grace is chosen, if the policy wants that and the cluster grants it."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from reprieve_operator.cluster.pods import Condition, VictimPod
from reprieve_operator.cluster.policy_source import PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_policy.lifecycle import lost_node
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

_log = logging.getLogger(__name__)

_FORBIDDEN = 403
_NOTE = "the operator may not read nodes (ClusterRole reprieve:read-nodes is not bound to it): no grace is 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taint:
    key: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _VictimNodeSpec:
    taints: Sequence[_Taint] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeStatus:
    conditions: Sequence[Condition] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _VictimNode:
    spec: _VictimNodeSpec = field(default_factory=_VictimNodeSpec)
    status: _NodeStatus = field(default_factory=_NodeStatus)


class LostNodeChecker:
    """Reads nodes. Nothing is remembered of one: what was gone when another victim went may be back."""

    def __init__(self, effects: Writes, policy: PolicySource) -> None:
        self._effects = effects
        self._policy = policy
        self._is_reported = False

    async def is_lost(self, pod: VictimPod) -> bool:
        """True where the pod's node is gone for certain; where the right to read it is missing, it is not."""
        name = pod.spec.nodeName
        if not lost_node.is_node_name(name):
            return False
        try:
            node = await self._effects.get(object_path("nodes", name=name), _VictimNode)
        except ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            self._report_missing_right()
            return False
        return lost_node.is_lost(None if node is None else _to_lost_node(node))

    def _report_missing_right(self) -> None:
        if not self._is_reported:
            self._is_reported = True
            _log.warning("nodes cannot be read")
            self._policy.record_warning("LostNodesUnreadable", _NOTE)


def _to_lost_node(node: _VictimNode) -> lost_node.NodeHealth:
    ready = any(
        found.type == "Ready" and found.status == "True" for found in node.status.conditions or ()
    )
    return lost_node.NodeHealth(
        is_ready=ready, taints={taint.key for taint in node.spec.taints or ()}
    )
