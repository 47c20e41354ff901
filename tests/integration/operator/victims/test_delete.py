"""The DELETE: of the very object, at the very version, that was decided on."""

from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.leader_election import LeaderElection
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_runtime.client.api import ApiError
from reprieve_testing.builders import NOW

if TYPE_CHECKING:
    from reprieve_runtime.client.api import Api

POD = msgspec.convert(
    {
        "metadata": {"name": "p", "namespace": "team", "uid": "u", "resourceVersion": "7"},
        "status": {},
    },
    VictimPod,
)
STATE = Eviction(
    eviction_id="e", phase=Phase.TERMINATING, requested_at=NOW, deadline=NOW, grace_seconds=30
)


class Server:
    """Answers a DELETE with a status, and keeps what it was told."""

    def __init__(self, status: int) -> None:
        self.status, self.options = status, {}

    async def delete(self, _: str, options: dict[str, Any]) -> None:
        self.options = options
        if self.status >= 400:
            raise ApiError(self.status, "Reason", "message")


class Leader:
    """An election that is won."""

    def require_leadership(self) -> float:
        return 5.0


def effects(server: Server) -> Writes:
    clock = Clock(now=lambda: NOW, monotonic=lambda: 0.0, wall=lambda: 0.0)
    return Writes(
        cast("Api", server),
        CallLimiter(1),
        cast("LeaderElection", Leader()),
        OperatorMetrics(),
        clock,
    )


async def test_it_is_of_this_version_so_that_one_that_lands_late_is_no_second_one() -> None:
    server = Server(200)
    assert await effects(server).delete_pod(POD, STATE) is True
    assert server.options["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    assert server.options["gracePeriodSeconds"] == 30


async def test_of_one_that_is_gone_there_is_nothing_to_delete() -> None:
    assert await effects(Server(404)).delete_pod(POD, STATE) is False


async def test_one_that_changed_meanwhile_is_looked_at_again() -> None:
    with pytest.raises(ApiError, match="409"):
        await effects(Server(409)).delete_pod(POD, STATE)
