"""Calls of a scheduler to the real server, within limits of size, number and time."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.preemption.selection.gangs.planner import GangPlanner
from reprieve_policy.preemption.selection.snapshot import GangKey, Release
from reprieve_testing.objects.cluster_views import (
    NOW,
    FixedClusterView,
    a_preemptor,
    a_scheduled_pod,
    an_extender_call,
)
from reprieve_testing.servers.reviews import RunningServer, a_pod, a_review, running_server
from reprieve_testing.servers.stub_api import until
from reprieve_webhooks.extender import api, failed_gang_plans, service
from reprieve_webhooks.extender.metrics import FALLBACKS, CallOutcome, ExtenderMetrics
from reprieve_webhooks.extender.route import PATH, routes
from reprieve_webhooks.extender.service import Extender
from reprieve_webhooks.http.request_body import RequestBodyReader
from reprieve_webhooks.snapshot.recent_choices import RecentVictimSets

LIMIT = 100_000
DEADLINE_SECONDS = 60.0
CEILING = timedelta(seconds=PolicySettings().ceiling_seconds)
JSON = {"Content-Type": "application/json"}


@dataclass
class Called:
    """A server with an extender, and what it counts and remembers."""

    server: RunningServer
    cluster_view: FixedClusterView
    choices: RecentVictimSets
    extender: Extender
    registry: CollectorRegistry

    async def call(
        self, proposed: Mapping[str, Iterable[str]], uid: str = "p", *, whole: bool = False
    ) -> Any:
        status, text = await self.server.send(
            PATH, an_extender_call(dict(proposed), uid, whole=whole)
        )
        assert status == 200, text
        return json.loads(text)["NodeNameToMetaVictims"]

    async def refused(self, body: bytes) -> tuple[int, str]:
        status, text = await self.server.send(PATH, body)
        assert status != 200
        assert text.count("\n") == 1
        return status, text

    def counted(self, outcome: CallOutcome) -> float:
        return self.value("reprieve_extender_calls_total", outcome=outcome)

    def value(self, name: str, **labels: str) -> float:
        return self.registry.get_sample_value(name, labels) or 0.0


@asynccontextmanager
async def serving(
    cluster_view: FixedClusterView | None = None,
    *,
    timeout_seconds: float = 4.0,
    read_seconds: float = 4.0,
    schedulers: Sequence[str] = (),
    searches_all_nodes: bool = True,
) -> AsyncIterator[Called]:
    cluster_view = cluster_view or FixedClusterView([a_scheduled_pod("a", "one")])
    registry, choices = CollectorRegistry(), RecentVictimSets()
    extender = Extender(
        cluster_view,
        choices,
        ExtenderMetrics(registry),
        timeout_seconds=timeout_seconds,
        schedulers=schedulers,
        searches_all_nodes=searches_all_nodes,
    )
    bodies = RequestBodyReader("call", max_bytes=LIMIT, timeout_seconds=read_seconds)
    async with running_server(further_routes=routes(extender, bodies)) as server:
        yield Called(server, cluster_view, choices, extender, registry)
        # Whatever the test sent: a review is answered.
        assert (await server.ask("/validate", a_review(a_pod())))["allowed"] is True


@pytest.fixture
def short_watch_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the wait for the watches, for calls about what no watch will ever show."""
    monkeypatch.setattr(service, "_WATCH_LAG_SECONDS", 0.05)


async def _send_half(server: RunningServer) -> int:
    """Send the beginning of a call and no more; return the status."""

    async def half() -> AsyncIterator[bytes]:
        yield an_extender_call({"one": "a"})[:10]
        await asyncio.sleep(DEADLINE_SECONDS)

    async with server.session.post(server.url + PATH, data=half(), headers=JSON) as reply:
        return reply.status


def victims(*uids: str, violations: int = 0) -> Any:
    return {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}


