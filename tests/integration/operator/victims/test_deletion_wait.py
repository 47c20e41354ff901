"""Who else holds a victim that has ended is said after a few seconds, and again once a minute, never more often."""

from types import SimpleNamespace
from typing import Any

import msgspec

from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.victims.deletion_wait import DeletionWait

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


def test_other_cleaners_are_named_again_each_minute_however_often_it_is_looked() -> None:
    now, told = 0.0, list[float]()
    tools: Any = SimpleNamespace(
        settings=OperatorSettings(identity="a"),
        clock=SimpleNamespace(monotonic=lambda: now),
        announcer=SimpleNamespace(event=lambda *_: told.append(now)),
    )
    ending = DeletionWait(tools)
    for second in range(185):
        now = float(second)
        assert ending.report_finalizers(HELD) > 0
    assert told == [3, 63, 123, 183]
