"""The term of a leader: a failed resync is repeated soon; the health check finds a dead watch.

Preemptors are watched only if a victim names one.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from reprieve_operator import leader as terms
from reprieve_operator.background import background
from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.leader_election import LeaderElection
from reprieve_operator.cluster.policies import NamespacePolicies
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.leader import Leader, Term
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.resync import PodResync
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.unchecked_claims import UncheckedClaims
from reprieve_operator.uninstall import Uninstall
from reprieve_operator.victims.preemptors import Preemptors
from reprieve_operator.victims.watch import VictimWatch
from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_runtime.client.api import Api, ApiError
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

PODS, NAMESPACES = "/api/v1/pods", "/api/v1/namespaces"
SETTINGS = OperatorSettings(identity="a", sweep_interval_seconds=1000.0)


@dataclass
class FailingSweep:
    """Fails a given number of times."""

    failures: int
    runs: int = 0

    async def run_once(self) -> None:
        self.runs += 1
        if self.runs <= self.failures:
            raise ApiError(429, "TooManyRequests", "later")


@dataclass
class Leadership:
    is_leading: bool

    def require_leadership(self) -> float:
        assert self.is_leading
        return 60.0


def a_term(api: Api, metrics: OperatorMetrics | None = None) -> Leader:
    return Leader(api, api, SETTINGS, Clock(), metrics or OperatorMetrics())


async def test_a_failed_resync_is_repeated_soon_and_a_successful_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terms, "_RESYNC_RETRY_SECONDS", 0.01)
    sweep, metrics = FailingSweep(failures=2), OperatorMetrics()
    async with stub_api(tmp_path) as (_, api):
        sweeping = asyncio.create_task(
            a_term(api, metrics)._resync_loop(cast("PodResync", sweep), NamespacePolicies(api))
        )
        try:
            await until(
                lambda: bool(
                    metrics.registry.get_sample_value("reprieve_last_sweep_timestamp_seconds")
                )
            )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(sweeping), 0.2)
            assert (sweep.runs, sweeping.done()) == (3, False)
        finally:
            sweeping.cancel()


HEALTH = {
    "a leader whose watch delivers": (True, 10.0, True),
    "the API server is down, so that no replica leads": (False, 10_000.0, True),
    "a leader whose watch is silent": (True, 301.0, False),
}


@pytest.mark.parametrize(("leads", "silent_seconds", "is_healthy"), HEALTH.values(), ids=HEALTH)
async def test_only_a_silent_watch_with_a_renewed_lease_is_unhealthy(
    tmp_path: Path, *, leads: bool, silent_seconds: float, is_healthy: bool
) -> None:
    async with stub_api(tmp_path) as (_, api):
        term = a_term(api)
        assert term.is_healthy
        term.election = cast("LeaderElection", Leadership(leads))
        assert term.is_healthy
        watch = VictimWatch(api, lambda _: None, lambda _: None)
        term._term = cast("Term", SimpleNamespace(victim_watch=watch))
        assert term.is_healthy
        watch.reflector._last_response_at -= silent_seconds
        assert term.is_healthy is is_healthy


class StartedReflector:
    """Watches nothing."""

    def __init__(self) -> None:
        self.is_started = False

    async def run(self) -> None:
        self.is_started = True
        await asyncio.Event().wait()


async def test_no_victim_is_handled_before_the_policies_of_the_namespaces_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The default policy would not protect what theirs do."""
    monkeypatch.setattr(terms, "_POLICY_SECONDS", 0.01)
    async with stub_api(tmp_path, collections={PODS: {"victim": a_victim("2")}}) as (stub, api):
        stub.lists_released.set()
        stub.barred.add(NAMESPACES)
        leader = a_term(api)
        leader.election = cast("LeaderElection", Leadership(is_leading=True))
        leader.uninstall = cast("Uninstall", Uninstalling(is_gone=False))
        async with background(leader.policy.reflector.run, leader.lead):
            await until(lambda: stub.calls[NAMESPACES] >= 3)
            assert leader.term is None
            assert stub.calls[PODS] == 0
            assert leader.is_healthy
            monkeypatch.setattr(terms, "_MAX_WATCH_SILENCE_SECONDS", 0.0)
            assert not leader.is_healthy, "a restarted process may get a working connection"
            stub.barred.remove(NAMESPACES)
            await until(lambda: leader.term is not None)


