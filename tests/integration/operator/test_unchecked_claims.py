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
from reprieve_operator.unchecked_claims import CONFIGURATION, POLICY, UncheckedClaims
from reprieve_policy import keys
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_testing.servers.stub_api import stub_api

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
INSTALLED, UPGRADED = "2026-11-20T12:00:00Z", "2026-11-24T12:00:00Z"


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


def created(configuration: str = "", policy: str = "") -> Any:
    """Return the two objects, created at these times; without a time, one is not there."""
    objects = {
        CONFIGURATIONS: {CONFIGURATION: configuration},
        POLICIES: {POLICY: policy},
    }
    return {
        "collections": {
            path: {
                name: {"metadata": {"name": name, "creationTimestamp": moment}}
                for name, moment in named.items()
                if moment
            }
            for path, named in objects.items()
        }
    }


CASES: dict[str, tuple[Any, list[str]]] = {
    "installed": (created(INSTALLED, INSTALLED), ["old"]),
    "upgraded from a version that did not check all claims": (
        created(INSTALLED, UPGRADED),
        ["old", "new"],
    ),
    "the configuration was deleted for a while": (created(UPGRADED, INSTALLED), ["old", "new"]),
    "without the policy": (created(INSTALLED), ["old"]),
    "without the right to read the policy": (
        created(INSTALLED) | {"barred": {f"{POLICIES}/{POLICY}"}},
        ["old"],
    ),
    "not installed": (created(), []),
    "without the right": (created() | {"barred": {f"{CONFIGURATIONS}/{CONFIGURATION}"}}, []),
}


@pytest.mark.parametrize(("stubbed", "found"), CASES.values(), ids=CASES)
async def test_claims_from_before_they_were_checked_are_reported(
    tmp_path: Path, stubbed: Any, found: list[str]
) -> None:
    recorded, metrics = RecordedReasons(), OperatorMetrics()
    async with stub_api(tmp_path, **stubbed) as (_, api):
        writes = Writes(api, CallLimiter(1), cast("LeaderElection", None), metrics, Clock())
        claims = UncheckedClaims(writes, cast("EventRecorder", recorded), metrics)
        for _ in range(2):
            await claims.begin()
            claims.add_pods([OLD, NEW])
            claims.finish()
    assert metrics.registry.get_sample_value("reprieve_unchecked_claims") == len(found)
    assert recorded.names == [("ProtectionUnchecked", name) for name in found]
