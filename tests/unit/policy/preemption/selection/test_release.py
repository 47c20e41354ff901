"""Which leaving pods are waited for: never for ever, and on all nodes only if they are notified."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection import DryRunStatus, RefusalReason, release
from reprieve_policy.preemption.selection.snapshot import GangKey
from reprieve_testing.objects.builders import NOW, after
from reprieve_testing.objects.snapshots import (
    ALL_PODS,
    a_node_info,
    a_pod_demand,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
    with_fields,
)

ONE = a_preemptor()
DELETED: Mapping[str, Any] = {"is_leaving": True, "notified": False, "is_being_deleted": True}
NOTIFIED: Mapping[str, Any] = {"is_leaving": True, "notified": True, "release_expected_at": NOW}
MARKED: Mapping[str, Any] = {"is_leaving": True, "notified": False, "release_expected_at": None}
CEILING = 1800
HELD = {"is_leaving": True, "notified": False, "is_held_by_budget": True}
TEAM = GangKey("team", "old")
MINE = GangKey("team", "mine")

SEEN: dict[str, tuple[Mapping[str, Any], DryRunStatus]] = {
    "notified by the operator": ({"is_leaving": True}, DryRunStatus.ROOM_BEING_RELEASED),
    "deleted by another client": (DELETED, DryRunStatus.ROOM_MAY_BE_RELEASED),
    "a grace period equal to the longest wait": (
        {**DELETED, "release_expected_at": after(CEILING)},
        DryRunStatus.ROOM_MAY_BE_RELEASED,
    ),
    "a grace period above the longest wait": (
        {**DELETED, "release_expected_at": after(CEILING + 1)},
        DryRunStatus.NO_VICTIMS,
    ),
    "a grace period of years, after the notice": (
        {"is_leaving": True, "release_expected_at": after(10**9)},
        DryRunStatus.NO_VICTIMS,
    ),
    "overdue by the longest wait": (
        {"is_leaving": True, "release_expected_at": after(-CEILING)},
        DryRunStatus.ROOM_BEING_RELEASED,
    ),
    "overdue by more than the longest wait": (
        {"is_leaving": True, "release_expected_at": after(-CEILING - 1)},
        DryRunStatus.NO_VICTIMS,
    ),
    "marked, not notified": (MARKED, DryRunStatus.NO_VICTIMS),
    "a budget holds it": (HELD, DryRunStatus.ROOM_MAY_BE_RELEASED),
    "a budget has held it for the longest wait": (
        {**HELD, "release_expected_at": after(-CEILING)},
        DryRunStatus.ROOM_MAY_BE_RELEASED,
    ),
}


@pytest.mark.parametrize(("fields", "want"), SEEN.values(), ids=SEEN)
def test_a_leaving_pod_is_waited_for(fields: Mapping[str, Any], want: DryRunStatus):
    """On its node. On other nodes another pod is preempted, unless this one was notified."""
    built = a_snapshot(
        a_node_info("a", a_scheduled_pod("going", **fields), cpu=1),
        a_node_info("b", a_scheduled_pod("low"), cpu=1),
    ).build()

    found = selection.decide(ONE, built, ["a", "b"])

    assert found.node_statuses == {"a": want}
    assert (found.best is None) == (want is DryRunStatus.ROOM_BEING_RELEASED)


LONG = {"unschedulable_since": after(-CEILING)}
REQUESTED: dict[str, tuple[Mapping[str, Any], Mapping[str, Any], DryRunStatus]] = {
    "by request, of a preemptor that has waited for less": (
        {"leaves_for_none": True},
        {"unschedulable_since": after(-CEILING + 1)},
        DryRunStatus.ROOM_BEING_RELEASED,
    ),
    "by request, of a preemptor that has waited for one ceiling": (
        {"leaves_for_none": True},
        LONG,
        DryRunStatus.ROOM_MAY_BE_RELEASED,
    ),
    "not by request": ({}, LONG, DryRunStatus.ROOM_BEING_RELEASED),
}


@pytest.mark.parametrize(("fields", "waits", "want"), REQUESTED.values(), ids=REQUESTED)
def test_all_nodes_wait_for_a_pod_that_leaves_by_request_for_one_ceiling_of_the_preemptors(
    fields: Mapping[str, Any], waits: Mapping[str, Any], want: DryRunStatus
):
    """Without this, a user would mark one pod after another, each in the room of the one before.

    That would keep a preemptor from all other victims for ever.
    """
    built = a_snapshot(
        a_node_info("a", a_scheduled_pod("going", **NOTIFIED, **fields), cpu=1),
        a_node_info("b", a_scheduled_pod("low"), cpu=1),
    ).build()

    found = selection.decide(a_preemptor(**waits), built, ["a", "b"])

    assert found.node_statuses == {"a": want}
    assert (found.best is None) == (want is DryRunStatus.ROOM_BEING_RELEASED)


AGES = [CEILING + 1, 3600, 360_000]


@pytest.mark.parametrize("age", AGES)
def test_a_pod_that_a_budget_holds_past_the_ceiling_is_a_victim_like_any_other(age: int):
    held = a_scheduled_pod("held", **HELD, release_expected_at=after(-age))

    best = selection.decide(ONE, a_snapshot(a_node_info("a", held, cpu=1)).build(), ["a"]).best

    assert best is not None
    assert [victim.name for victim in best.victims] == ["held"]


def test_a_pod_that_a_budget_holds_past_the_ceiling_is_protected_like_any_other():
    held = a_scheduled_pod(
        "held", **HELD, release_expected_at=after(-CEILING - 1), is_non_preemptible=True
    )
    snapshot = a_snapshot(a_node_info("a", held, cpu=1)).build()

    assert selection.decide(ONE, snapshot, ["a"]).node_statuses == {"a": DryRunStatus.NO_VICTIMS}
    assert selection.decide(ONE, snapshot, ["a"], {"a": {"held"}}).node_statuses == {
        "a": DryRunStatus.NO_VICTIMS
    }


HELD_GANGS: dict[str, tuple[tuple[int, int], DryRunStatus | None]] = {
    "below the longest wait": ((0, 0), DryRunStatus.ROOM_MAY_BE_RELEASED),
    "a single pod beyond the longest wait": (
        (CEILING + 1, 60),
        DryRunStatus.ROOM_MAY_BE_RELEASED,
    ),
    "both pods beyond the longest wait": ((CEILING + 1, 3600), None),
}


@pytest.mark.parametrize(("ages", "want"), HELD_GANGS.values(), ids=HELD_GANGS)
def test_whether_a_gang_that_budgets_hold_is_waited_for(
    ages: tuple[int, int], want: DryRunStatus | None
):
    one, other = (
        a_scheduled_pod(f"of-{age}", gang=TEAM, **HELD, release_expected_at=after(-age))
        for age in ages
    )
    snapshot = (
        a_snapshot(
            a_node_info("a", one, cpu=1), a_node_info("b", replace(other, uid="other"), cpu=1)
        )
        .with_gang("old")
        .build()
    )

    found = selection.decide(ONE, snapshot, ["a"])

    assert found.node_statuses.get("a") is want
    assert (found.best is None) == (want is not None)
    if found.best is not None:
        assert len(found.best.all_pods) == len(ages)


def test_a_deleted_pod_of_a_gang_that_budgets_hold_delays_no_preemption_on_other_nodes():
    """The others stay. Without this, a user who deletes their own pods one after another would stop
    preemption for the grace period of each.
    """
    deleted = a_scheduled_pod("deleted", gang=TEAM, **DELETED, release_expected_at=after(CEILING))
    stays = a_scheduled_pod("stays", gang=TEAM, **HELD, release_expected_at=after(-CEILING - 1))
    node_infos = (
        a_node_info("a", deleted, cpu=1),
        a_node_info("b", stays, cpu=1),
        a_node_info("c", a_scheduled_pod("low"), cpu=1),
    )

    found = selection.decide(ONE, a_snapshot(*node_infos).with_gang("old").build(), ["b", "c"])

    assert found.node_statuses == {}
    assert found.best is not None


@pytest.mark.parametrize(("age", "is_needed"), [(60, True), (CEILING + 1, False)])
def test_a_pod_that_a_budget_holds_past_the_ceiling_still_counts_in_its_gang(
    age: int, *, is_needed: bool
):
    held = a_scheduled_pod("held", gang=TEAM, **HELD, release_expected_at=after(-age))
    node_info = a_node_info(
        "a",
        a_scheduled_pod("low", gang=TEAM),
        held,
        a_scheduled_pod("high", gang=TEAM, priority=5),
        cpu=3,
    )
    snapshot = (
        a_snapshot(node_info).with_gang("old", DisruptionMode.SINGLE, min_available=2).build()
    )

    refused = selection.refusal_for(ONE, snapshot.nodes["a"].pods[0], snapshot)

    assert (refused is not None and refused.reason is RefusalReason.MIN_AVAILABLE) is is_needed


LEAVES_FIRST: dict[str, tuple[Mapping[str, Any], DisruptionMode]] = {
    "a pod that is marked, of a gang that can spare none": (MARKED, DisruptionMode.SINGLE),
    "a notified pod of a gang that can spare none": (NOTIFIED, DisruptionMode.SINGLE),
    "a pod that a budget holds, of a gang that can spare none": (HELD, DisruptionMode.SINGLE),
    "a pod that a budget holds, of a gang that leaves as a whole": (HELD, DisruptionMode.ALL),
}


@pytest.mark.parametrize(("leaves", "mode"), LEAVES_FIRST.values(), ids=LEAVES_FIRST)
def test_pods_that_leave_one_after_another_keep_the_rest_of_their_gang_for_one_ceiling(
    leaves: Mapping[str, Any], mode: DisruptionMode
):
    """Without this, a user who marks one small pod after another would keep the large ones."""
    decoy = a_scheduled_pod("decoy", gang=TEAM, **leaves)

    def decide(seconds: int | None) -> tuple[selection.PreemptionDecision, bool]:
        since = None if seconds is None else after(-seconds)
        large = a_scheduled_pod("large", gang=TEAM, refused_since=since)
        node_infos = (a_node_info("a", large, cpu=1), a_node_info("b", decoy, cpu=1))
        snapshot = a_snapshot(*node_infos).with_gang("old", mode, min_available=2).build()
        refusal = selection.refusal_for(ONE, snapshot.nodes["a"].pods[0], snapshot)
        recorded = selection.renewably_refused(ONE, snapshot, ["a"], 9)
        assert bool(recorded) == (seconds is None)
        return selection.decide(ONE, snapshot, ["a"]), bool(refusal and refusal.is_renewable)

    for seconds in (None, CEILING - 1):
        found, is_renewable = decide(seconds)
        assert found.best is None
        assert is_renewable
    found, is_renewable = decide(CEILING)
    assert found.best is not None
    assert [pod.uid for pod in found.best.all_pods] == ["large"]
    assert not is_renewable


def test_every_pod_of_such_a_gang_is_recorded():
    staying = [a_scheduled_pod(name, gang=TEAM) for name in ("one", "two")]
    decoy = a_scheduled_pod("decoy", gang=TEAM, **MARKED)
    node_infos = (a_node_info("a", *staying, cpu=2), a_node_info("b", decoy, cpu=1))
    snapshot = (
        a_snapshot(*node_infos).with_gang("old", DisruptionMode.SINGLE, min_available=3).build()
    )

    recorded = selection.renewably_refused(ONE, snapshot, ["a"], 9)

    assert [pod.name for pod in recorded] == ["one", "two"]


def test_a_gang_that_leaves_for_this_preemptor_is_not_recorded():
    """Each of its pods is marked in a moment: one more write would only be in the way."""
    leaves = a_scheduled_pod("leaves", gang=TEAM, **NOTIFIED, preemptor_uid=ONE.demand.uid)
    node_infos = (
        a_node_info("a", a_scheduled_pod("next", gang=TEAM), cpu=1),
        a_node_info("b", leaves, cpu=1),
    )
    snapshot = (
        a_snapshot(*node_infos).with_gang("old", DisruptionMode.SINGLE, min_available=2).build()
    )

    refused = selection.refusal_for(ONE, snapshot.nodes["a"].pods[0], snapshot)

    assert refused is not None
    assert (refused.reason, refused.is_renewable) == (RefusalReason.MIN_AVAILABLE, False)


def test_a_gang_that_leaves_as_a_whole_is_no_victim_again_though_it_was_refused_before():
    node_infos = (
        a_node_info("a", a_scheduled_pod("stays", gang=TEAM, refused_since=after(-CEILING)), cpu=1),
        a_node_info("b", a_scheduled_pod("leaves", gang=TEAM, **NOTIFIED), cpu=1),
    )
    snapshot = a_snapshot(*node_infos).with_gang("old").build()

    refused = selection.refusal_for(ONE, snapshot.nodes["a"].pods[0], snapshot)

    assert refused is not None
    assert (refused.reason, refused.is_renewable) == (RefusalReason.ALREADY_LEAVING, False)
    assert selection.renewably_refused(ONE, snapshot, ["a"], 9) == ()


def test_a_pod_that_a_budget_holds_belongs_to_no_preemption_and_delays_none():
    built = a_snapshot(
        a_node_info("a", a_scheduled_pod("held", **HELD), cpu=1),
        a_node_info("b", a_scheduled_pod("low"), cpu=1),
    ).build()

    assert (
        selection.decide(a_preemptor(member_nominated_nodes=("a",)), built, ["a", "b"]).best
        is not None
    )


def test_pods_that_leave_for_the_preemptors_gang_are_waited_for_on_all_nodes():
    built = a_snapshot(
        a_node_info("a", a_scheduled_pod("going", **DELETED), cpu=1),
        a_node_info("b", a_scheduled_pod("low"), cpu=1),
    ).build()

    found = selection.decide(a_preemptor(member_nominated_nodes=("a",)), built, ["a", "b"])

    assert found.best is None
    assert found.node_statuses == {"a": DryRunStatus.ROOM_BEING_RELEASED}


def test_pods_marked_for_the_preemptors_gang_are_waited_for_before_they_are_notified():
    """The rest of its gang is waited for, too. Without this, a member that is scheduled before the
    operator notifies would get a second victim set.
    """
    marked = a_scheduled_pod(
        "marked", gang=TEAM, is_leaving=True, notified=False, release_expected_at=None
    )
    first = a_node_info("a", marked, cpu=1, nominated_pods=(a_pod_demand("mate"),))
    snapshot = a_snapshot(
        first,
        a_node_info("b", a_scheduled_pod("member", gang=TEAM), cpu=1),
        a_node_info("c", a_scheduled_pod("low"), cpu=1),
    )
    preemptor = a_preemptor(gang=MINE, member_nominated_nodes=("a",))

    found = selection.decide(preemptor, snapshot.with_gang("old").build(), ["a", "b", "c"])

    assert found.best is None
    assert found.node_statuses == {
        "a": DryRunStatus.NO_VICTIMS,
        "b": DryRunStatus.ROOM_BEING_RELEASED,
    }


def test_capacity_that_needs_notified_and_deleted_pods_is_not_promised():
    both = a_node_info(
        "a", a_scheduled_pod("told", is_leaving=True), a_scheduled_pod("deleted", **DELETED), cpu=2
    )

    assert selection.decide(a_preemptor(cpu=2), a_snapshot(both).build(), ["a"]).node_statuses == {
        "a": DryRunStatus.ROOM_MAY_BE_RELEASED
    }


def test_capacity_of_notified_pods_is_promised_if_it_suffices():
    both = a_node_info(
        "a", a_scheduled_pod("told", is_leaving=True), a_scheduled_pod("deleted", **DELETED), cpu=2
    )

    assert selection.decide(ONE, a_snapshot(both).build(), ["a"]).node_statuses == {
        "a": DryRunStatus.ROOM_BEING_RELEASED
    }


def test_members_of_a_pod_that_leaves_in_years_are_not_waited_for():
    mate = a_scheduled_pod("mate", gang=TEAM)
    going = a_scheduled_pod(
        "one", gang=TEAM, is_leaving=True, is_being_deleted=True, release_expected_at=after(10**9)
    )
    snapshot = a_snapshot(
        a_node_info("a", mate, cpu=1),
        a_node_info("b", going, cpu=1),
        a_node_info("c", a_scheduled_pod("low"), cpu=1),
    )

    found = selection.decide(ONE, snapshot.with_gang("old").build(), ["a", "b", "c"])

    assert found.node_statuses == {"b": DryRunStatus.NO_VICTIMS}
    assert {choice.node for choice in found.candidates} == {"a", "c"}


FAR_OFF = {**DELETED, "release_expected_at": after(10**9)}
SHIELDS = {
    "deleted, with a grace period of years": (FAR_OFF, True),
    "overdue by more than the longest wait": (
        {**DELETED, "release_expected_at": after(-CEILING - 1)},
        True,
    ),
    "deleted, with a short grace period": ({**DELETED, "release_expected_at": after(30)}, True),
    "marked, not notified": (MARKED, False),
    "notified by the operator": (
        {**DELETED, "release_expected_at": after(30), "notified": True},
        False,
    ),
    "notified, then deleted with a grace period of years": ({**FAR_OFF, "notified": True}, True),
}


@pytest.mark.parametrize(("fields", "are_victims"), SHIELDS.values(), ids=SHIELDS)
def test_a_gang_pod_that_its_owner_deletes_leaves_alone_and_protects_no_other_pod_of_the_gang(
    fields: Mapping[str, Any], *, are_victims: bool
):
    mates = [a_scheduled_pod(name, gang=TEAM) for name in ("x", "y")]
    going = a_scheduled_pod("one", gang=TEAM, **fields)
    snapshot = (
        a_snapshot(a_node_info("a", *mates, cpu=2), a_node_info("b", going, cpu=1))
        .with_gang("old")
        .build()
    )

    best = selection.decide(a_preemptor(demand=a_pod_demand("p", cpu=2)), snapshot, ["a"]).best

    assert (best is not None) is are_victims
    if best is not None:
        assert {victim.name for victim in best.all_pods} == {"x", "y"}
        assert best.victim_count == 1


def test_a_leaving_pod_of_a_gang_evicted_pod_by_pod_protects_no_other_pod_of_the_gang():
    big = [a_scheduled_pod(name, gang=TEAM, cpu=2) for name in ("x", "y")]
    small = a_scheduled_pod("one", gang=TEAM, cpu=0.001, **FAR_OFF)
    snapshot = a_snapshot(
        a_node_info("a", big[0], small, cpu=2.001), a_node_info("b", big[1], cpu=2)
    )

    best = selection.decide(
        ONE, snapshot.with_gang("old", DisruptionMode.SINGLE, min_available=2).build(), ["a"]
    ).best

    assert best is not None
    assert ({one.name for one in best.all_pods}, best.victim_count) == ({"x", "y"}, 1)


def test_a_marked_pod_of_a_gang_that_can_spare_none_makes_no_other_pod_leave():
    """Without this, a user who marks their pods one after another would make all preemptors wait
    for the rest, which is not preempted.
    """
    marked, *rest = (a_scheduled_pod(name, gang=TEAM) for name in ("m0", "m1", "m2"))
    node_infos = [
        a_node_info(f"n{number}", one, cpu=1)
        for number, one in enumerate((with_fields(marked, **NOTIFIED), *rest))
    ]
    built = (
        a_snapshot(*node_infos, a_node_info("n9", a_scheduled_pod("low"), cpu=1))
        .with_gang("old", DisruptionMode.SINGLE, min_available=3)
        .build()
    )

    found = selection.decide(a_preemptor(cpu=1), built, ["n1", "n2", "n9"])

    assert found.best is not None
    assert found.best.node == "n9"
    assert found.node_statuses == {"n1": DryRunStatus.NO_VICTIMS, "n2": DryRunStatus.NO_VICTIMS}


WITHOUT_OPERATOR = {
    "was marked": (MARKED, True),
    "was notified": (NOTIFIED, True),
    "is being deleted": ({**NOTIFIED, "is_being_deleted": True}, False),
}


@pytest.mark.parametrize(("fields", "is_free"), WITHOUT_OPERATOR.values(), ids=WITHOUT_OPERATOR)
def test_without_an_operator_only_deleted_pods_are_waited_for(
    fields: Mapping[str, Any], *, is_free: bool
):
    """Without this, a preemptor would wait for ever for a pod that is only marked."""
    built = a_snapshot(a_node_info("a", a_scheduled_pod("one", **fields), cpu=1)).build()
    nominated = a_preemptor(nominated_node="a")

    gone = selection.decide(nominated, replace(built, operator_is_live=False), ["a"])

    assert (gone.best is not None) == is_free
    assert selection.decide(nominated, built, ["a"]).reason is RefusalReason.VICTIMS_LEAVING


ROUNDS: dict[str, tuple[Mapping[str, Any], RefusalReason | None]] = {
    "the victims are leaving": ({"is_leaving": True}, RefusalReason.VICTIMS_LEAVING),
    "the victims are deleted": (DELETED, RefusalReason.VICTIMS_LEAVING),
    "the victims were marked a moment ago": (MARKED, RefusalReason.VICTIMS_LEAVING),
    "a victim has a grace period of years": (
        {**DELETED, "release_expected_at": after(10**9)},
        None,
    ),
    "a budget holds an eviction there": (HELD, None),
    "its own victim goes": (
        {**NOTIFIED, "preemptor_uid": a_preemptor().demand.uid},
        RefusalReason.VICTIMS_LEAVING,
    ),
    "a scheduler's victim goes": (
        {**NOTIFIED, "preemptor_uid": release.UNKNOWN_PREEMPTOR},
        RefusalReason.VICTIMS_LEAVING,
    ),
    "only another preemptor's victim goes": ({**NOTIFIED, "preemptor_uid": "another"}, None),
}


def test_victims_that_leave_for_a_gang_are_waited_for_by_each_of_its_pods():
    going = a_scheduled_pod("going", **NOTIFIED, preemptor_uid="a-member")
    built = a_snapshot(a_node_info("a", going, cpu=1)).build()
    member = a_preemptor(nominated_node="a", gang=MINE)

    assert selection.decide(member, built, ["a"]).reason is RefusalReason.VICTIMS_LEAVING


@pytest.mark.parametrize(("fields", "want"), ROUNDS.values(), ids=ROUNDS)
def test_a_round_is_unfinished_while(fields: Mapping[str, Any], want: RefusalReason | None):
    built = a_snapshot(
        a_node_info("a", a_scheduled_pod("going", **fields), cpu=1),
        a_node_info("b", a_scheduled_pod("low"), cpu=1),
    ).build()

    assert selection.decide(a_preemptor(nominated_node="a"), built, ["a", "b"]).reason is want


@pytest.mark.parametrize("gang", [None, MINE])
@pytest.mark.parametrize(
    ("waited", "want"), [(CEILING - 1, RefusalReason.VICTIMS_LEAVING), (CEILING, None)]
)
def test_pods_that_leave_for_no_preemptor_are_not_waited_for_without_end(
    gang: Any, waited: float, want: RefusalReason | None
):
    built = a_snapshot(
        a_node_info("a", a_scheduled_pod("going", **DELETED, leaves_for_none=True), cpu=1),
        a_node_info("b", a_scheduled_pod("low"), cpu=1),
    ).build()
    waiting = a_preemptor(nominated_node="a", gang=gang, unschedulable_since=after(-waited))

    found = selection.decide(waiting, built, ["a", "b"])

    assert found.reason is want
    assert (found.best is not None) is (want is None)


def test_a_victim_of_an_unknown_preemptor_is_waited_for_however_long():
    built = a_snapshot(
        a_node_info("a", a_scheduled_pod("going", is_leaving=True), cpu=1),
        a_node_info("b", a_scheduled_pod("low"), cpu=1),
    ).build()
    waiting = a_preemptor(nominated_node="a", unschedulable_since=after(-CEILING))

    assert selection.decide(waiting, built, ["a", "b"]).reason is RefusalReason.VICTIMS_LEAVING


PROPOSED: dict[str, tuple[set[str], DryRunStatus]] = {
    "all victims were notified": ({"told"}, DryRunStatus.ROOM_BEING_RELEASED),
    "a victim is deleted": ({"told", "deleted"}, DryRunStatus.ROOM_MAY_BE_RELEASED),
    "a victim has a grace period of years": ({"low", "years"}, DryRunStatus.PROPOSAL_REJECTED),
    "a budget holds one of them": ({"told", "held"}, DryRunStatus.ROOM_MAY_BE_RELEASED),
    "no victim exists": ({"gone"}, DryRunStatus.PROPOSAL_OUTDATED),
    "a victim no longer exists": ({"low", "gone"}, DryRunStatus.PROPOSAL_OUTDATED),
}


@pytest.mark.parametrize(("proposed", "want"), PROPOSED.values(), ids=PROPOSED)
def test_the_status_of_a_reported_node_if(proposed: set[str], want: DryRunStatus):
    pods = (
        a_scheduled_pod("low"),
        a_scheduled_pod("told", is_leaving=True),
        a_scheduled_pod("deleted", **DELETED),
        a_scheduled_pod("years", is_leaving=True, release_expected_at=after(10**9)),
        a_scheduled_pod("held", **HELD),
    )
    built = a_snapshot(a_node_info("a", *pods, cpu=6)).build()

    found = selection.decide(ONE, built, ["a"], {"a": proposed}, reported_room={"a"})

    assert found.node_statuses == {"a": want}


def test_a_scheduler_that_retries_after_a_report_of_free_room_gets_its_own_victims():
    """It knows limits not evaluated here. Without this, its preemptor would wait for ever."""
    built = a_snapshot(
        a_node_info("a", a_scheduled_pod("cheap"), a_scheduled_pod("mounts", priority=5), cpu=4)
    ).build()

    best = selection.decide(ONE, built, ["a"], {"a": {"mounts"}}, reported_room={"a"}).best

    assert best is not None
    assert [victim.name for victim in best.victims] == ["mounts"]


FIRST: dict[str, tuple[set[str], set[str]]] = {
    "no candidate nodes": ({"mounts"}, set()),
    "another candidate node": ({"mounts"}, {"b", "gone"}),
    "no proposed victims": (set(), {"a"}),
}


@pytest.mark.parametrize(("proposed", "reported_nodes"), FIRST.values(), ids=FIRST)
def test_if_a_node_has_room_no_pod_is_preempted_anywhere(
    proposed: set[str], reported_nodes: set[str]
):
    """A pod may have ended in between. Without this, a victim would be evicted for nothing."""
    built = a_snapshot(
        a_node_info("a", a_scheduled_pod("mounts"), cpu=4),
        a_node_info("b", a_scheduled_pod("low"), cpu=1),
    ).build()

    found = selection.decide(
        ONE, built, ["a", "b"], {"a": proposed, "b": {"low"}}, reported_room=reported_nodes
    )

    assert found.best is None
    assert found.node_statuses == {"a": DryRunStatus.HAS_ROOM}


def test_a_gang_pod_gets_no_victims_on_a_reported_node_while_a_member_is_nominated_elsewhere():
    """The scheduler may have placed that member here a moment ago; then the victims on the other
    node leave for this one.
    """
    built = a_snapshot(a_node_info("a", a_scheduled_pod("low"), cpu=4)).build()
    preemptor = a_preemptor(gang=MINE, member_nominated_nodes=("b",))

    assert selection.decide(
        preemptor, built, ["a"], {"a": {"low"}}, reported_room={"a"}
    ).node_statuses == {"a": DryRunStatus.HAS_ROOM}


def test_proposed_victims_that_have_left_are_ignored():
    built = a_snapshot(a_node_info("a", a_scheduled_pod("low"), cpu=1)).build()

    best = selection.decide(ONE, built, ["a"], {"a": {"low", "gone"}}).best

    assert best is not None
    assert [victim.name for victim in best.victims] == ["low"]


def test_the_last_pod_of_a_gang_waits_until_the_scheduler_has_seen_the_victims_leave():
    """Without this, its scheduler, which sees the last victim a moment longer, would get a second
    victim set on another node.
    """
    built = a_snapshot(
        a_node_info("a", cpu=1), a_node_info("b", a_scheduled_pod("low"), cpu=1)
    ).build()

    found = selection.decide(
        a_preemptor(gang=MINE), built, ["a", "b"], {"a": {"gone"}, "b": {"low"}}
    )

    assert found.best is None
    assert found.node_statuses == {"a": DryRunStatus.PROPOSAL_OUTDATED}


def test_the_last_pod_of_a_gang_waits_even_if_the_scheduler_insists_on_another_node():
    """A pod may have been placed there a moment ago that no watch has shown yet."""
    built = a_snapshot(
        a_node_info("a", cpu=1), a_node_info("b", a_scheduled_pod("low"), cpu=4)
    ).build()
    proposed = {"a": {"gone"}, "b": {"low"}}

    found = selection.decide(
        a_preemptor(gang=MINE), built, ["a", "b"], proposed, reported_room={"a", "b"}
    )

    assert found.best is None
    assert found.node_statuses == {"a": DryRunStatus.PROPOSAL_OUTDATED}


def test_a_reported_node_that_is_full_again_is_evaluated_like_any_other():
    built = a_snapshot(
        a_node_info("a", a_scheduled_pod("low"), cpu=1),
        a_node_info("b", a_scheduled_pod("ended"), cpu=4),
    ).build()

    found = selection.decide(
        ONE, built, ["a", "b"], {"a": {"low"}, "b": {"ended"}}, reported_room={"a"}
    )

    assert found.node_statuses == {"b": DryRunStatus.HAS_ROOM}


def test_the_free_room_of_an_unreported_node_delays_no_preemption():
    """Without this, a scheduler would first get a report of every node of a large cluster."""
    node_infos = (a_node_info(node, a_scheduled_pod(f"on-{node}"), cpu=4) for node in "ab")

    found = selection.decide(
        ONE,
        a_snapshot(*node_infos).build(),
        ["a", "b"],
        {"a": {"on-a"}, "b": {"on-b"}},
        reported_room={"a"},
    )

    assert found.best is not None
    assert (found.best.node, found.node_statuses) == ("a", {"b": DryRunStatus.HAS_ROOM})


def test_notified_pods_are_waited_for_despite_a_report_of_free_room():
    going = a_node_info("b", a_scheduled_pod("going", is_leaving=True), cpu=1)
    built = a_snapshot(a_node_info("a", a_scheduled_pod("mounts"), cpu=4), going).build()

    assert (
        selection.decide(ONE, built, ["a", "b"], {"a": {"mounts"}}, reported_room={"a"}).best
        is None
    )


CLEARING = a_snapshot(
    a_node_info("a", a_scheduled_pod("going", is_leaving=True), cpu=1),
    a_node_info("b", a_scheduled_pod("low"), cpu=1),
).build()


def test_a_gangs_pod_waits_for_room_on_nodes_that_its_scheduler_does_not_name():
    found = selection.decide(a_preemptor(gang=MINE), CLEARING, ["b"])

    assert found.best is None
    assert found.node_statuses == {"a": DryRunStatus.ROOM_BEING_RELEASED}


ELSEWHERE: dict[str, dict[str, Any]] = {
    "has no gang": {},
    "depends on constraints that are not evaluated here": {
        "gang": MINE,
        "depends_on_other_pods": True,
    },
    "finds no room on the other nodes": {"gang": MINE, "demand": a_pod_demand(cpu=2)},
}


@pytest.mark.parametrize("fields", ELSEWHERE.values(), ids=ELSEWHERE)
def test_no_pod_waits_for_other_nodes_if_it(fields: Mapping[str, Any]):
    both = replace(
        CLEARING,
        nodes={**CLEARING.nodes, "b": a_node_info("b", a_scheduled_pod("low", cpu=2), cpu=2)},
    )

    assert selection.decide(a_preemptor(**fields), both, ["b"]).best is not None


def test_victims_on_another_node_are_chosen_if_a_new_pod_took_the_freed_room():
    """A scheduler names many victims, some of which always leave. Without this, no pod would be
    preempted in a large cluster.
    """
    full = a_node_info(
        "a", a_scheduled_pod("new", is_non_preemptible=True, anti_affinity=ALL_PODS), cpu=1
    )
    built = a_snapshot(full, a_node_info("b", a_scheduled_pod("low"), cpu=1)).build()

    found = selection.decide(ONE, built, ["a", "b"], {"a": {"gone"}, "b": {"low"}})

    assert found.best is not None
    assert (found.best.node, found.node_statuses) == ("b", {"a": DryRunStatus.PROPOSAL_REJECTED})


def test_proposed_victims_must_be_eligible():
    built = a_snapshot(
        a_node_info("a", a_scheduled_pod("mounts", is_non_preemptible=True), cpu=4)
    ).build()

    found = selection.decide(ONE, built, ["a"], {"a": {"mounts"}}, reported_room={"a"})

    assert found.node_statuses == {"a": DryRunStatus.PROPOSAL_REJECTED}


def test_leaving_pods_that_release_enough_room_are_waited_for_first():
    built = a_snapshot(
        a_node_info("a", a_scheduled_pod("low"), a_scheduled_pod("told", is_leaving=True), cpu=2)
    ).build()

    assert selection.decide(ONE, built, ["a"], {"a": {"low"}}).node_statuses == {
        "a": DryRunStatus.ROOM_BEING_RELEASED
    }


def test_a_pod_that_leaves_in_years_is_no_victim_of_a_round():
    stuck = (
        a_scheduled_pod(f"stuck-{index}", is_leaving=True, release_expected_at=after(10**9))
        for index in range(3)
    )
    built = a_snapshot(
        a_node_info("a", a_scheduled_pod("low"), cpu=1), a_node_info("b", *stuck, cpu=3)
    ).build()

    assert (
        selection.decide(a_preemptor(member_nominated_nodes=("b",)), built, ["a"]).best is not None
    )
