"""Whether a preemptor waits for room that may come by itself, instead of victims that lose much.

In a busy cluster, pods end all the time. A preemptor whose victims can save, or have just begun,
takes them at once. If those of them that cannot save would lose more than the preemptor's own
devices lose by waiting (`patience` times its devices), it waits: until it has waited for that long,
and only while another pod is being deleted that ends within that time, because its end makes
kube-scheduler look again.

Without this, a few pods that never save and were the only ones that a preemptor could take just
then are a third of all work lost.
"""

from collections.abc import Iterable
from datetime import timedelta

from reprieve_policy.config.settings import LOSS

from .snapshot import Preemptor, ScheduledPod, Snapshot


def is_waiting(preemptor: Preemptor, victims: Iterable[ScheduledPod], snapshot: Snapshot) -> bool:
    """Return whether it waits instead of taking these victims."""
    since, settings = preemptor.waiting_since, snapshot.settings
    if since is None or settings.victim_order != LOSS:
        return False
    longest = timedelta(seconds=settings.patience_seconds)
    loss = sum(pod.loss(snapshot.now) for pod in victims if not pod.saves_at_its_end)
    return (
        loss > settings.patience_seconds * preemptor.devices
        and snapshot.now - since < longest
        and any(
            _ends_within(longest, pod, snapshot)
            for node in snapshot.nodes.values()
            for pod in node.pods
        )
    )


def _ends_within(longest: timedelta, pod: ScheduledPod, snapshot: Snapshot) -> bool:
    """True for a pod that is being deleted; one that is overdue by so much may never end."""
    release = pod.release
    return (
        release is not None
        and release.is_being_deleted
        and release.expected_at is not None
        and abs(release.expected_at - snapshot.now) <= longest
    )
