"""Claims to be non-preemptible from before the installation are counted, and each is told once."""

from pathlib import Path
from typing import Any, cast

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.leader_election import LeaderElection
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.unchecked_claims import CONFIGURATION, UncheckedClaims
from reprieve_policy import keys
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_testing.servers.stub_api import stub_api

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
INSTALLED = {
    "metadata": {"name": CONFIGURATION, "creationTimestamp": "2026-11-20T12:00:00Z"},
}


class RecordedReasons:
    def __init__(self) -> None:
        self.names: list[tuple[str, str]] = []

    def event(self, regarding: Any, reason: str, _note: str, *, once: bool) -> None:
        assert once
        self.names.append((reason, regarding.name))


def a_pod(name: str, created: str) -> VersionedMeta:
    return VersionedMeta(
        name=name,
        namespace="team",
        uid=name,
        creationTimestamp=created,
        labels={keys.PREEMPTIBLE: "false"},
    )


OLD, NEW = a_pod("old", "2026-11-20T11:59:59Z"), a_pod("new", "2026-11-20T12:00:01Z")


@pytest.mark.parametrize(
    ("stubbed", "found"),
    [
        ({"collections": {CONFIGURATIONS: {CONFIGURATION: INSTALLED}}}, 1),
        ({"collections": {CONFIGURATIONS: {}}}, 0),
        ({"barred": {f"{CONFIGURATIONS}/{CONFIGURATION}"}}, 0),
    ],
    ids=["installed", "not installed", "without the right"],
)
async def test_claims_from_before_the_installation_are_reported(
    tmp_path: Path, stubbed: Any, found: int
) -> None:
    recorded, metrics = RecordedReasons(), OperatorMetrics()
    async with stub_api(tmp_path, **stubbed) as (_, api):
        writes = Writes(api, CallLimiter(1), cast("LeaderElection", None), metrics, Clock())
        claims = UncheckedClaims(writes, cast("EventRecorder", recorded), metrics)
        for _ in range(2):
            await claims.begin()
            claims.add_pods([OLD, NEW])
            claims.finish()
    assert metrics.registry.get_sample_value("reprieve_unchecked_claims") == found
    assert recorded.names == [("ProtectionUnchecked", "old")] * found