@pytest.mark.parametrize("whole", [False, True], ids=["uids", "whole pods"])
async def test_the_best_node_is_returned_with_its_victims_in_both_forms(whole: bool) -> None:  # noqa: FBT001
    cluster_view = FixedClusterView(
        [a_scheduled_pod("a", "one", priority=5), a_scheduled_pod("b", "two", priority=3)]
    )
    async with serving(cluster_view) as called:
        assert await called.call({"one": "a", "two": "b"}, whole=whole) == {"two": victims("b")}
        assert called.counted(CallOutcome.CHOSEN) == 1
        assert called.value("reprieve_extender_candidates_sum") == 2


@pytest.mark.parametrize(
    ("searches_all_nodes", "want"), [(True, {"two": ["b"]}), (False, {"one": ["a"]})]
)
async def test_victims_on_a_node_that_was_not_offered_are_returned_unless_told_otherwise(
    searches_all_nodes: bool,  # noqa: FBT001 - a parameter
    want: Mapping[str, Sequence[str]],
) -> None:
    cluster_view = FixedClusterView(
        [a_scheduled_pod("a", "one", priority=5), a_scheduled_pod("b", "two", priority=3)]
    )
    async with serving(cluster_view, searches_all_nodes=searches_all_nodes) as called:
        found = await called.call({"one": "a"})
        assert found == {node: victims(*uids) for node, uids in want.items()}
        assert called.value("reprieve_extender_candidates_sum") == 1


async def test_victims_other_than_the_schedulers_own_are_returned() -> None:
    protected = a_scheduled_pod("a", "one", cpu=4, is_non_preemptible=True)
    async with serving(
        FixedClusterView(
            [protected, a_scheduled_pod("b", "one", cpu=4, priority=9)], [a_preemptor(cpu=4)]
        )
    ) as called:
        assert await called.call({"one": "a"}) == {"one": victims("b")}


async def test_without_eligible_victims_the_result_has_no_node() -> None:
    async with serving(
        FixedClusterView([a_scheduled_pod("a", "one", is_non_preemptible=True)])
    ) as called:
        assert await called.call({"one": "a"}) == {}
        assert called.counted(CallOutcome.NOTHING) == 1
        assert called.value("reprieve_extender_passed_over_total", reason="no-victims") == 1


async def test_room_that_is_being_released_is_claimed_with_a_pod_that_leaves_already() -> None:
    """The preemptor is nominated; no pod is marked for it, and the next call finds it there."""
    leaving = Release(expected_at=NOW, notified=True, preemptor_uid="q")
    cluster_view = FixedClusterView([a_scheduled_pod("a", "one", release=leaving, is_guarded=True)])
    async with serving(cluster_view) as called:
        assert await called.call({"one": "a"}) == {"one": victims("a")}
        assert called.counted(CallOutcome.CLAIMED) == 1
        assert cluster_view.assumed == [("pod-p", "one", [])]
        assert not called.choices.preemptor_uids("one", "a")

        cluster_view.preemptors = [a_preemptor(nominated_node="one")]
        assert await called.call({"one": "a"}) == {}
        assert called.counted(CallOutcome.NOTHING) == 1


async def test_a_scheduler_that_asks_again_after_a_report_of_free_room_gets_its_own_victims() -> (
    None
):
    """It knows of limits that the extender does not check; at first a pod may have ended."""
    cluster_view = FixedClusterView(
        [a_scheduled_pod("a", "one", cpu=1)], [a_preemptor(cpu=1), a_preemptor("q", cpu=1)]
    )
    async with serving(cluster_view) as called:
        assert await called.call({"one": "a"}) == {}
        assert called.counted(CallOutcome.NOTHING) == 1
        assert await called.call({"one": "a"}, "q") == {}
        assert await called.call({"one": "a"}) == {"one": victims("a")}


