"""The facts of the gang gate: the operator's Lease, and how many pods an owner makes."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import ObjectMeta, OwnerReference, Resource, Spec
from reprieve_runtime.rate_limit import Rate, RateLimits
from reprieve_testing.servers.reviews import a_pod, a_review, patch_of, running_server
from reprieve_testing.servers.stub_api import StubApi, stub_api, until
from reprieve_webhooks.admission.review import AdmissionRequest, GroupVersionKind
from reprieve_webhooks.facts import gate_facts
from reprieve_webhooks.facts.cluster_facts import ClusterFacts
from reprieve_webhooks.lookups.limits import DEFAULT_LIMITS

LEASES = "/apis/coordination.k8s.io/v1/namespaces/reprieve-system/leases"
JOBS = "/apis/batch/v1/namespaces/team/jobs"
SETS = "/apis/apps/v1/namespaces/team/statefulsets"


class Cluster:
    """The stub, and the facts that are read from it."""

    def __init__(self, stub: StubApi, facts: ClusterFacts) -> None:
        self.stub, self.facts = stub, facts

    async def facts_of(self, *, labels: dict[str, str] | None = None, **owner: str) -> Facts:
        said = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "of-train"} | owner
        reference = OwnerReference(**said, controller=True)
        gang = (
            {keys.OLD_POD_GROUP: "train", keys.OLD_MIN_AVAILABLE: "4"} if labels is None else labels
        )
        metadata = ObjectMeta(name="p", labels=gang, ownerReferences=(reference,))
        request = AdmissionRequest(
            uid="1", operation="CREATE", kind=GroupVersionKind("Pod"), namespace="team"
        )
        return await self.facts.facts_for(
            request, Resource(kind="Pod", metadata=metadata, spec=Spec())
        )

    async def renew(self) -> None:
        """Renew the Lease twice: the first that is seen says nothing."""
        for second in range(2):
            self.stub.send("MODIFIED", a_lease(f"2026-11-21T12:00:0{second}Z"), LEASES)
        await self.until(lambda: self.facts._gate.has_leader)

    until = staticmethod(until)


@asynccontextmanager
async def cluster(
    directory: Path, *, gate: str = "true", **collections: Any
) -> AsyncIterator[Cluster]:
    metadata = {"name": "reprieve-policy", "namespace": "reprieve-system", "resourceVersion": "8"}
    known = {
        "/api/v1/namespaces": {"team": {"kind": "Namespace", "metadata": {"name": "team"}}},
        "/api/v1/namespaces/reprieve-system/configmaps": {
            "p": {"metadata": metadata, "data": {"gangGate": gate}}
        },
        JOBS: {"train": a_job(4)},
        SETS: {"train": a_set("Parallel")},
        **collections,
    }
    async with stub_api(directory, collections=known) as (stub, api):
        facts = ClusterFacts(api, "reprieve-system", "reprieve-policy", lookup_timeout_seconds=60.0)
        running = asyncio.create_task(facts.run())
        made = Cluster(stub, facts)
        try:
            stub.lists_released.set()
            await made.until(lambda: stub.open_watches == len(facts.watches()))
            yield made
        finally:
            running.cancel()
            await asyncio.wait([running])


def a_lease(renewed: str, holder: str = "a") -> Any:
    metadata = {"name": "reprieve-operator", "namespace": "reprieve-system", "resourceVersion": "9"}
    return {
        "metadata": metadata,
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
    }


def a_job(parallelism: int) -> Any:
    return {
        "kind": "Job",
        "metadata": {"name": "train", "uid": "of-train"},
        "spec": {"parallelism": parallelism},
    }


def a_set(policy: str, **status: str) -> Any:
    spec = {"replicas": 4, "podManagementPolicy": policy}
    return {
        "kind": "StatefulSet",
        "metadata": {"name": "train", "uid": "of-train"},
        "spec": spec,
        "status": status,
    }


async def test_all_pods_of_a_burst_cost_one_read_of_their_owner(tmp_path: Path):
    async with cluster(tmp_path) as ready:
        await ready.renew()
        found = await asyncio.gather(*(ready.facts_of() for _ in range(200)))

        assert {(facts.operator_opens_gates, facts.pods_created_together) for facts in found} == {
            (True, 4)
        }
        assert ready.stub.calls[f"{JOBS}/train"] == 1


async def test_a_stateful_set_is_read_for_how_it_makes_its_pods(tmp_path: Path):
    kind = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
    async with cluster(tmp_path) as ready:
        await ready.renew()
        assert (await ready.facts_of(**kind)).pods_created_together == 4
    async with cluster(tmp_path, **{SETS: {"train": a_set("OrderedReady")}}) as ready:
        await ready.renew()
        assert (await ready.facts_of(**kind)).pods_created_together == 1


async def test_a_rollout_that_has_just_begun_counts(tmp_path: Path):
    kind = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
    async with cluster(tmp_path) as ready:
        await ready.renew()
        assert (await ready.facts_of(**kind)).pods_created_together == 4
        ready.stub.collections[SETS]["train"] = a_set(
            "Parallel", currentRevision="1", updateRevision="2"
        )
        assert (await ready.facts_of(**kind)).pods_created_together == 1


async def test_a_namespace_whose_share_is_used_up_gets_the_status_that_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Without it, the last pods of a large StatefulSet would not wait for their gang."""
    one_call = RateLimits(DEFAULT_LIMITS.total, per_namespace=Rate(1e-9, 1))
    monkeypatch.setattr(gate_facts, "FAIR_LIMITS", one_call)
    kind = {"apiVersion": "apps/v1", "kind": "StatefulSet"}
    async with cluster(tmp_path) as ready:
        await ready.renew()
        found = [(await ready.facts_of(**kind)).pods_created_together for _ in range(3)]
    assert found == [4, 4, 4]


