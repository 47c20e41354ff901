"""The reclaim of lent nodes by the operator, on a stub API server: its reads, marks and Events."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.leader_election import LeaderElection, NotLeading
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_operator.reclaim import marker
from reprieve_operator.reclaim.controller import ReclaimController
from reprieve_operator.victims.reporter import Reporter
from reprieve_policy import keys
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle.victim_set import VictimSetKey
from reprieve_policy.preemption import reclaim
from reprieve_testing.objects.builders import NOW
from reprieve_testing.operator_parts import Leadership
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

NODES, ALL = "/api/v1/nodes", "/api/v1/pods"
HOME, TEAM = "/api/v1/namespaces/home/pods", "/api/v1/namespaces/team/pods"
JOBS = "/apis/batch/v1/namespaces/team/jobs"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/team/podgroups"
BUDGETS = "/apis/policy/v1/namespaces/team/poddisruptionbudgets"
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/elasticquotas"
KEY = keys.HOME_NAMESPACE
TAINT = {"key": KEY, "value": "home", "effect": "NoSchedule"}


@dataclass
class Recorded:
    """Collects Events."""

    events: list[tuple[str, str, str]] = field(default_factory=list)

    def event(self, regarding: ObjectReference, reason: str, note: str) -> None:
        self.events.append((f"{regarding.kind}/{regarding.name}", reason, note))


@dataclass
class Policy:
    """The current policy, and the warnings about it."""

    current: PolicySettings
    warnings: list[str] = field(default_factory=list)

    def record_warning(self, reason: str, _note: str) -> None:
        self.warnings.append(reason)


class Namespaces:
    """All have the default policy."""

    def get(self, _name: str) -> NamespacePolicy:
        return NamespacePolicy()


@dataclass
class World:
    """A running controller with its collaborators."""

    stub: StubApi
    recorded: Recorded
    policy: Policy
    leadership: Leadership
    controller: ReclaimController
    left: list[VictimSetKey]
    metrics: OperatorMetrics
    running: asyncio.Task[None]

    def marked(self) -> list[str]:
        return [path.rpartition("/")[2] for path, _ in self.stub.patches]

    async def passes(self, count: int = 3) -> None:
        """Wait for more passes: each lists the pending pods of the home Namespace."""
        before = self.stub.calls[HOME]
        await until(lambda: self.stub.calls[HOME] >= before + count)


def a_node(name: str = "n", *, taints: Any = (), labels: Any = None) -> Any:
    own = {KEY: "home"} if labels is None else labels
    return {
        "metadata": {"name": name, "uid": f"uid-of-{name}", "labels": own},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": "2", "pods": "110"}},
    }


def a_pod(
    name: str,
    *,
    namespace: str = "team",
    node: str = "n",
    cpu: str = "1",
    started: str = "10:00:00",
    spec: Any = None,
    **metadata: Any,
) -> Any:
    identity = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": "7"}
    main = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {**identity, **metadata},
        "spec": {"nodeName": node, "priority": 0, "containers": [main], **(spec or {})},
        "status": {"phase": "Running", "startTime": f"2026-11-21T{started}Z"},
    }


def a_waiting_pod(name: str = "mine", *, since: str = "11:50:00", **fields: Any) -> Any:
    pod = a_pod(name, namespace="home", node="", **fields)
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "lastTransitionTime": f"2026-11-21T{since}Z",
    }
    pod["status"] = {"phase": "Pending", "conditions": [condition]}
    return pod


def by_name(*documents: Any) -> dict[str, Any]:
    return {document["metadata"]["name"]: document for document in documents}


LONG, SHORT = a_pod("long"), a_pod("short", started="11:59:00")


@asynccontextmanager
async def reclaiming(
    directory: Path,
    *waiting: Any,
    pods: tuple[Any, ...] = (LONG, SHORT),
    nodes: tuple[Any, ...] = (),
    barred: tuple[str, ...] = (),
    settings: PolicySettings | None = None,
    monotonic: Callable[[], float] = time.monotonic,
    **others: Any,
) -> AsyncIterator[World]:
    """Run the controller with these pods of the home Namespace pending."""
    collections = {
        NODES: by_name(*(nodes or (a_node(),))),
        ALL: by_name(*pods),
        TEAM: by_name(*pods),
        HOME: by_name(*waiting),
        **others,
    }
    async with stub_api(directory, collections=collections, barred=set(barred)) as (stub, api):
        stub.lists_released.set()
        clock = Clock(now=lambda: NOW, monotonic=monotonic, wall=lambda: 0.0)
        recorded, leadership, left = Recorded(), Leadership(), list[VictimSetKey]()
        policy, metrics = Policy(settings or PolicySettings(reclaim="auto")), OperatorMetrics()
        recorder = cast("EventRecorder", recorded)
        namespaces = cast("NamespacePolicies", Namespaces())
        writes = Writes(
            api,
            CallLimiter(32),
            cast("LeaderElection", leadership),
            metrics,
            clock,
        )
        controller = ReclaimController(
            api,
            writes,
            cast("PolicySource", policy),
            namespaces,
            recorder,
            Reporter(recorder, metrics, namespaces),
            clock,
            on_left=left.append,
            interval_seconds=0.01,
        )
        running = asyncio.create_task(controller.run())
        try:
            yield World(stub, recorded, policy, leadership, controller, left, metrics, running)
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, NotLeading):
                await running


async def test_the_borrower_that_loses_the_least_is_marked_once_and_events_say_so(
    tmp_path: Path,
) -> None:
    async with reclaiming(tmp_path, a_waiting_pod()) as world:
        await until(lambda: len(world.recorded.events) == 3)
        await world.passes()
    ((path, body),) = world.stub.patches
    assert path == f"{TEAM}/short"
    assert body["metadata"] == {
        "uid": "short",
        "resourceVersion": "7",
        "labels": {keys.SOFT_EVICTION: "marked"},
        "annotations": {
            keys.KOORDINATOR_SOFT_EVICTION: reclaim.build_mark(NOW),
            keys.PREEMPTOR: "mine",
        },
    }
    since = "has found no node since 2026-11-21T11:50:00Z"
    assert sorted(world.recorded.events) == [
        (
            "Node/n",
            "LentNodeReclaimed",
            f'1 pod is asked to leave: namespace "home" lent the node, and a pod of it {since}',
        ),
        (
            "Pod/mine",
            "LentNodeReclaimed",
            f'1 pod is asked to leave node "n", which this namespace lent: the pod {since}',
        ),
        (
            "Pod/short",
            "LentNodeReclaimed",
            (
                "its node was lent by another namespace, which wants it back: "
                "the pod is asked to leave"
            ),
        ),
    ]


async def test_a_pod_that_names_the_uid_of_a_job_of_another_namespace_changes_no_victim(
    tmp_path: Path,
) -> None:
    """Read before the Job's own pods, it would have them lose the end that they are near to."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "uid": "job", "controller": True}
    job = {
        "metadata": {"name": "train", "namespace": "team", "uid": "job"},
        "spec": {"activeDeadlineSeconds": 300},
        "status": {"startTime": "2026-11-21T11:56:00Z"},
    }
    nearly_complete = a_pod(
        "train-1", started="11:56:00", ownerReferences=[owner | {"name": "train"}]
    )
    forged = a_pod(
        "forged", namespace="attacker", cpu="0", ownerReferences=[owner | {"name": "no"}]
    )
    pods = (forged, nearly_complete, a_pod("other"))
    async with reclaiming(tmp_path, a_waiting_pod(), pods=pods, **{JOBS: by_name(job)}) as world:
        await until(world.marked)
    assert world.marked() == ["other"]