async def test_room_where_the_preemptor_is_nominated_counts_once_also_if_it_is_not_offered() -> (
    None
):
    """Its victims may have ended since the scheduler looked; later, it knows of some limit."""
    cluster_view = FixedClusterView(
        [a_scheduled_pod("a", "one"), a_scheduled_pod("b", "two", cpu=1)],
        [a_preemptor(cpu=3, nominated_node="two")],
    )
    async with serving(cluster_view) as called:
        assert await called.call({"one": "a"}) == {}
        assert called.counted(CallOutcome.NOTHING) == 1
        assert await called.call({"one": "a"}) == {"one": victims("a")}


async def test_a_late_result_reports_no_free_room() -> None:
    cluster_view = FixedClusterView([a_scheduled_pod("a", "one", cpu=1)], [a_preemptor(cpu=1)])
    async with serving(cluster_view) as called:
        # It begins, looks what is known, looks at the node; and then it is too late.
        looks = iter([0.0, 0.0, 0.0])
        called.extender._monotonic = lambda: next(looks, 4.5)
        await called.refused(an_extender_call({"one": "a"}))
        called.extender._monotonic = time.monotonic
        assert await called.call({"one": "a"}) == {}


async def test_a_gang_whose_last_victim_has_just_left_evicts_no_second_set() -> None:
    """The scheduler has not seen it yet. Without this, a second gang would be evicted."""
    stays = a_scheduled_pod("stays", "one", cpu=4)
    last = a_preemptor(cpu=4, gang=GangKey("default", "mine"))
    cluster_view = FixedClusterView(
        [stays, a_scheduled_pod("b", "two")], [last], removed=frozenset({"gone"})
    )
    async with serving(cluster_view) as called:
        assert await called.call({"one": ["gone"], "two": ["b"]}) == {}
        assert called.counted(CallOutcome.NOTHING) == 1
        assert called.value("reprieve_extender_passed_over_total", reason="proposal-outdated") == 1


async def test_a_call_without_candidates_gets_a_result_without_nodes() -> None:
    async with serving() as called:
        assert await called.call({}) == {}


async def test_the_guard_finds_the_set_that_was_returned() -> None:
    async with serving() as called:
        await called.call({"one": "a"})
        choice = called.choices.find("one", "a", by="p")
        assert choice is not None
        assert (choice.preemptor.name, [victim.name for victim in choice.victims]) == (
            "pod-p",
            ["pod-a"],
        )


async def test_of_a_gang_evicted_as_a_unit_the_scheduler_gets_one_pod_and_all_leave() -> None:
    key = GangKey("default", "g")
    gang = [
        a_scheduled_pod(
            uid, node, cpu=4, gang=key, disruption_mode=DisruptionMode.ALL, is_guarded=True
        )
        for uid, node in ("a1", "b1", "c2")
    ]
    async with serving(FixedClusterView(gang)) as called:
        assert await called.call({"1": "ab"}) == {"1": victims("a")}
        assert called.cluster_view.assumed == [("pod-p", "1", ["a", "b", "c"])]
        choice = called.choices.find("1", "b", by="p")
        assert choice is not None
    async with serving(FixedClusterView(gang, operator_is_live=False)) as called:
        assert await called.call({"1": "ab"}) == {"1": victims("a", "b")}


@pytest.mark.parametrize(
    ("guarded", "want"), [("", "abd"), ("c", "abd"), ("d", "abd"), ("bd", "ab")]
)
async def test_without_the_guard_the_scheduler_gets_all_pods_of_a_gang_on_the_node(
    guarded: str, want: str
) -> None:
    """The operator would not evict the others.

    Without this, a preemption would take one pod a round, and none of them would make enough room.
    """
    key = GangKey("default", "g")
    gang = [
        a_scheduled_pod(
            uid,
            node,
            cpu=3,
            gang=key,
            disruption_mode=DisruptionMode.ALL,
            is_guarded=uid in guarded,
        )
        for uid, node in ("a1", "b1", "d1", "c2")
    ]
    async with serving(FixedClusterView(gang)) as called:
        assert await called.call({"1": "abd"}) == {"1": victims(*want)}