NOT_READ = {
    "the gate is switched off": ({"gate": "false"}, {}),
    "the pod is in no gang": ({}, {"labels": {}}),
    "another group has a kind of that name": ({}, {"apiVersion": "batch.volcano.sh/v1alpha1"}),
    "the owner is of an unknown kind": ({}, {"kind": "Trainer"}),
    "the name is a path": ({}, {"name": "../../../v1/secrets"}),
    "the name is two dots": ({}, {"name": ".."}),
}


@pytest.mark.parametrize(("setting", "pod"), NOT_READ.values(), ids=NOT_READ)
async def test_no_owner_is_read_if(tmp_path: Path, setting: Any, pod: Any):
    async with cluster(tmp_path, **setting) as ready:
        await ready.renew()
        before = ready.stub.calls.copy()

        assert (await ready.facts_of(**pod)).pods_created_together == 1
        assert ready.stub.calls == before


async def test_without_an_operator_no_owner_is_read(tmp_path: Path):
    async with cluster(tmp_path) as ready:
        facts = await ready.facts_of()

        assert not facts.operator_is_live
        assert not facts.operator_opens_gates
        assert ready.stub.calls[f"{JOBS}/train"] == 0


def released() -> Any:
    return a_lease("2026-11-21T12:00:01Z", holder="")


async def test_the_guard_counts_an_operator_that_is_replaced_as_live_and_the_gate_does_not(
    tmp_path: Path,
):
    """Evictions that have begun continue, also where drains and schedulers ask in between."""
    async with cluster(tmp_path) as ready:
        await ready.renew()
        ready.stub.send("MODIFIED", released(), LEASES)
        await ready.until(lambda: not ready.facts._gate.has_leader)
        for facts in (await ready.facts_of(), ready.facts.watched_facts("team")):
            assert facts.operator_is_live
            assert not facts.operator_opens_gates


async def test_a_process_that_has_just_started_counts_the_holder_of_the_lease_as_live(
    tmp_path: Path,
):
    async with cluster(tmp_path, **{LEASES: {"l": a_lease("2026-11-21T12:00:00Z")}}) as ready:
        facts = await ready.facts_of()
        assert facts.operator_is_live
        assert not facts.operator_opens_gates, "it may have ended long ago"
    async with cluster(tmp_path, **{LEASES: {"l": released()}}) as ready:
        facts = await ready.facts_of()
        assert facts.operator_is_live, "cluster and operator were stopped, and start again"
        assert not facts.operator_opens_gates
    async with cluster(tmp_path) as ready:
        assert not (await ready.facts_of()).operator_is_live, "there never was one"


async def test_an_operator_is_lost_only_once_the_watch_has_shown_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """While the API server is away, or a watch is dead, an operator may lead unseen."""
    monkeypatch.setattr(gate_facts, "_FAILOVER_SECONDS", 0.0)
    async with cluster(tmp_path) as ready:
        await ready.renew()
        ready.facts._gate._liveness._led_until = time.monotonic()
        assert (await ready.facts_of()).operator_is_live
        ready.stub.send("BOOKMARK", {"metadata": {"resourceVersion": "10"}}, LEASES)
        await ready.until(lambda: not ready.facts.watched_facts("team").operator_is_live)