async def test_a_node_that_a_taint_lends_is_given_back_to_a_pod_that_tolerates_it(
    tmp_path: Path,
) -> None:
    pod = a_waiting_pod(spec={"tolerations": [{"key": KEY, "operator": "Exists"}]})
    node = a_node(labels={}, taints=[TAINT])
    async with reclaiming(tmp_path, pod, nodes=(node,)) as world:
        await until(lambda: world.marked() == ["short"])


async def test_as_long_as_no_pod_is_due_only_pending_pods_are_read(tmp_path: Path) -> None:
    pod, running = a_waiting_pod(since="11:55:01"), a_pod("other", namespace="home")
    async with reclaiming(tmp_path, pod, running) as world:
        await world.passes()
        read = {path: number for path, number in world.stub.calls.items() if path != HOME}
        assert read == {NODES: 1, f"{NODES}?watch": 1}
        world.policy.current = PolicySettings(reclaim="auto", reclaim_after_seconds=299)
        await until(lambda: world.marked() == ["short"])


async def test_a_pod_that_gets_nothing_has_the_lent_nodes_read_less_and_less_often(
    tmp_path: Path,
) -> None:
    kept = tuple(a_pod(name, spec={"priority": 9}) for name in ("kept", "kept-too"))
    now = [0.0]
    async with reclaiming(tmp_path, a_waiting_pod(), pods=kept, monotonic=lambda: now[0]) as world:
        await world.passes(10)
        assert world.stub.calls[ALL] == 2
        now[0] = 0.02
        await world.passes(10)
        assert world.stub.calls[ALL] == 3
        now[0] = 0.05
        await world.passes(10)
        assert world.stub.calls[ALL] == 3, "each pause is longer"
        world.stub.collections[HOME]["other"] = a_waiting_pod("other")
        await until(lambda: world.stub.calls[ALL] == 4)