@pytest.mark.parametrize(("held", "want"), [("abdc", "abd"), ("b", "ab"), ("c", "a")])
async def test_of_a_gang_that_budgets_hold_the_scheduler_gets_each_held_pod(
    held: str, want: str
) -> None:
    """The operator only evicts held pods; the others leave with one of them.

    Without this, a preemption would take one pod a round.
    """
    key, stays = (
        GangKey("default", "g"),
        {"release": Release(expected_at=NOW - 2 * CEILING, is_held_by_budget=True)},
    )
    gang = [
        a_scheduled_pod(
            uid,
            node,
            cpu=3,
            gang=key,
            disruption_mode=DisruptionMode.ALL,
            is_guarded=True,
            **(stays if uid in held else {}),
        )
        for uid, node in ("a1", "b1", "d1", "c2")
    ]
    async with serving(FixedClusterView(gang)) as called:
        assert await called.call({"1": "abd"}) == {"1": victims(*want)}


async def test_a_set_is_still_found_after_later_calls_without_a_result() -> None:
    async with serving() as called:
        await called.call({"one": "a"})
        called.cluster_view.scheduled_pods[:] = [a_scheduled_pod("a", "one", release=Release())]
        assert await called.call({"one": "a"}) == {}
        assert called.choices.find("one", "a", by="p") is not None


async def test_while_the_watches_are_behind_the_scheduler_uses_its_own_choice() -> None:
    async with serving(FixedClusterView(is_stale=True)) as called:
        status, _ = await called.refused(an_extender_call({"one": "a"}))
        assert status == 503
        assert called.counted(CallOutcome.BEHIND) == 1


@pytest.mark.usefixtures("short_watch_lag")
async def test_while_pods_have_an_old_policy_the_scheduler_uses_its_own_choice() -> None:
    async with serving(
        FixedClusterView([a_scheduled_pod("a", "one")], is_up_to_date=False)
    ) as called:
        status, _ = await called.refused(an_extender_call({"one": "a"}))
        assert status == 503


@pytest.mark.usefixtures("short_watch_lag")
async def test_while_it_waits_the_gang_of_the_preemptor_is_not_put_together() -> None:
    """Without this, a gang of thousands of pods would take the time of reviews at each look."""
    async with serving(FixedClusterView([a_scheduled_pod("a", "one")])) as called:
        status, _ = await called.refused(an_extender_call({"one": ["unseen"]}))
        assert status == 503
        assert called.cluster_view.gang_lookups == 1


async def test_a_watch_that_is_a_moment_behind_is_waited_for() -> None:
    async with serving(
        FixedClusterView([a_scheduled_pod("a", "one")], lookups_until_seen=3)
    ) as called:
        assert await called.call({"one": "a"}) == {"one": victims("a")}


@pytest.mark.usefixtures("short_watch_lag")
async def test_a_preemptor_that_no_watch_has_seen_gets_no_victims() -> None:
    async with serving() as called:
        status, _ = await called.refused(an_extender_call({"one": "a"}, "stranger"))
        assert status == 503
        assert called.counted(CallOutcome.BEHIND) == 1
        assert called.choices.find("one", "a", by="p") is None


@pytest.mark.usefixtures("short_watch_lag")
async def test_no_node_is_checked_for_a_pod_that_no_watch_shows() -> None:
    async with serving() as called:
        await called.refused(an_extender_call({"one": "x", "two": "x"}, "stranger"))
        assert called.cluster_view.lookups == 0


@pytest.mark.usefixtures("short_watch_lag")
async def test_a_node_with_unknown_victims_is_rejected() -> None:
    async with serving() as called:
        assert await called.call({"one": "a", "two": "x"}) == {"one": victims("a")}
        status, _ = await called.refused(an_extender_call({"two": "x"}))
        assert status == 503


