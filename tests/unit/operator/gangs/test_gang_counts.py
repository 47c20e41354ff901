"""A list of a gang's members that fails is made again only after a while."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.gangs import gang_counts, gate_pods
from reprieve_operator.gangs.gang_counts import GangCounts
from reprieve_runtime.client.api import Api, ApiError
from reprieve_testing.objects.builders import NOW


async def test_a_gang_whose_members_cannot_be_listed_is_listed_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without this, it would be listed twenty times a second while an API server restarts."""
    seconds, lists = [0.0], 0

    async def fail(*_: object) -> Any:
        nonlocal lists
        lists += 1
        raise ApiError(503, "ServiceUnavailable", "it restarts")

    monkeypatch.setattr(gate_pods, "list_members", fail)
    clock = Clock(now=lambda: NOW, monotonic=lambda: seconds[0])
    counts = GangCounts(cast("Api", None), clock, recount_seconds=10.0)
    counted = counts.new_gang()
    pod: Any = SimpleNamespace(regarding="team/a", metadata=SimpleNamespace(namespace="team"))
    for _ in range(100):
        counts.begin_pass()
        assert not await counts.count(counted, pod)
    assert (lists, counts.retry_seconds(counted)) == (1, gang_counts.RETRY_SECONDS)
    seconds[0] = gang_counts.RETRY_SECONDS
    counts.begin_pass()
    await counts.count(counted, pod)
    assert lists == 2
