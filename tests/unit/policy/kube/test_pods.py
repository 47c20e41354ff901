"""Whether a pod has ended, or is about to."""

import pytest

from reprieve_policy.kube import pods
from reprieve_policy.kube.objects import ObjectMeta
from reprieve_policy.kube.pods import Pod, PodStatus

DELETED = ObjectMeta(deletionTimestamp="2026-11-21T12:00:00Z")


@pytest.mark.parametrize(
    ("phase", "has_ended"),
    [("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True), ("", False)],
)
def test_a_pod_that_has_ended_is_terminating(phase: str, has_ended: bool) -> None:  # noqa: FBT001
    pod = Pod(status=PodStatus(phase=phase))
    assert pods.has_ended(pod) is has_ended
    assert pods.is_terminating(pod) is has_ended


def test_a_deleted_pod_is_terminating_and_has_not_ended() -> None:
    pod = Pod(metadata=DELETED, status=PodStatus(phase="Running"))
    assert pods.is_terminating(pod)
    assert not pods.has_ended(pod)
