"""The grace period of a victim's DELETE: the seconds between SIGTERM and SIGKILL."""

from datetime import datetime

from reprieve_policy.checkpointing.checkpoint_plan import CheckpointPlan
from reprieve_policy.config.settings import PolicySettings

from . import termination
from .eviction import CheckpointOutcome, Eviction

MIN_GRACE_SECONDS = 1
"""Not 0: that removes the object without the kubelet's word, and a StatefulSet then runs the pod
twice."""


def usual_grace_seconds(pod_grace_seconds: int, settings: PolicySettings) -> int:
    """Return the grace period of a pod that gets no time for a save: its own, up to the cap."""
    return max(MIN_GRACE_SECONDS, min(pod_grace_seconds, settings.grace_cap_seconds))


def decide_grace_seconds(
    eviction: Eviction,
    pod_grace_seconds: int,
    plan: CheckpointPlan,
    settings: PolicySettings,
    now: datetime,
    *,
    is_node_lost: bool,
) -> int:
    """Return the grace period: the pod's own, shortened by the mark and by the admin.

    A workload that saves on SIGTERM gets the time for its save, at most until the ceiling, if that
    is longer. The grace is below one second only on a lost node.
    """
    if settings.force_delete_on_lost_nodes and is_node_lost:
        return 0
    asked = eviction.mark_grace_seconds
    limit = pod_grace_seconds if asked is None else min(pod_grace_seconds, asked)
    usual = usual_grace_seconds(limit, settings)
    if eviction.outcome is not CheckpointOutcome.ON_SIGTERM:
        return usual
    left = termination.ceiling_of(eviction, settings) - now
    # If the clock was set back, more than the whole ceiling is left.
    longest = min(int(left.total_seconds()), settings.ceiling_seconds)
    return max(usual, min(plan.save_seconds, longest))
