"""Whether a preemptor waits for room that may come by itself, instead of victims that lose much.

In a busy cluster, pods end all the time. A preemptor whose victims can save, or have just begun,
takes them at once. If those of them that cannot save would lose more than the preemptor's own
devices lose by waiting (`patience` times its devices), it waits: until it has waited for that long,
and only while another pod is being deleted that ends until then, because its end makes
kube-scheduler look again. It never waits for longer than the `ceiling`.

Without this, a few pods that never save and were the only ones that a preemptor could take just
then are a third of all work lost.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from reprieve_policy.config.settings import LOSS

from .snapshot import Preemptor, ScheduledPod, Snapshot

_OVERDUE = timedelta(seconds=5)
"""A pod that ends later than expected by more than this may be on a lost node, and never end."""


def is_waiting(preemptor: Preemptor, victims: Iterable[ScheduledPod], snapshot: Snapshot) -> bool:
    """Return whether it waits instead of taking these victims."""
    since, settings = preemptor.unschedulable_since, snapshot.settings
    if since is None or settings.victim_order != LOSS:
        return False
    longest_seconds = min(settings.patience_seconds, settings.ceiling_seconds)
    until = since + timedelta(seconds=longest_seconds)
    loss = sum(pod.loss(snapshot.now) for pod in victims if not pod.saves_at_its_end)
    return (
        loss > longest_seconds * preemptor.devices
        and snapshot.now < until
        and any(
            _ends_before(until, pod, snapshot.now)
            for node in snapshot.nodes.values()
            for pod in node.pods
        )
    )


def _ends_before(until: datetime, pod: ScheduledPod, now: datetime) -> bool:
    """True for a pod that is being deleted."""
    release = pod.release
    return (
        release is not None
        and release.is_being_deleted
        and release.expected_at is not None
        and now - _OVERDUE <= release.expected_at <= until
    )