async def test_preemptors_are_watched_once_a_victim_names_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reflector = StartedReflector()
    monkeypatch.setattr(Preemptors, "_make_reflector", lambda _: reflector)
    async with stub_api(tmp_path, collections={PODS: {"victim": a_victim("2")}}) as (stub, api):
        stub.lists_released.set()
        leader = a_term(api)
        leader.election = cast("LeaderElection", Leadership(is_leading=False))
        async with background(lambda: leader._run_controllers(NamespacePolicies(api))):
            await until(
                lambda: leader._term is not None and leader._term.victim_watch.reflector.is_synced
            )
            assert not reflector.is_started
            # The gate watches pods too.
            await until(lambda: stub.is_watched(PODS, keys.SOFT_EVICTION))
            stub.send("MODIFIED", a_victim("3", {keys.PREEMPTOR: "uid-of-high"}), only=PODS)
            await until(lambda: reflector.is_started)


def a_victim(version: str, annotations: dict[str, str] | None = None) -> Any:
    metadata = {
        "name": "victim",
        "namespace": "team",
        "uid": "uid-of-victim",
        "resourceVersion": version,
        "labels": {keys.SOFT_EVICTION: "requested"},
        "annotations": annotations or {},
    }
    return {"metadata": metadata, "spec": {"nodeName": "node"}, "status": {"phase": "Running"}}


@dataclass
class Uninstalling:
    """Whether the operator's Deployment is gone."""

    is_gone: bool

    async def is_in_progress(self) -> bool:
        return self.is_gone

    async def remember_deployment(self) -> None:
        pass


LAST = {
    "the last operator of an uninstallation": (True, True, 1),
    "an operator that another one follows": (True, False, 0),
    "an operator that another one has replaced": (False, True, 0),
}


@pytest.mark.parametrize(("leads", "is_gone", "released"), LAST.values(), ids=LAST)
async def test_only_the_last_operator_releases_its_victims_as_it_stops(
    tmp_path: Path, *, leads: bool, is_gone: bool, released: int
) -> None:
    async with stub_api(tmp_path) as (stub, api):
        leader = a_term(api)
        leader.election = cast("LeaderElection", Leadership(leads))
        writes = Writes(api, CallLimiter(4), leader.election, OperatorMetrics(), Clock())
        finalizers = [keys.CLEANUP_FINALIZER]
        held = {"name": "victim", "namespace": "team", "uid": "u", "finalizers": finalizers}
        stub.collections[PODS] = {"victim": {"metadata": held}}
        stub.on_patch = lambda *_: stub.collections[PODS].clear()
        stub.lists_released.set()
        leader.uninstall = cast("Uninstall", Uninstalling(is_gone))
        await leader._release_if_uninstalled(writes, [])
        assert len(stub.patches) == released


async def test_a_namespace_that_terminates_is_seen_and_reported(tmp_path: Path) -> None:
    found = {"metadata": {"name": "team", "resourceVersion": "2"}}
    async with stub_api(tmp_path, collections={NAMESPACES: {"team": found}}) as (stub, api):
        stub.lists_released.set()
        namespaces, ending = NamespacePolicies(api), list[str]()
        namespaces.on_terminating = ending.append
        async with background(namespaces.reflector.run):
            await until(lambda: stub.open_watches > 0)
            assert not namespaces.is_terminating("team")
            gone = {**found["metadata"], "deletionTimestamp": "2026-11-21T12:00:00Z"}
            stub.send("MODIFIED", {"metadata": gone}, only=NAMESPACES)
            await until(lambda: namespaces.is_terminating("team"))
        assert ending == ["team"]
        assert not namespaces.is_terminating("unknown")
        assert namespaces.get("team") == NamespacePolicy()


async def test_a_namespace_that_is_gone_has_no_series(tmp_path: Path) -> None:
    """Without this, one for each CI run would fill the memory."""
    found = {"metadata": {"name": "team", "resourceVersion": "2"}}
    async with stub_api(tmp_path, collections={NAMESPACES: {"team": found}}) as (stub, api):
        stub.lists_released.set()
        metrics = OperatorMetrics()
        leader = a_term(api, metrics)
        for name in ("team", "gone"):
            metrics.preemptions.labels(name, "priority").inc()
            metrics.failed_checkpoints.labels(name, "refused").inc()
            metrics.requeues.labels(name, "owner").inc()

        def namespaces() -> list[str]:
            shown = (sample for family in metrics.registry.collect() for sample in family.samples)
            return [one.labels["namespace"] for one in shown if "namespace" in one.labels]

        shown = namespaces().count("team")
        assert namespaces().count("gone") == shown > 0
        async with background(leader.policy.reflector.run, leader.lead):
            await until(lambda: "gone" not in namespaces())
        assert namespaces() == ["team"] * shown


