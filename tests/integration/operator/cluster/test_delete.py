"""The DELETE is conditional on the uid and the version on which the decision was made."""

from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.leader_election import LeaderElection
from reprieve_operator.cluster.pods import VictimPod, without_version
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_runtime.client.api import ApiError
from reprieve_testing.objects.builders import NOW

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
    """Answers a DELETE with a status, and records its options."""

    def __init__(self, status: int) -> None:
        self.status, self.options = status, {}

    async def delete(self, _: str, options: dict[str, Any]) -> None:
        self.options = options
        if self.status >= 400:
            raise ApiError(self.status, "Reason", "message")


class Leader:
    """An election that this replica has won."""

    def require_leadership(self) -> float:
        return 5.0


def writes(server: Server) -> Writes:
    clock = Clock(now=lambda: NOW, monotonic=lambda: 0.0, wall=lambda: 0.0)
    return Writes(
        cast("Api", server),
        CallLimiter(1),
        cast("LeaderElection", Leader()),
        OperatorMetrics(),
        clock,
    )


async def test_a_delete_is_conditional_on_the_version_so_that_a_late_one_is_refused() -> None:
    server = Server(200)
    assert await writes(server).delete_pod(POD, STATE) is True
    assert server.options["preconditions"] == {"uid": "u", "resourceVersion": "7"}
    assert server.options["gracePeriodSeconds"] == 30


async def test_a_pod_without_a_version_is_deleted_by_its_uid_alone() -> None:
    server = Server(200)
    assert await writes(server).delete_pod(without_version(POD), STATE) is True
    assert server.options["preconditions"] == {"uid": "u"}


async def test_the_delete_of_a_pod_that_is_gone_deletes_nothing() -> None:
    assert await writes(Server(404)).delete_pod(POD, STATE) is False


async def test_a_conflict_is_raised_so_that_the_pod_is_read_again() -> None:
    with pytest.raises(ApiError, match="409"):
        await writes(Server(409)).delete_pod(POD, STATE)
