"""The lent nodes of the cluster, by home Namespace.

A watch of all nodes, because no selector finds a taint; only lent nodes are kept. It runs only with
`reclaim: auto`, and needs a right that an admin grants for that.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from reprieve_operator.cluster.event_recorder import ObjectReference
from reprieve_policy.kube.nodes import Node
from reprieve_policy.kube.objects import labels_of
from reprieve_policy.preemption import reclaim
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.snapshot import NodeInfo
from reprieve_policy.verdict import Violation
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector

_PAGE = 100
_RIGHT_RETRY_SECONDS = 60.0
"""How soon a right counts that is granted while the operator runs."""


@dataclass(frozen=True, slots=True)
class LentNode:
    """A node with a home Namespace, without its pods."""

    home: str
    info: NodeInfo
    reference: ObjectReference


class LentNodes:
    """Watches the nodes."""

    def __init__(self, api: Api) -> None:
        self.reflector: Reflector[Node, LentNode | None] = Reflector(
            api,
            object_path("nodes"),
            Node,
            read_lent_node,
            page=_PAGE,
            absent_retry_seconds=_RIGHT_RETRY_SECONDS,
            absent_statuses=(HTTPStatus.FORBIDDEN,),
        )

    @property
    def may_be_read(self) -> bool:
        """False if the operator lacks the right to list and watch nodes."""
        return self.reflector.is_served

    def by_home(self) -> Mapping[str, Sequence[LentNode]]:
        """Return the lent nodes of each home Namespace."""
        homes: dict[str, list[LentNode]] = defaultdict(list)
        for node in self.reflector.items.values():
            if node is not None:
                homes[node.home].append(node)
        return homes


def read_lent_node(node: Node) -> LentNode | None:
    """Return a node that has a home Namespace, `None` for any other.

    A node with several homes, by its label and its taints, belongs to none.
    """
    taints = ((taint.key, taint.value) for taint in node.spec.taints or ())
    home = reclaim.home_namespace_of(labels_of(node.metadata), taints)
    if isinstance(home, Violation):
        return None
    reference = ObjectReference("Node", "", node.metadata.name or "", node.metadata.uid or "")
    return LentNode(home, snapshot_builder.node_info_of(node), reference)