HOLDS = {
    "a living pod": ({}, 1),
    "a pod that is being deleted": ({"deletionTimestamp": "2026-11-21T12:00:00Z"}, 1),
    "a pod of kube-system, which the operator does not write to": (
        {"namespace": "kube-system"},
        0,
    ),
    "a pod with the finalizers of others": ({"finalizers": ["example.com/disk"]}, 0),
}


@pytest.mark.parametrize(("metadata", "released"), HOLDS.values(), ids=HOLDS)
async def test_the_resync_removes_a_finalizer_that_no_eviction_needs(
    tmp_path: Path, metadata: Any, released: int
) -> None:
    """Without this, a pod that lost its state would be stuck when it is deleted."""
    identity = {"name": "p", "namespace": "team", "uid": "u", "resourceVersion": "7"}
    held = identity | {"finalizers": [keys.CLEANUP_FINALIZER]}
    collections = {PODS: {"p": {"metadata": held | metadata}}}
    async with stub_api(tmp_path, collections=collections) as (stub, api):
        stub.lists_released.set()
        await a_resync(api).run_once()
        assert [body["metadata"]["finalizers"] for _, body in stub.patches] == [[]] * released


async def test_a_resync_after_one_that_failed_midway_counts_each_pod_once(tmp_path: Path) -> None:
    """A gang whose pods counted twice would seem to be another one."""
    pod = {"metadata": {"name": "p", "namespace": "team", "uid": "u", "resourceVersion": "7"}}
    async with stub_api(tmp_path, collections={PODS: {"p": pod}}) as (stub, api):
        stub.lists_released.set()
        resync = a_resync(api)
        counted: list[str] = []
        monitor: Any = SimpleNamespace(
            begin=counted.clear,
            add_pod=lambda metadata: counted.append(metadata.uid),
            check_changed_namespaces=lambda: asyncio.sleep(0),
        )
        resync._divergence = monitor
        for _ in range(2):
            await resync.run_once()
        assert counted == ["u"]


def a_resync(api: Api, clock: Clock | None = None) -> PodResync:
    election = cast("LeaderElection", Leadership(is_leading=True))
    writes = Writes(api, CallLimiter(4), election, OperatorMetrics(), Clock())
    divergence: Any = SimpleNamespace(
        begin=lambda: None,
        add_pod=lambda _: None,
        check_changed_namespaces=lambda: asyncio.sleep(0),
    )
    registry: Any = set()
    recorder = cast("EventRecorder", None)
    claims = UncheckedClaims(writes, recorder, OperatorMetrics())
    return PodResync(api, writes, registry, recorder, divergence, claims, clock or Clock())


UNWRITABLE = {
    "forbidden": 403,
    "full of annotations": 422,
    "too large for the API server": 413,
    "too large for etcd, or refused by a webhook that fails": 500,
}


@pytest.mark.parametrize("status", UNWRITABLE.values(), ids=UNWRITABLE)
async def test_a_pod_that_cannot_be_written_keeps_the_resync_from_no_other_pod(
    tmp_path: Path, status: int
) -> None:
    """Without this, a tenant with one such pod would end the resync of the whole cluster."""
    held = {"namespace": "team", "finalizers": [keys.CLEANUP_FINALIZER]}
    pods = {name: {"metadata": {"name": name, "uid": name, **held}} for name in ("one", "two")}
    async with stub_api(tmp_path, collections={PODS: pods}) as (stub, api):
        stub.lists_released.set()
        stub.refuses = {f"{NAMESPACES}/team/pods/one": status}
        await a_resync(api).run_once()
        assert patched_pods(stub)[-1] == "two"


def pods_to_repair(*names: str) -> dict[str, Any]:
    """Return pods with a left-over finalizer, by name: `NAMESPACE/NAME`."""
    pods = {}
    for key in names:
        namespace, _, name = key.partition("/")
        identity = {"namespace": namespace, "name": name, "uid": name}
        pods[name] = {"metadata": {**identity, "finalizers": [keys.CLEANUP_FINALIZER]}}
    return pods


