"""The watch's use of kopf, as far as it can be seen without an API server."""

from typing import Any

import pytest

from reprieve_operator.settings import OperatorSettings
from reprieve_operator.watch import PodWatch


async def test_kopf_need_not_know_the_name_of_the_user_it_runs_as(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod's user is a number without a name."""
    said: dict[str, Any] = {}
    monkeypatch.setattr("kopf.run", said.update)
    watch = PodWatch(OperatorSettings(identity="replica-1"), lambda *_: None)
    watch.start()
    await watch.wait_ended()
    assert said["identity"] == "replica-1"