async def test_a_node_that_no_due_pod_may_run_on_is_not_read(tmp_path: Path) -> None:
    async with reclaiming(tmp_path, a_waiting_pod(), nodes=(a_node(taints=[TAINT]),)) as world:
        await world.passes()
        assert world.stub.calls[ALL] == 0


async def test_nodes_that_are_not_lent_are_not_given_back(tmp_path: Path) -> None:
    several = a_node("several", taints=[{**TAINT, "value": "other"}])
    async with reclaiming(
        tmp_path,
        a_waiting_pod(),
        nodes=(a_node(labels={}), several, a_node("lent", taints=[TAINT])),
    ) as world:
        await world.passes()
        assert world.stub.calls[ALL] == 0


async def test_by_default_nothing_is_read(tmp_path: Path) -> None:
    async with reclaiming(tmp_path, a_waiting_pod(), settings=PolicySettings()) as world:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(world.controller.run(), 0.1)
        assert world.stub.calls == Counter()


async def test_without_the_right_to_read_nodes_the_operator_says_so_once(tmp_path: Path) -> None:
    async with reclaiming(tmp_path, a_waiting_pod(), barred=(NODES,)) as world:
        await until(lambda: bool(world.policy.warnings))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.1)
        assert world.policy.warnings == ["LentNodesUnreadable"]
        assert world.stub.calls[HOME] == 0


async def test_without_the_right_to_read_budgets_the_operator_says_so_once(tmp_path: Path) -> None:
    async with reclaiming(tmp_path, a_waiting_pod(), barred=(BUDGETS,)) as world:
        await until(lambda: bool(world.policy.warnings))
        await world.passes()
        assert world.policy.warnings == ["LentNodesUnreadable"]
        assert world.marked() == []


async def test_borrowers_of_a_pod_that_was_placed_elsewhere_may_stay(tmp_path: Path) -> None:
    async with reclaiming(tmp_path, a_waiting_pod()) as world:
        await until(lambda: world.marked() == ["short"])
        assert world.left == []
        world.stub.collections[HOME].clear()
        await until(lambda: world.left == [VictimSetKey("mine", "n")])
        await world.passes()
        assert len(world.left) == 1