@pytest.mark.usefixtures("short_watch_lag")
async def test_a_pod_that_no_watch_shows_on_its_node_is_waited_for_once() -> None:
    """It may be with its scheduler for long: a volume is made for it before it is bound."""
    cluster_view = FixedClusterView(
        [a_scheduled_pod("a", "one")], [a_preemptor("p"), a_preemptor("q")]
    )
    async with serving(cluster_view) as called:
        proposed = {"one": "a", "two": "x"}
        assert await called.call(proposed) == {"one": victims("a")}
        cluster_view.lookups = 0
        assert await called.call(proposed, "q") == {"one": victims("a")}
        assert cluster_view.lookups == 2
        # Any other pod is waited for.
        assert await called.call({"one": "a", "two": "y"}, "q") == {"one": victims("a")}
        assert cluster_view.lookups > 4


@pytest.mark.usefixtures("short_watch_lag")
async def test_a_pod_that_was_waited_for_is_a_victim_once_a_watch_shows_it() -> None:
    async with serving(FixedClusterView([])) as called:
        await called.refused(an_extender_call({"one": "a"}))
        called.cluster_view.scheduled_pods[:] = [a_scheduled_pod("a", "one")]
        assert await called.call({"one": "a"}) == {"one": victims("a")}


async def test_nodes_not_checked_in_time_are_left_out() -> None:
    async with serving(
        FixedClusterView([a_scheduled_pod("a", "one")]), timeout_seconds=0.0
    ) as called:
        status, _ = await called.refused(an_extender_call({"one": "a"}))
        assert status == 503
        assert called.counted(CallOutcome.LATE) == 1


async def test_a_search_of_other_nodes_that_is_cut_short_leaves_no_choice_to_the_scheduler() -> (
    None
):
    """Its own victims are protected."""
    cluster_view = FixedClusterView(
        [a_scheduled_pod("a", "one", is_non_preemptible=True), a_scheduled_pod("b", "two")]
    )
    async with serving(cluster_view) as called:
        # It begins, looks what is known, looks at the node that was offered; the time is over.
        looks = iter([0.0, 0.0, 0.0])
        called.extender._monotonic = lambda: next(looks, 4.0)
        assert await called.call({"one": "a"}) == {}
        assert called.counted(CallOutcome.NOTHING) == 1


async def test_the_best_of_the_nodes_checked_in_time_is_returned() -> None:
    cluster_view = FixedClusterView(
        [
            a_scheduled_pod(f"v{priority}", f"n{priority}", priority=priority)
            for priority in (5, 3, 1)
        ]
    )
    async with serving(cluster_view) as called:
        # It begins, looks what is known, looks at two nodes; and then the time is over.
        looks = iter([0.0, 0.0, 0.0, 0.0])
        called.extender._monotonic = lambda: next(looks, 4.0)
        assert await called.call({"n5": ["v5"], "n3": ["v3"], "n1": ["v1"]}) == {
            "n3": victims("v3")
        }
        assert (called.counted(CallOutcome.PARTIAL), called.counted(CallOutcome.CHOSEN)) == (1, 0)
        assert called.cluster_view.assumed == [("pod-p", "n3", ["v3"])]
        assert called.choices.find("n3", "v3", by="p") is not None


GANG = GangKey("default", "mine")
MEMBERS = ["p", "q", "r"]


def a_gang_without_room() -> FixedClusterView:
    """Return a cluster with a gang of three, and two nodes that it may have."""
    pods = [a_preemptor(uid, gang=GANG) for uid in MEMBERS]
    preemptors = [
        replace(pod, pending_members=tuple(one.demand for one in pods if one is not pod))
        for pod in pods
    ]
    return FixedClusterView([a_scheduled_pod("a", "one"), a_scheduled_pod("b", "two")], preemptors)