BUSY = [f"busy-{number}/{number}" for number in range(5)]


@pytest.mark.parametrize("status", [429, 503])
async def test_a_pod_whose_webhook_says_that_it_is_busy_keeps_the_resync_from_no_other_namespace(
    tmp_path: Path, status: int
) -> None:
    """A webhook chooses the status. Without this, one such pod would end each resync."""
    pods = pods_to_repair("a/1", "a/2", "b/3", "c/4")
    async with stub_api(tmp_path, collections={PODS: pods}) as (stub, api):
        stub.lists_released.set()
        stub.refuses = {f"{NAMESPACES}/a/pods/{name}": status for name in "12"}
        resync = a_resync(api, Clock(monotonic=lambda: 0.0))
        await resync.run_once()
        assert patched_pods(stub) == ["1", "3", "4"], "the Namespace rests"
        await resync.run_once()
        assert patched_pods(stub)[3:] == ["3", "4"]


async def test_a_resync_ends_where_three_namespaces_in_a_row_are_refused_as_an_overload(
    tmp_path: Path,
) -> None:
    """It is repeated soon. Each further pod would only add to the load."""
    pods = pods_to_repair(*BUSY)
    async with stub_api(tmp_path, collections={PODS: pods}) as (stub, api):
        stub.lists_released.set()
        stub.refuses = {f"{NAMESPACES}/busy-{name}/pods/{name}": 429 for name in pods}
        with pytest.raises(ApiError):
            await a_resync(api).run_once()
        assert patched_pods(stub) == ["0", "1", "2"]


async def test_a_tenant_with_many_namespaces_that_are_refused_ends_few_resyncs(
    tmp_path: Path,
) -> None:
    """Each counts once while it is refused in each resync."""
    pods = pods_to_repair(*BUSY, "team/last")
    later = 0.0
    async with stub_api(tmp_path, collections={PODS: pods}) as (stub, api):
        stub.lists_released.set()
        stub.refuses = {f"{NAMESPACES}/busy-{name}/pods/{name}": 503 for name in pods}
        resync = a_resync(api, Clock(monotonic=lambda: later))
        with pytest.raises(ApiError):
            await resync.run_once()
        for _ in range(3):
            later += 10.0
            await resync.run_once()
        assert patched_pods(stub).count("last") == 3


async def test_a_namespace_whose_webhook_takes_nine_seconds_rests_whatever_it_answers(
    tmp_path: Path,
) -> None:
    """Without this, a thousand such pods would take hours, and no resync would end."""
    pods = pods_to_repair("denied/1", "denied/2", "allowed/3", "allowed/4", "team/5", "team/6")
    async with stub_api(tmp_path, collections={PODS: pods}) as (stub, api):
        stub.lists_released.set()
        stub.refuses = {f"{NAMESPACES}/denied/pods/{name}": 500 for name in "12"}

        def now() -> float:
            return 9.0 * sum(name in "1234" for name in patched_pods(stub))

        await a_resync(api, Clock(monotonic=now)).run_once()
        assert patched_pods(stub) == ["1", "3", "5", "6"]


@pytest.mark.parametrize("status", [0, 504])
async def test_a_pod_whose_repair_gets_no_answer_ends_the_repairs_of_its_namespace_only(
    tmp_path: Path, status: int
) -> None:
    """Each call about it takes ten seconds, as behind a webhook that does not answer."""
    held = {"finalizers": [keys.CLEANUP_FINALIZER]}
    pods = {
        name: {"metadata": {"namespace": namespace, "name": name, "uid": name, **held}}
        for namespace, name in (("slow", "one"), ("slow", "two"), ("team", "three"))
    }
    later = 0.0
    async with stub_api(tmp_path, collections={PODS: pods}) as (stub, api):
        stub.lists_released.set()
        stub.refuses = {f"{NAMESPACES}/slow/pods/one": status}
        resync = a_resync(
            api, Clock(monotonic=lambda: later + 10.0 * patched_pods(stub).count("one"))
        )
        await resync.run_once()
        assert patched_pods(stub) == ["one", "three"]
        later = 50.0
        await resync.run_once()
        assert patched_pods(stub)[2:] == ["two", "three"]


def patched_pods(stub: StubApi) -> list[str]:
    return [path.rpartition("/")[2] for path, _ in stub.patches]
