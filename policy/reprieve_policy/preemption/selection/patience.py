"""Whether a preemptor waits for room that may come by itself, instead of victims that lose much.

In a busy cluster, pods end all the time. A preemptor whose victims can save, or have just begun,
takes them at once. If even the best victims would lose more than its own devices lose by waiting
(`patience` times its devices), it waits: until it has waited for that long, and only while other
pods are leaving, because the end of each makes kube-scheduler look again.

Without this, a few pods that never save and were the only ones that a preemptor could take just
then are a third of all work lost.
"""

from reprieve_policy.config.settings import LOSS

from .reasons import PodEligibility
from .release import ReleaseCertainty
from .snapshot import Preemptor, Snapshot

_SOON = (ReleaseCertainty.BEING_DELETED, ReleaseCertainty.NOTIFIED)


def is_waiting(
    preemptor: Preemptor, loss: float, snapshot: Snapshot, pod_eligibility: PodEligibility
) -> bool:
    """Return whether it waits instead of taking victims that would lose `loss` device-seconds."""
    since, settings = preemptor.waiting_since, snapshot.settings
    patience = settings.patience_seconds
    if since is None or settings.victim_order != LOSS or loss <= patience * preemptor.devices:
        return False
    if (snapshot.now - since).total_seconds() >= patience:
        return False
    return any(
        pod.is_leaving and pod_eligibility.release_certainty(pod) in _SOON
        for node in snapshot.nodes.values()
        for pod in node.pods
    )