def with_plans_that_end_at(seconds: float, called: Called, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the time pass only while a gang is planned, and until then."""
    now, plan = [0.0], GangPlanner.plan

    def plan_until_then(*args: Any) -> Any:
        now[0] = seconds
        return plan(*args)

    monkeypatch.setattr(GangPlanner, "plan", plan_until_then)
    called.extender._monotonic = lambda: now[0]


def remember_failed_plans(monkeypatch: pytest.MonkeyPatch, factor: float = float("inf")) -> None:
    """Remember each plan of a gang that failed, for so many times as long as it took."""
    monkeypatch.setattr(failed_gang_plans, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(failed_gang_plans, "FACTOR", factor)


async def test_a_gang_that_cannot_be_placed_is_planned_once_for_all_of_its_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remember_failed_plans(monkeypatch)
    cluster_view = a_gang_without_room()
    async with serving(cluster_view) as called:
        for uid in MEMBERS:
            assert await called.call({"one": "a", "two": "b"}, uid) == {}
        assert called.counted(CallOutcome.NOTHING) == len(MEMBERS)
        assert cluster_view.snapshots_taken == 1
        # A pod of another gang has its own plan.
        cluster_view.preemptors[:] = [a_preemptor("other", gang=GangKey("default", "other"))]
        assert await called.call({"one": "a"}, "other") == {"one": victims("a")}


async def test_a_gang_that_could_not_be_placed_gets_victims_once_the_time_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remember_failed_plans(monkeypatch, factor=0.0)
    cluster_view = a_gang_without_room()
    async with serving(cluster_view) as called:
        assert await called.call({"one": "a", "two": "b"}) == {}
        cluster_view.scheduled_pods.append(a_scheduled_pod("c", "three"))
        assert await called.call({"one": "a", "two": "b"}) == {"one": victims("a")}


async def test_a_gang_whose_plan_took_longer_than_the_scheduler_waits_is_not_planned_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remember_failed_plans(monkeypatch)
    cluster_view = a_gang_without_room()
    async with serving(cluster_view) as called:
        with_plans_that_end_at(4.5, called, monkeypatch)
        await called.refused(an_extender_call({"one": "a", "two": "b"}))
        assert called.counted(CallOutcome.LATE) == 1
        assert await called.call({"one": "a", "two": "b"}, "q") == {}
        assert cluster_view.snapshots_taken == 1


async def test_a_gang_for_which_not_all_nodes_were_searched_in_time_is_planned_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remember_failed_plans(monkeypatch)
    cluster_view = a_gang_without_room()
    async with serving(cluster_view) as called:
        # It begins, looks what is known, when half of the time is over, and at one node.
        looks = iter([0.0] * 4)
        called.extender._monotonic = lambda: next(looks, 2.0)
        await called.refused(an_extender_call({"one": "a", "two": "b"}))
        assert called.counted(CallOutcome.LATE) == 1
        assert called.value("reprieve_extender_passed_over_total", reason="gang-not-placed") == 1
        called.extender._monotonic = time.monotonic
        assert await called.call({"one": "a", "two": "b"}) == {}
        assert cluster_view.snapshots_taken == 2


async def test_a_gang_whose_plan_takes_too_long_leaves_no_choice_to_the_scheduler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its own victims would make room for one pod of a gang that has no place."""
    cluster_view = a_gang_without_room()
    cluster_view.scheduled_pods.append(a_scheduled_pod("c", "three"))
    async with serving(cluster_view) as called:
        with_plans_that_end_at(4.0, called, monkeypatch)
        assert await called.call({"one": "a", "two": "b"}) == {}
        assert called.counted(CallOutcome.NOTHING) == 1
        assert called.value("reprieve_extender_passed_over_total", reason="gang-not-placed") == 3


async def test_a_system_critical_preemptor_keeps_the_schedulers_own_choice() -> None:
    async with serving(
        FixedClusterView([a_scheduled_pod("a", "one")], [a_preemptor(is_exempt=True)])
    ) as called:
        status, _ = await called.refused(an_extender_call({"one": "a"}))
        assert status == 503
        assert called.counted(CallOutcome.EXEMPT) == 1
        assert called.cluster_view.assumed == []


async def test_a_late_result_is_neither_assumed_nor_remembered() -> None:
    async with serving(FixedClusterView([a_scheduled_pod("a", "one")])) as called:
        # It begins, looks what is known, looks at the node; and then it is too late.
        looks = iter([0.0, 0.0, 0.0])
        called.extender._monotonic = lambda: next(looks, 4.5)
        status, _ = await called.refused(an_extender_call({"one": "a"}))
        assert status == 503
        assert called.counted(CallOutcome.LATE) == 1
        assert called.cluster_view.assumed == []
        assert called.choices.find("one", "a", by="p") is None


async def test_a_call_whose_scheduler_hung_up_counts_as_late_and_no_pod_is_assumed_to_leave() -> (
    None
):
    """After this process was stopped, the scheduler has long made its own choice.

    A late result is no set of victims that will leave.
    """
    async with serving(
        FixedClusterView([a_scheduled_pod("a", "one")], lookups_until_seen=10**9)
    ) as called:
        asked, answer = list[Callable[[], bool]](), called.extender.answer

        async def answering(read: Any, hung_up: Callable[[], bool]) -> Any:
            asked.append(hung_up)
            return await answer(read, hung_up)

        called.extender.answer = answering  # type: ignore[method-assign]
        # The time does not pass: what ends is the scheduler's patience.
        called.extender._monotonic = lambda: 0.0
        call = asyncio.create_task(called.server.send(PATH, an_extender_call({"one": "a"})))
        await until(lambda: bool(asked))
        assert not asked[0]()
        call.cancel()
        await until(asked[0])
        called.cluster_view.lookups_until_seen = 0
        await until(lambda: called.counted(CallOutcome.LATE) == 1)
        assert called.cluster_view.assumed == []
        assert called.choices.find("one", "a", by="p") is None


async def test_an_internal_error_is_answered_and_the_next_call_is_served(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(
        FixedClusterView([a_scheduled_pod("a", "one")], failure=ValueError("of a test"))
    ) as called:
        status, text = await called.refused(an_extender_call({"one": "a"}))
        assert (status, text) == (500, "internal error; see the log\n")
        assert called.counted(CallOutcome.ERROR) == 1
        assert "of a test" in caplog.text
        called.cluster_view.failure = None
        assert await called.call({"one": "a"}) == {"one": victims("a")}


DEEP = 14_000
HOSTILE = {
    "nothing": (b"", 400),
    "half a call": (an_extender_call({"one": "a"})[:30], 400),
    "a review": (json.dumps(a_review(a_pod())).encode(), 400),
    "arrays within arrays": (b"[" * 40_000, 400),
    "objects within objects": (b'{"Pod":' * DEEP, 400),
    "more than the limit": (b" " * (LIMIT + 1), 413),
    "a uid of any length": (an_extender_call({}, "u" * 40_000), 400),
    "nodes without end": (an_extender_call({f"n{index}": "" for index in range(2_000)}), 503),
}


@pytest.mark.parametrize(("body", "status"), HOSTILE.values(), ids=HOSTILE)
@pytest.mark.usefixtures("short_watch_lag")
async def test_hostile_bodies_are_answered_in_one_sentence(body: bytes, status: int) -> None:
    async with serving(FixedClusterView([], [])) as called:
        found, text = await called.refused(body)
        assert found == status
        assert len(text) < 300


async def test_a_call_about_more_nodes_than_any_cluster_has_is_counted_as_malformed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "_MAX_NODES", 1)
    async with serving() as called:
        status, text = await called.refused(an_extender_call({"one": "a", "two": "a"}))
        assert (status, text) == (400, "not ExtenderPreemptionArgs: 2 nodes: must be at most 1\n")
        assert called.counted(CallOutcome.MALFORMED) == 1
        assert called.cluster_view.lookups == 0


async def test_slow_calls_are_disconnected_and_block_no_other_scheduler() -> None:
    async with serving(read_seconds=5.0) as called:
        slow = [asyncio.create_task(_send_half(called.server)) for _ in range(8)]
        await until(lambda: len(called.extender._waits) == 8)
        assert await called.call({"one": "a"}) == {"one": victims("a")}
        # The connection that had been sending for longest was closed for it.
        assert sorted(await asyncio.gather(*slow)) == [408] * 7 + [503]
        assert called.counted(CallOutcome.BUSY) == 1
        assert called.extender._waits == []


async def test_a_third_concurrent_call_is_rejected() -> None:
    async with serving() as called:
        async with called.extender._decision_lock:
            two = [asyncio.create_task(called.call({"one": "a"})) for _ in range(2)]
            await until(lambda: called.extender._in_flight == 2)
            status, _ = await called.refused(an_extender_call({"one": "a"}))
            assert status == 503
            assert called.counted(CallOutcome.BUSY) == 1
        assert await asyncio.gather(*two) == [{"one": victims("a")}] * 2


async def test_calls_about_pods_that_do_not_exist_keep_no_scheduler_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each waits for the watch, as a scheduler may be ahead of it; none holds a place meanwhile."""
    monkeypatch.setattr(service, "_WATCH_LAG_SECONDS", 1000.0)
    async with serving() as called:
        calls: list[asyncio.Task[tuple[int, str]]] = []

        def are_waiting() -> bool:
            dropped = max(0, len(calls) - 8)
            return (
                called.counted(CallOutcome.BUSY) == dropped
                and len(called.extender._waits) == len(calls) - dropped
                and called.extender._in_flight == 0
            )

        for number in range(20):
            body = an_extender_call({"one": "a"}, f"invented-{number}")
            calls.append(asyncio.create_task(called.refused(body)))
            await until(are_waiting)
        assert await called.call({"one": "a"}) == {"one": victims("a")}
        monkeypatch.setattr(called.extender, "_is_preemptor", lambda _: True)
        assert {status for status, _ in await asyncio.gather(*calls)} == {503}


WITHOUT_VICTIMS = {
    "a pod with a scheduling gate": {"is_gated": True},
    "a pod that another scheduler places, or none": {"scheduler": "nobody"},
}


@pytest.mark.parametrize("fields", WITHOUT_VICTIMS.values(), ids=WITHOUT_VICTIMS)
@pytest.mark.usefixtures("short_watch_lag")
async def test_no_pod_is_preempted_for(fields: dict[str, Any]) -> None:
    cluster_view = FixedClusterView(
        [a_scheduled_pod("a", "one")], [a_preemptor(**{"scheduler": "ours", **fields})]
    )
    async with serving(cluster_view, schedulers=["ours"]) as called:
        status, _ = await called.refused(an_extender_call({"one": "a"}))
        assert status == 503
        assert called.cluster_view.assumed == []
        called.cluster_view.preemptors[:] = [a_preemptor(scheduler="ours")]
        assert await called.call({"one": "a"}) == {"one": victims("a")}


async def test_only_posts_of_json_are_calls() -> None:
    async with serving() as called:
        assert (await called.server.get(PATH))[0] == 405
        status, _ = await called.server.send(
            PATH, an_extender_call({"one": "a"}), headers={"Content-Type": "text/plain"}
        )
        assert status == 415


def test_every_outcome_without_a_result_leaves_the_choice_to_the_scheduler() -> None:
    assert set(CallOutcome) - FALLBACKS == {
        CallOutcome.CHOSEN,
        CallOutcome.PARTIAL,
        CallOutcome.NOTHING,
        CallOutcome.QUOTA_EXCEEDED,
        CallOutcome.CLAIMED,
    }