async def test_after_the_api_server_was_away_the_operator_has_a_minute_to_lead_again(
    tmp_path: Path,
):
    held = a_lease("2026-11-21T12:00:00Z")
    async with cluster(tmp_path, **{LEASES: {"l": held}}) as ready:
        ready.facts._gate._liveness._led_until -= 3600
        assert not (await ready.facts_of()).operator_is_live
        # It is listed again, as after any interruption in which its version grew too old.
        ready.stub.send("ERROR", {"code": 410, "reason": "Expired"}, LEASES)
        await ready.until(lambda: ready.facts.watched_facts("team").operator_is_live)


async def test_an_unreadable_owner_lets_the_pod_run_without_the_gate_and_fails_no_review(
    tmp_path: Path,
):
    async with cluster(tmp_path) as ready:
        await ready.renew()
        ready.stub.is_failing = True
        facts = await ready.facts_of()

        assert (facts.operator_opens_gates, facts.pods_created_together) == (True, 1)


async def test_an_owner_created_again_under_its_name_is_another(tmp_path: Path):
    async with cluster(tmp_path) as ready:
        await ready.renew()
        assert (await ready.facts_of(uid="of-the-one-before")).pods_created_together == 1
        assert (await ready.facts_of(name="gone")).pods_created_together == 1


GATES = {
    "no scheduling gates": {},
    "gates are null": {"schedulingGates": None},
    "gates are empty": {"schedulingGates": []},
    "gates of other controllers": {"schedulingGates": [{"name": "example.com/quota"}]},
}


@pytest.mark.parametrize("spec", GATES.values(), ids=GATES)
async def test_the_gate_is_added_if(spec: Any):
    pod = a_pod(labels={keys.OLD_POD_GROUP: "train", keys.OLD_MIN_AVAILABLE: "4"})
    pod["spec"] |= spec
    async with running_server() as server:
        server.source.facts = Facts(
            settings=PolicySettings(gang_gate=True),
            operator_opens_gates=True,
            pods_created_together=4,
        )
        patched = jsonpatch.apply_patch(pod, patch_of(await server.ask("/mutate", a_review(pod))))
        again = jsonpatch.apply_patch(
            patched, patch_of(await server.ask("/mutate", a_review(patched)))
        )

    assert patched["spec"]["schedulingGates"] == [
        *(spec.get("schedulingGates") or []),
        {"name": keys.GANG_GATE},
    ]
    assert patched["metadata"]["labels"][keys.GANG_GATE_LABEL] == "waiting"
    assert again == patched, "reinvoked, it adds nothing"


async def test_pods_are_held_during_a_failover_by_a_process_that_has_seen_a_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with cluster(tmp_path) as ready:
        assert not (await ready.facts_of()).operator_opens_gates, "no operator was seen yet"
        await ready.renew()
        ready.facts._gate._liveness._led_until = time.monotonic()
        assert not ready.facts._gate.has_leader
        assert (await ready.facts_of()).operator_opens_gates
        ready.stub.send("MODIFIED", released(), LEASES)
        await ready.until(lambda: not ready.facts._gate.opens_gates)
        assert not (await ready.facts_of()).operator_opens_gates, "one that is stopped says so"
        await ready.renew()
        ready.facts._gate._liveness._led_until = time.monotonic()
        assert (await ready.facts_of()).operator_opens_gates
        monkeypatch.setattr(gate_facts, "_FAILOVER_SECONDS", 0.0)
        ready.stub.send("BOOKMARK", {"metadata": {"resourceVersion": "10"}}, LEASES)
        await ready.until(lambda: not ready.facts._gate.opens_gates)


async def test_what_is_read_of_a_new_pod_of_a_gang_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may take as long as a read may, and together they must not outlast the review."""
    all_began = asyncio.Barrier(3)
    async with cluster(tmp_path) as ready:
        await ready.renew()

        def waits_for_the_others(found: Any) -> Any:
            async def read(*_: object) -> Any:
                await all_began.wait()
                return found

            return read

        facts = ready.facts
        monkeypatch.setattr(facts._inheritance, "find_entry", waits_for_the_others(None))
        monkeypatch.setattr(facts._gang_statements, "find", waits_for_the_others(None))
        monkeypatch.setattr(facts._gate, "count_created_together", waits_for_the_others(4))
        async with asyncio.timeout(60):
            assert (await ready.facts_of()).pods_created_together == 4