async def test_borrowers_of_a_gang_leave_also_once_one_of_its_pods_is_placed(
    tmp_path: Path,
) -> None:
    labels = {keys.POD_GROUP: "train"}
    async with reclaiming(tmp_path, a_waiting_pod(labels=labels)) as world:
        await until(lambda: world.marked() == ["short"])
        world.stub.collections[HOME].clear()
        await world.passes()
        assert world.left == []


async def test_a_failure_in_one_namespace_does_not_hold_up_the_others(tmp_path: Path) -> None:
    broken = a_node("broken", labels={KEY: "broken"})
    async with reclaiming(
        tmp_path,
        a_waiting_pod(),
        nodes=(broken, a_node()),
        barred=("/api/v1/namespaces/broken/pods",),
    ) as world:
        await until(lambda: world.marked() == ["short"])


async def test_a_borrower_that_changes_meanwhile_is_read_again(tmp_path: Path) -> None:
    async with reclaiming(tmp_path) as world:
        world.stub.refuses[f"{TEAM}/short"] = 409
        world.stub.collections[HOME] = by_name(a_waiting_pod())
        await until(lambda: len(world.stub.patches) == 3)
        await world.passes()
        assert world.marked() == ["short"] * 3
        assert world.recorded.events == []
    preconditions = [body["metadata"].get("resourceVersion") for _, body in world.stub.patches]
    assert preconditions == ["7", "7", None], "its owner may write to it all the time"
    assert {body["metadata"]["uid"] for _, body in world.stub.patches} == {"short"}


async def test_a_borrower_whose_preemption_changes_meanwhile_is_not_marked(tmp_path: Path) -> None:
    async with reclaiming(tmp_path) as world:
        world.stub.refuses[f"{TEAM}/short"] = 409
        protected = a_pod("short", labels={keys.PREEMPTIBLE: "false"})
        world.stub.collections[TEAM]["short"] = protected
        world.stub.collections[HOME] = by_name(a_waiting_pod())
        await until(lambda: world.marked() == ["short"])
        await world.passes()
        assert world.marked() == ["short"]


async def test_a_borrower_whose_other_annotations_change_meanwhile_is_marked(
    tmp_path: Path,
) -> None:
    async with reclaiming(tmp_path) as world:
        world.stub.refuses[f"{TEAM}/short"] = 409
        changed = a_pod("short", started="11:59:00", annotations={"example.com/heartbeat": "1"})
        world.stub.collections[TEAM]["short"] = changed
        world.stub.collections[HOME] = by_name(a_waiting_pod())
        await until(lambda: len(world.stub.patches) >= 2)
        assert world.marked()[:2] == ["short"] * 2


async def test_a_mark_is_repeated_after_a_busy_api_server(tmp_path: Path) -> None:
    async with reclaiming(tmp_path) as world:
        world.stub.refuses[f"{TEAM}/short"] = 429
        world.stub.collections[HOME] = by_name(a_waiting_pod())
        await until(lambda: world.marked() == ["short"])
        world.stub.refuses.clear()
        await until(lambda: len(world.recorded.events) == 3)
        assert world.marked() == ["short"] * 2


@pytest.mark.parametrize("status", [403, 422])
async def test_a_borrower_that_the_operator_may_not_mark_is_not_chosen_again(
    tmp_path: Path, status: int
) -> None:
    """A policy of another project answers 422, and is no reason to delete without notice."""
    async with reclaiming(tmp_path) as world:
        world.stub.refuses[f"{TEAM}/short"] = status
        world.stub.collections[HOME] = by_name(a_waiting_pod())
        await until(lambda: world.marked() == ["short"])
        world.stub.collections[HOME] = by_name(a_waiting_pod("next"))
        await until(lambda: world.marked() == ["short", "long"])
        assert world.policy.warnings == []
        assert world.stub.deletions == []


