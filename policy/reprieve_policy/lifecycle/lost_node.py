"""Whether a victim's node is certainly gone, so that waiting for its kubelet is useless.

The rule is that of Kubernetes' own pod garbage collector: the Node object is absent, or the node
has the taint `out-of-service`, by which an admin states that the machine is off, and is not Ready.
A node that is only unreachable is not lost: behind a network partition its containers keep running,
and a StatefulSet's pod that is dropped there runs twice.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from reprieve_policy.config.settings import PolicySettings

from .eviction import CheckpointOutcome, Eviction, Phase

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""Set by hand, or by a tool that has cut the machine's power. Its effect does not matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """What the control plane knows of an existing node."""

    is_ready: bool
    taints: AbstractSet[str]
    """The keys of its taints."""


def is_lost(node: NodeHealth | None) -> bool:
    """True if no container of the node runs any more; `None`: the Node object is absent."""
    return node is None or (OUT_OF_SERVICE in node.taints and not node.is_ready)


def needs_node_check(before: Eviction, after: Eviction, settings: PolicySettings) -> bool:
    """True if the operator must check the node first, as the admin has configured.

    That is when the grace period of our own DELETE is chosen between `before` and `after`.
    """
    is_chosen = after.phase is Phase.TERMINATING and before.phase is not Phase.TERMINATING
    return (
        settings.force_delete_on_lost_nodes
        and is_chosen
        and after.outcome is not CheckpointOutcome.OVERTAKEN
    )
