"""When a node is certainly gone, and when the operator must check."""

from dataclasses import replace

import pytest

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle import lost_node
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Eviction, Phase
from reprieve_policy.lifecycle.lost_node import OUT_OF_SERVICE, NodeHealth
from reprieve_testing.objects.builders import after, an_eviction

UNREACHABLE = "node.kubernetes.io/unreachable"

NODES = {
    "a node without a Node object": (None, True),
    "a ready node": (NodeHealth(is_ready=True, taints=set()), False),
    "a node that is not ready may still run pods": (
        NodeHealth(is_ready=False, taints=set()),
        False,
    ),
    "an unreachable node may still run pods": (
        NodeHealth(is_ready=False, taints={UNREACHABLE}),
        False,
    ),
    "a node with the taint out-of-service": (
        NodeHealth(is_ready=False, taints={UNREACHABLE, OUT_OF_SERVICE}),
        True,
    ),
    "a ready node with the taint out-of-service": (
        NodeHealth(is_ready=True, taints={OUT_OF_SERVICE}),
        False,
    ),
}


@pytest.mark.parametrize(("node", "want"), NODES.values(), ids=NODES)
def test_is_lost(node: NodeHealth | None, want: bool) -> None:  # noqa: FBT001 - a table's
    assert lost_node.is_lost(node) is want


HINTED = an_eviction().hinted(deadline=after(60)).build()
ENDED = replace(HINTED, phase=Phase.TERMINATING, outcome=CheckpointOutcome.SAVED)

MOMENTS = {
    "before the victim is deleted": (HINTED, ENDED, True),
    "not before the victim's deadline": (HINTED, HINTED, False),
    "not after the grace period is chosen": (ENDED, ENDED, False),
    "not if another client has deleted it": (
        HINTED,
        replace(ENDED, outcome=CheckpointOutcome.OVERTAKEN),
        False,
    ),
}


@pytest.mark.parametrize(("before", "then", "want"), MOMENTS.values(), ids=MOMENTS)
def test_needs_node_check(before: Eviction, then: Eviction, want: bool) -> None:  # noqa: FBT001 - a table's
    assert (
        lost_node.needs_node_check(before, then, PolicySettings(force_delete_on_lost_nodes=True))
        is want
    )
    assert not lost_node.needs_node_check(before, then, PolicySettings())