async def test_a_borrower_whose_marks_fail_is_not_chosen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, a borrower whose webhook hangs would keep the node, and those of others."""
    monkeypatch.setattr(marker, "_RETRY_SECONDS", 0)
    async with reclaiming(tmp_path) as world:
        world.stub.refuses[f"{TEAM}/short"] = 500
        world.stub.collections[HOME] = by_name(a_waiting_pod())
        await until(lambda: world.marked() == ["short"] * 3)
        world.stub.collections[HOME] = by_name(a_waiting_pod("next"))
        await until(lambda: world.marked() == ["short", "short", "short", "long"])


async def test_a_borrower_that_could_not_be_marked_is_chosen_again_later(tmp_path: Path) -> None:
    """What refused the mark may be repaired: a role, or a policy of another project."""
    now = [0.0]
    async with reclaiming(tmp_path, monotonic=lambda: now[0]) as world:
        world.stub.refuses[f"{TEAM}/short"] = 403
        world.stub.collections[HOME] = by_name(a_waiting_pod())
        await until(lambda: world.marked() == ["short"])
        world.stub.refuses.clear()
        now[0] = 3601.0
        world.stub.collections[HOME] = by_name(a_waiting_pod("next"))
        await until(lambda: world.marked() == ["short", "short"])


@pytest.mark.parametrize("refused", ["long", "short"])
async def test_a_borrower_that_the_operator_may_not_mark_keeps_no_other_from_being_marked(
    tmp_path: Path, refused: str
) -> None:
    async with reclaiming(tmp_path) as world:
        world.stub.refuses[f"{TEAM}/{refused}"] = 403
        world.stub.collections[HOME] = by_name(a_waiting_pod(cpu="2"))
        await until(lambda: sorted(world.marked()) == ["long", "short"])


FULL = a_pod(
    "short",
    started="11:59:00",
    finalizers=[f"example.com/{number}" for number in range(251)],
    spec={"terminationGracePeriodSeconds": 1_000_000_000},
)


async def test_a_borrower_that_is_full_of_finalizers_is_deleted_without_notice(
    tmp_path: Path,
) -> None:
    """Without this, a Job of such pods would hold the lent node for ever."""
    async with reclaiming(tmp_path, a_waiting_pod(cpu="2"), pods=(LONG, FULL)) as world:
        await until(lambda: world.stub.deletions)
        await until(lambda: len(world.recorded.events) == 5)
        await world.passes()
    assert world.marked() == ["long"]
    ((path, options),) = world.stub.deletions
    assert path == f"{TEAM}/short"
    assert options["gracePeriodSeconds"] == 30
    assert options["preconditions"] == {"uid": "short", "resourceVersion": "7"}
    of_pod = [(reason, note) for about, reason, note in world.recorded.events if "short" in about]
    assert of_pod == [
        (
            "SoftEvictionWithoutNotice",
            (
                "its node was lent by another namespace, which wants it back: "
                "the pod has no room for a mark, and is deleted without notice"
            ),
        ),
        ("SoftEvictionDeleting", "deleting the pod: SIGTERM now, SIGKILL after 30s"),
    ]
    counted = {"namespace": "team", "reason": "reclaim"}
    value = world.metrics.registry.get_sample_value("reprieve_preemptions_total", counted)
    assert value == 1


@pytest.mark.parametrize("status", [413, 422])
async def test_a_borrower_whose_annotations_are_full_is_deleted_with_its_condition(
    tmp_path: Path, status: int
) -> None:
    async with reclaiming(tmp_path) as world:
        world.stub.refuses[f"{TEAM}/short"] = status
        world.stub.refusal = "metadata.annotations: Too long: may not be more than 262144 bytes"
        world.stub.patched_version = "8"
        world.stub.collections[HOME] = by_name(a_waiting_pod())
        await until(lambda: world.stub.deletions)
    assert [path for path, _ in world.stub.patches] == [f"{TEAM}/short", f"{TEAM}/short/status"]
    ((_, options),) = world.stub.deletions
    assert options["preconditions"] == {"uid": "short", "resourceVersion": "8"}


async def test_a_full_borrower_that_may_not_be_deleted_is_not_chosen_again(tmp_path: Path) -> None:
    short = f"{TEAM}/short"
    async with reclaiming(tmp_path, pods=(LONG, FULL), barred=(short,)) as world:
        world.stub.collections[HOME] = by_name(a_waiting_pod())
        await until(lambda: world.stub.deletions or world.stub.calls[short])
        world.stub.collections[HOME] = by_name(a_waiting_pod("next"))
        await until(lambda: world.marked() == ["long"])
        assert world.stub.calls[short] == 1


async def test_no_full_borrower_is_deleted_while_another_one_cannot_be_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marker, "_RETRY_SECONDS", 0)
    async with reclaiming(tmp_path, pods=(LONG, FULL)) as world:
        world.stub.refuses[f"{TEAM}/long"] = 500
        world.stub.collections[HOME] = by_name(a_waiting_pod(cpu="2"))
        await until(lambda: world.marked() == ["long"] * 3)
        await world.passes()
        assert world.stub.deletions == []


class Placed(dict[str, Any]):
    """Pods that are pending in a list, and have a node when they are read."""

    def get(self, name: str, default: Any = None) -> Any:  # noqa: ARG002 - as in its base
        return a_pod(name, namespace="home", node="other")


async def test_no_borrower_leaves_for_a_pod_that_was_placed_during_the_reads(
    tmp_path: Path,
) -> None:
    async with reclaiming(tmp_path) as world:
        world.stub.collections[HOME] = Placed(by_name(a_waiting_pod()))
        await world.passes()
        assert world.marked() == []
        assert world.stub.calls[f"{HOME}/mine"] >= 1


async def test_a_replica_that_does_not_lead_marks_nothing(tmp_path: Path) -> None:
    async with reclaiming(tmp_path) as world:
        world.leadership.is_leading = False
        world.stub.collections[HOME] = by_name(a_waiting_pod())
        await until(world.running.done)
        assert isinstance(world.running.exception(), NotLeading)
        assert world.stub.patches == []
        assert world.recorded.events == []


async def test_a_gang_of_borrowers_leaves_with_its_pods_on_other_nodes(tmp_path: Path) -> None:
    labels = {keys.POD_GROUP: "ddp"}
    here, there = (
        a_pod(name, node=node, cpu="2", labels=labels) for name, node in (("a", "n"), ("b", "m"))
    )
    stranger = a_pod("c", node="m", cpu="2", labels={keys.POD_GROUP: "other"})
    ended = a_pod("d", node="m", labels=labels)
    ended["status"]["phase"] = "Failed"
    async with reclaiming(
        tmp_path, a_waiting_pod(), pods=(here,), **{TEAM: by_name(here, there, stranger, ended)}
    ) as world:
        await until(lambda: sorted(world.marked()) == ["a", "b"])
        await until(lambda: len(world.recorded.events) == 4)
    notes = {about: note for about, _, note in world.recorded.events}
    assert notes["Pod/b"].startswith("the node of another pod of its gang was lent")
    assert notes["Node/n"].startswith("1 pod is asked to leave")


KEYS_OF_GANGS = {"labels": keys.POD_GROUP, "annotations": keys.KOORDINATOR_GANG}


@pytest.mark.parametrize(
    ("by_label", "by_annotation", "lists"),
    [(2, 0, 2), (8, 0, 8), (9, 0, 1), (100, 0, 1), (0, 1, 1), (0, 100, 1), (3, 100, 1)],
)
async def test_the_reads_of_a_pass_do_not_grow_with_the_square_of_the_gangs(
    tmp_path: Path, by_label: int, by_annotation: int, lists: int
) -> None:
    places = ["labels"] * by_label + ["annotations"] * by_annotation
    pods = [
        a_pod(f"{at}-{node}", node=node, cpu="0.01", **{place: {KEYS_OF_GANGS[place]: f"g{at}"}})
        for at, place in enumerate(places)
        for node in ("n", "m")
    ]
    here = [pod for pod in pods if pod["spec"]["nodeName"] == "n"]
    settings = PolicySettings(reclaim="auto", max_victims=1000)
    async with reclaiming(
        tmp_path, pods=tuple(here), settings=settings, **{TEAM: by_name(*pods)}
    ) as world:
        world.stub.collections[HOME] = by_name(a_waiting_pod(cpu="2"))
        await until(lambda: len(world.marked()) == len(pods))
        assert world.stub.calls[TEAM] == lists


OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "u", "controller": True}


@pytest.mark.parametrize(
    ("uid", "want"),
    [pytest.param("u", ["long"], id="its own"), pytest.param("x", ["short"], id="another one")],
)
async def test_a_borrower_whose_job_is_nearly_over_may_finish(
    tmp_path: Path, uid: str, want: list[str]
) -> None:
    job = {
        "metadata": {"name": "job", "uid": uid},
        "spec": {"activeDeadlineSeconds": 3600},
        "status": {"startTime": "2026-11-21T11:01:00Z"},
    }
    finishing = a_pod("short", started="11:59:00", ownerReferences=[OWNER])
    mate = a_pod("mate", node="elsewhere", ownerReferences=[OWNER])
    async with reclaiming(
        tmp_path, a_waiting_pod(), pods=(LONG, finishing, mate), **{JOBS: by_name(job)}
    ) as world:
        await until(lambda: world.marked() == want)


@pytest.mark.parametrize(
    ("barred", "want"),
    [pytest.param((), ["long"], id="served"), pytest.param((f"{GROUPS}/g",), ["short"], id="not")],
)
async def test_a_borrower_is_defended_with_the_priority_of_its_native_group(
    tmp_path: Path, barred: tuple[str, ...], want: list[str]
) -> None:
    group = {"metadata": {"name": "g"}, "spec": {"priority": 100}}
    grouped = a_pod("short", started="11:59:00", spec={"schedulingGroup": {"podGroupName": "g"}})
    async with reclaiming(
        tmp_path,
        a_waiting_pod(),
        pods=(LONG, grouped),
        barred=barred,
        **{GROUPS: by_name(group)},
    ) as world:
        await until(lambda: world.marked() == want)


async def test_nobody_leaves_for_a_pod_that_its_quota_would_not_admit(tmp_path: Path) -> None:
    quota = {
        "metadata": {"name": "own", "namespace": "home"},
        "spec": {"min": {"cpu": "0"}, "max": {"cpu": "1"}},
        "status": {"used": {"cpu": "1"}},
    }
    pod = a_waiting_pod(labels={keys.QUOTA_NAME: "own"})
    async with reclaiming(tmp_path, pod, **{QUOTAS: by_name(quota)}) as world:
        await until(lambda: world.stub.calls[ALL] >= 2)
        assert world.marked() == []
        quota["status"] = {"used": {"cpu": "0"}}
        await until(lambda: world.marked() == ["short"])


async def test_where_quotas_are_not_served_none_counts(tmp_path: Path) -> None:
    async with reclaiming(tmp_path, a_waiting_pod(), barred=(QUOTAS,)) as world:
        await until(lambda: world.marked() == ["short"])


async def test_a_borrower_that_a_budget_protects_leaves_last(tmp_path: Path) -> None:
    budget = {
        "metadata": {"name": "b", "namespace": "team"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 0},
    }
    protected = a_pod("short", started="11:59:00", labels={"app": "x"})
    path = BUDGETS
    async with reclaiming(
        tmp_path, a_waiting_pod(), pods=(LONG, protected), **{path: by_name(budget)}
    ) as world:
        await until(lambda: world.marked() == ["long"])
