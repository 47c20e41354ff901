"""Whether a victim's node is gone for certain, so that nobody needs to wait for its kubelet's word.

As Kubernetes' own pod garbage collector has it: the Node object is absent, or an admin has said by the taint `out-of-service`
that the machine is off, and it is not Ready. A node that is only unreachable is none: behind a partition its containers run
on, and a StatefulSet's pod that is dropped there runs twice.
"""

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from reprieve_policy.config.settings import PolicySettings

from .eviction import CheckpointOutcome, Eviction, Phase

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""Set by hand, or by whoever has cut the machine's power; its effect is of no account."""

_NAME = re.compile("[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeHealth:
    """What the control plane says of a node that it knows."""

    is_ready: bool
    taints: AbstractSet[str]
    """Their keys."""


def is_lost(node: NodeHealth | None) -> bool:
    """True where no container of the node runs any more; `None`: there is no such object."""
    return node is None or (OUT_OF_SERVICE in node.taints and not node.is_ready)


def needs_node_check(before: Eviction, after: Eviction, settings: PolicySettings) -> bool:
    """True where the grace of a DELETE of ours is chosen between the two, and the admin wants the node looked at."""
    is_chosen = after.phase is Phase.TERMINATING and before.phase is not Phase.TERMINATING
    return (
        settings.force_delete_on_lost_nodes
        and is_chosen
        and after.outcome is not CheckpointOutcome.OVERTAKEN
    )


def is_node_name(text: str) -> bool:
    """True for what a Node may be called. Without this, whoever writes a pod would choose a path on the API server."""
    return _NAME.fullmatch(text) is not None
