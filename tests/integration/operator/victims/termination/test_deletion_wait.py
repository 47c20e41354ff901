"""Other finalizers on an ended victim are reported after a few seconds, then once a minute."""

from types import SimpleNamespace
from typing import Any

import msgspec

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.victims.termination.deletion_wait import DeletionWait

HELD = msgspec.convert(
    {
        "metadata": {
            "name": "p",
            "namespace": "team",
            "uid": "u",
            "finalizers": ["example.com/disk"],
        },
        "status": {"phase": "Succeeded"},
    },
    VictimPod,
)


def test_finalizers_of_others_are_reported_once_a_minute() -> None:
    now, reported_at = 0.0, list[float]()
    recorder: Any = SimpleNamespace(event=lambda *_: reported_at.append(now))
    deletion_wait = DeletionWait(
        recorder,
        Clock(monotonic=lambda: now),
        reread_seconds=30.0,
        cleanup_ceiling_seconds=300.0,
    )
    for second in range(185):
        now = float(second)
        assert deletion_wait.report_finalizers(HELD) > 0
    assert reported_at == [3, 63, 123, 183]
