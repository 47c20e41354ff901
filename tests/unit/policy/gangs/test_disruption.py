"""Which gangs are evicted as a unit, and the decision from one observation of their pods."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from reprieve_policy import keys
from reprieve_policy.gangs import disruption, membership
from reprieve_policy.gangs.disruption import DisruptionMode, GangDecision, GangMemberState
from reprieve_policy.kube.objects import pod_views
from reprieve_policy.lifecycle.eviction import (
    AWAITING_WORKLOAD,
    CheckpointOutcome,
    Eviction,
    Phase,
    Source,
)
from reprieve_policy.lifecycle.transitions import TERMINAL
from reprieve_testing.objects.builders import PodBuilder, a_pod, after, an_eviction

LEADER = a_pod().labelled(keys.LEADER_WORKER_SET, "llm").labelled(keys.LEADER_WORKER_GROUP, "0")
OWN_UID = "podgroup-pod-uid"

MODES = {
    "a gang by label is evicted as a unit": (a_pod().in_gang("train"), DisruptionMode.ALL),
    "a gang of Koordinator is evicted as a unit": (
        a_pod().in_koordinators_gang("train"),
        DisruptionMode.ALL,
    ),
    "a pod group of Kueue is evicted as a unit": (
        a_pod().labelled(keys.KUEUE_GROUP, "train"),
        DisruptionMode.ALL,
    ),
    "the pods of a JobSet are evicted as a unit": (
        a_pod().labelled(keys.JOBSET, "train"),
        DisruptionMode.ALL,
    ),
    "a replica of a LeaderWorkerSet is evicted as a unit": (LEADER, DisruptionMode.ALL),
    "a Job's pods are replaced one by one": (
        a_pod().labelled(keys.JOB, "train"),
        DisruptionMode.SINGLE,
    ),
    "a Job's pods that declare a gang are evicted as a unit": (
        a_pod().labelled(keys.JOB, "train").in_gang("train"),
        DisruptionMode.ALL,
    ),
    "a Job's pods that belong to a JobSet are evicted as a unit": (
        a_pod().labelled(keys.JOB, "train-0").labelled(keys.JOBSET, "train"),
        DisruptionMode.ALL,
    ),
    "a native PodGroup decides itself": (
        a_pod().in_native_gang("train"),
        DisruptionMode.FROM_POD_GROUP,
    ),
    "a native PodGroup decides even if labels name a gang": (
        a_pod().in_native_gang("train").in_gang("train"),
        DisruptionMode.FROM_POD_GROUP,
    ),
    "a gang of Volcano is evicted as a unit": (
        a_pod().annotated(keys.VOLCANO_GROUP, "train"),
        DisruptionMode.ALL,
    ),
    "the group that Volcano generates for a single pod is no gang": (
        a_pod().annotated(keys.VOLCANO_GROUP, OWN_UID),
        DisruptionMode.SINGLE,
    ),
    "the group that Volcano generates for a controller is no gang": (
        a_pod().owned_by("ReplicaSet", "web").annotated(keys.VOLCANO_GROUP, "podgroup-uid-of-web"),
        DisruptionMode.SINGLE,
    ),
    "a gang that is stated to go pod by pod": (
        a_pod().in_gang("train").annotated(keys.DISRUPTION_MODE, "pod"),
        DisruptionMode.SINGLE,
    ),
    "a JobSet that is stated to go pod by pod": (
        a_pod().labelled(keys.JOBSET, "train").annotated(keys.DISRUPTION_MODE, "pod"),
        DisruptionMode.SINGLE,
    ),
    "a LeaderWorkerSet that is stated to go pod by pod": (
        LEADER.annotated(keys.DISRUPTION_MODE, "pod"),
        DisruptionMode.SINGLE,
    ),
    "a Job that is stated to go as a unit": (
        a_pod().labelled(keys.JOB, "train").annotated(keys.DISRUPTION_MODE, "gang"),
        DisruptionMode.ALL,
    ),
    "an unreadable statement counts as none": (
        a_pod().in_gang("train").annotated(keys.DISRUPTION_MODE, "all"),
        DisruptionMode.ALL,
    ),
    "a native PodGroup decides whatever its pods state": (
        a_pod().in_native_gang("train").annotated(keys.DISRUPTION_MODE, "gang"),
        DisruptionMode.FROM_POD_GROUP,
    ),
    "a declared gang with such a name is evicted as a unit": (
        a_pod().in_gang(OWN_UID),
        DisruptionMode.ALL,
    ),
}


@pytest.mark.parametrize(("pod", "mode"), MODES.values(), ids=MODES)
def test_the_mode_of_a_gang(pod: PodBuilder, mode: DisruptionMode) -> None:
    resource = pod.build()
    (view,) = pod_views(resource)
    found = membership.read(view)
    assert found is not None
    assert disruption.disruption_mode_of(found, resource.metadata) is mode


NATIVE_MODES = {
    "nothing": (None, DisruptionMode.SINGLE),
    "an empty union": ({}, DisruptionMode.SINGLE),
    "single": ({"single": {}}, DisruptionMode.SINGLE),
    "all": ({"all": {}}, DisruptionMode.ALL),
    "a mode of a later version": ({"some": {}}, DisruptionMode.SINGLE),
}


@pytest.mark.parametrize(("spec", "mode"), NATIVE_MODES.values(), ids=NATIVE_MODES)
def test_the_mode_of_a_native_group(spec: dict[str, object] | None, mode: DisruptionMode) -> None:
    assert disruption.read_disruption_mode(spec, {}) is mode


@pytest.mark.parametrize(
    ("stated", "mode"), [("gang", DisruptionMode.ALL), ("pod", DisruptionMode.SINGLE)]
)
def test_the_annotation_of_a_native_group_counts(stated: str, mode: DisruptionMode) -> None:
    assert disruption.read_disruption_mode(None, {keys.DISRUPTION_MODE: stated}) is mode


MINIMUMS = {
    "as a declared gang states": (a_pod().in_koordinators_gang("train", 3), 3),
    "none if it states none": (a_pod().in_gang("train"), 0),
    "none of a Job by a label": (
        a_pod().labelled(keys.JOB, "train").labelled(keys.OLD_MIN_AVAILABLE, "3"),
        0,
    ),
    "as its PodGroup states": (a_pod().in_gang("train").annotated(keys.MIN_MEMBER, "3"), 3),
    "its own counts before that of its PodGroup": (
        a_pod().in_koordinators_gang("train", 2).annotated(keys.MIN_MEMBER, "3"),
        2,
    ),
    "an unreadable one of its PodGroup counts as none": (
        a_pod().in_gang("train").annotated(keys.MIN_MEMBER, "many"),
        0,
    ),
    "none of a JobSet by an annotation": (
        a_pod().labelled(keys.JOBSET, "train").annotated(keys.MIN_MEMBER, "3"),
        0,
    ),
    "a native group's is in the group": (
        a_pod().in_native_gang("train").labelled(keys.OLD_MIN_AVAILABLE, "3"),
        0,
    ),
}


@pytest.mark.parametrize(("pod", "minimum"), MINIMUMS.values(), ids=MINIMUMS)
def test_the_number_of_pods_below_which_a_gang_does_not_fall(pod: PodBuilder, minimum: int) -> None:
    (view,) = pod_views(pod.build())
    found = membership.read(view)
    assert found is not None
    assert disruption.protected_minimum(found) == minimum


OTHERS = {
    "three others run": ([GangMemberState(uid=uid) for uid in "abcd"], True),
    "one of them is marked": (
        [*(GangMemberState(uid=uid) for uid in "abc"), GangMemberState(uid="d", is_marked=True)],
        False,
    ),
    "one of them is being deleted": (
        [
            *(GangMemberState(uid=uid) for uid in "abc"),
            GangMemberState(uid="d", is_terminating=True),
        ],
        False,
    ),
    "one of them is a victim": (
        [
            *(GangMemberState(uid=uid) for uid in "abc"),
            GangMemberState(uid="d", state=an_eviction().build()),
        ],
        False,
    ),
    "one of them was a victim and stays": (
        [
            *(GangMemberState(uid=uid) for uid in "abc"),
            GangMemberState(uid="d", state=an_eviction().in_phase(Phase.SPARED).build()),
        ],
        True,
    ),
    "one of them was a victim, stayed, and is marked again": (
        [
            *(GangMemberState(uid=uid) for uid in "abc"),
            GangMemberState(
                uid="d", state=an_eviction().in_phase(Phase.CANCELLED).build(), is_marked=True
            ),
        ],
        False,
    ),
}


@pytest.mark.parametrize(("members", "can_spare"), OTHERS.values(), ids=OTHERS)
def test_a_pod_goes_alone_if_as_many_stay_as_its_gang_needs(
    members: Sequence[GangMemberState], *, can_spare: bool
) -> None:
    assert disruption.can_spare("a", disruption.staying_pods(members), 3) is can_spare


IDENTITIES = {
    "a declared gang is one, whatever the dialect": (
        (a_pod().in_gang("a"), a_pod().in_koordinators_gang("a")),
        "a",
    ),
    "a JobSet of the same name is another gang": (
        (a_pod().labelled(keys.JOBSET, "a"),),
        "jobset/a",
    ),
    "each replica of a LeaderWorkerSet is a separate gang": (
        (LEADER,),
        "leader-worker-set/llm-0",
    ),
}


@pytest.mark.parametrize(("pods", "identity"), IDENTITIES.values(), ids=IDENTITIES)
def test_a_gang_is_known_by_one_word(pods: Sequence[PodBuilder], identity: str) -> None:
    views = [view for pod in pods for view in pod_views(pod.build())]
    found = [membership.read(view) for view in views]
    assert {disruption.identity_of(one) for one in found if one is not None} == {identity}


def test_a_pod_that_waits_for_its_workload_is_not_ready_to_delete() -> None:
    states = [an_eviction().in_phase(phase).build() for phase in Phase]
    unheard = {state.phase for state in states if not disruption.is_ready_to_delete(state)}
    assert unheard == {Phase.REQUESTED, Phase.REPRIEVED, *AWAITING_WORKLOAD}


def test_a_pod_that_waits_for_its_cleaners_is_not_ready_to_delete() -> None:
    saved = an_eviction().in_phase(Phase.SAVED, deadline=after(600)).build()
    assert disruption.is_ready_to_delete(saved)
    assert not disruption.is_ready_to_delete(replace(saved, cleaners_until=after(60)))


FIRST = replace(an_eviction().build(), eviction_id="first", initiator="ops")
"""The state of a pod that was just marked, not part of a gang's eviction yet."""


def a_state(
    phase: Phase, *, decision: str = "first", gang: str = "train", seconds: float = 0
) -> Eviction:
    state = an_eviction().in_phase(phase, deadline=after(600)).build()
    return replace(state, gang=gang, decision_id=decision, requested_at=after(seconds))


def a_member(
    uid: str, state: Eviction | None = None, *, age: float = 3600, is_leaving: bool = False
) -> GangMemberState:
    return GangMemberState(uid=uid, created_at=after(-age), is_terminating=is_leaving, state=state)


A, B, C = a_member("a"), a_member("b"), a_member("c")
HINTED, SETTLED, SAVED = a_state(Phase.HINTED), a_state(Phase.SETTLED), a_state(Phase.SAVED)
CANCELLED, TERMINATING = a_state(Phase.CANCELLED), a_state(Phase.TERMINATING)
OVERTAKEN = replace(TERMINATING, outcome=CheckpointOutcome.OVERTAKEN)
HELD = replace(CANCELLED, outcome=CheckpointOutcome.HELD_BY_BUDGET)
LATER = a_state(Phase.HINTED, decision="second", seconds=300)
REPRIEVED = replace(a_state(Phase.REPRIEVED), source=Source.KOORDINATOR)


@dataclass(frozen=True, kw_only=True)
class Case:
    """All pods of a gang, the state that leads to a decision, and the decision."""

    members: Sequence[GangMemberState]
    begun: Eviction = FIRST
    included: str = ""
    """Uids of one letter each."""
    awaited: str = ""
    is_in_progress: bool = False
    is_cancelled: bool = False
    is_held: bool = False


CASES = {
    "a mark on one member reaches all members": Case(
        members=(A, B, C), included="abc", awaited="abc"
    ),
    "a mark reaches members created after it, if no member was notified before": Case(
        members=(A, a_member("b", age=-5)), included="ab", awaited="ab"
    ),
    "a pod of unknown age is included": Case(
        members=(a_member("a", HINTED), GangMemberState(uid="b")),
        included="b",
        awaited="ab",
        is_in_progress=True,
    ),
    "a mark does not reach members that the gang gate holds": Case(
        members=(A, GangMemberState(uid="b", is_gated=True)), included="a", awaited="a"
    ),
    "a mark does not reach members that are being deleted": Case(
        members=(A, a_member("b", is_leaving=True)), included="a", awaited="a"
    ),
    "an operator that was killed continues with the pods that were not notified": Case(
        members=(a_member("a", HINTED), B, C),
        begun=HINTED,
        included="bc",
        awaited="abc",
        is_in_progress=True,
    ),
    "an operator that was killed continues if the first member no longer exists": Case(
        members=(B,), begun=HINTED, included="b", awaited="b", is_in_progress=True
    ),
    "a pod created after the gang's request belongs to the next decision": Case(
        members=(a_member("a", HINTED), a_member("b", age=-1)),
        begun=HINTED,
        awaited="a",
        is_in_progress=True,
    ),
    "a pod created in the second of the request belongs to it": Case(
        members=(a_member("a", HINTED), a_member("b", age=0)),
        begun=HINTED,
        included="b",
        awaited="ab",
        is_in_progress=True,
    ),
    "a pod that has answered is not awaited": Case(
        members=(a_member("a", HINTED), a_member("b", SETTLED), a_member("c", SAVED)),
        begun=SETTLED,
        awaited="a",
        is_in_progress=True,
    ),
    "a pod that is being deleted is not awaited": Case(
        members=(a_member("a", SETTLED), a_member("b", HINTED, is_leaving=True)),
        begun=SETTLED,
        is_in_progress=True,
    ),
    "once the first was deleted, no other pod is included": Case(
        members=(a_member("a", TERMINATING), a_member("b", SETTLED), C),
        begun=SETTLED,
        is_in_progress=True,
    ),
    "a member that another client deletes does not end the gang's eviction": Case(
        members=(a_member("a", OVERTAKEN), a_member("b", SETTLED), C),
        begun=SETTLED,
        included="c",
        awaited="c",
        is_in_progress=True,
    ),
    "a pod that another client deleted leads the others on": Case(
        members=(a_member("a", OVERTAKEN), B),
        begun=OVERTAKEN,
        included="b",
        awaited="b",
        is_in_progress=True,
    ),
    "it leads one that was only requested, and no replacement of its own": Case(
        members=(
            a_member("a", OVERTAKEN),
            a_member("b", a_state(Phase.REQUESTED)),
            a_member("c", age=-1),
        ),
        begun=OVERTAKEN,
        awaited="b",
        is_in_progress=True,
    ),
    "one of an earlier decision does not lead those of the present one": Case(
        members=(a_member("a", OVERTAKEN), a_member("b", LATER, age=-200), a_member("c", age=-200)),
        begun=OVERTAKEN,
        included="c",
        awaited="bc",
        is_in_progress=True,
    ),
    "nor does a member that had saved before another client deletes it": Case(
        members=(a_member("a", TERMINATING), B, a_member("c", HINTED)),
        begun=HINTED,
        included="b",
        awaited="bc",
        is_in_progress=True,
    ),
    "a cancellation by one member cancels the eviction of all": Case(
        members=(a_member("a", CANCELLED), a_member("b", HINTED), C),
        begun=HINTED,
        awaited="b",
        is_in_progress=True,
        is_cancelled=True,
    ),
    "a member that a budget holds cancels it, and says so": Case(
        members=(a_member("a", HELD), a_member("b", HINTED)),
        begun=HINTED,
        awaited="b",
        is_in_progress=True,
        is_cancelled=True,
        is_held=True,
    ),
    "one that is cancelled for another reason as well is not held": Case(
        members=(a_member("a", HELD), a_member("b", CANCELLED), a_member("c", HINTED)),
        begun=HINTED,
        awaited="c",
        is_in_progress=True,
        is_cancelled=True,
    ),
    "an earlier cancellation has no effect on a new mark": Case(
        members=(a_member("a", CANCELLED), B), included="ab", awaited="ab"
    ),
    "an earlier termination has no effect on a new mark": Case(
        members=(a_member("a", TERMINATING), B), included="b", awaited="b"
    ),
    "a member that has finished its part is not notified again": Case(
        members=(a_member("a", HINTED), a_member("b", a_state(Phase.FINISHED))),
        begun=HINTED,
        awaited="a",
        is_in_progress=True,
    ),
    "a member that was spared in an earlier decision is evicted now": Case(
        members=(A, a_member("b", a_state(Phase.SPARED, decision="earlier"))),
        included="ab",
        awaited="ab",
    ),
    "a pod evicted alone has no effect on the gang": Case(
        members=(A, a_member("b", a_state(Phase.HINTED, gang="", decision=""))),
        included="a",
        awaited="a",
    ),
    "a pod evicted with another gang has no effect on the gang": Case(
        members=(A, a_member("b", a_state(Phase.HINTED, gang="other"))), included="a", awaited="a"
    ),
    "a gang that was reprieved was not notified": Case(
        members=(a_member("a", REPRIEVED), a_member("b", age=-5)),
        begun=REPRIEVED,
        included="b",
        awaited="ab",
    ),
    "a second mark joins the eviction of the first": Case(
        members=(a_member("a", HINTED), B), included="b", awaited="ab", is_in_progress=True
    ),
}


EVICTED_ALREADY = replace(HINTED, must_evict=True)
EVICTED = {
    "an eviction that was requested through the Eviction API": (
        (A, B),
        replace(FIRST, must_evict=True),
        True,
    ),
    "an eviction request after a scheduler was refused": (
        (a_member("a", REPRIEVED), B),
        replace(FIRST, must_evict=True),
        True,
    ),
    "an eviction that a restarted operator continues": (
        (a_member("a", EVICTED_ALREADY), B),
        EVICTED_ALREADY,
        True,
    ),
    "an eviction in progress, then a preemption of another member": (
        (a_member("a", EVICTED_ALREADY), B),
        FIRST,
        True,
    ),
    "an eviction request after a notified member may be deleted": (
        (a_member("a", HINTED), B),
        replace(FIRST, must_evict=True),
        False,
    ),
    "a deletion, although another member is to be evicted": (
        (a_member("a", HINTED), a_member("b", EVICTED_ALREADY)),
        EVICTED_ALREADY,
        False,
    ),
    "a request by a client that may delete the member": (
        (a_member("a", HINTED), B),
        FIRST,
        False,
    ),
}


@pytest.mark.parametrize(("members", "begun", "want"), EVICTED.values(), ids=EVICTED)
def test_all_of_a_gang_are_evicted_for(
    members: Sequence[GangMemberState], begun: Eviction, *, want: bool
) -> None:
    assert disruption.decide_gang("train", begun, members).origin.must_evict is want


def decide(case: Case) -> GangDecision:
    return disruption.decide_gang("train", case.begun, case.members)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_decision_from_one_observation(case: Case) -> None:
    decision = decide(case)
    assert (decision.newly_included, decision.awaited) == (
        frozenset(case.included),
        frozenset(case.awaited),
    )
    assert (decision.is_in_progress, decision.is_cancelled, decision.is_held) == (
        case.is_in_progress,
        case.is_cancelled,
        case.is_held,
    )


def test_the_first_request_counts_for_all_members() -> None:
    assert decide(Case(members=(A, B))).origin == FIRST
    early = replace(HINTED, initiator="ops", requested_at=after(-5))
    members = (a_member("a", HINTED), a_member("b", early))
    assert decide(Case(members=members)).origin == early


def test_a_state_names_its_gang_and_decision() -> None:
    joined = disruption.as_gang_member(FIRST, "train", FIRST)
    assert (joined.gang, joined.decision_id) == ("train", "first")
    second = disruption.as_gang_member(replace(FIRST, eviction_id="second"), "train", joined)
    assert (second.eviction_id, second.decision_id) == ("second", "first")
    assert joined.phase not in TERMINAL


@pytest.mark.parametrize(
    ("own", "gangs"), [(True, True), (True, False), (False, True), (False, False)]
)
def test_of_a_gang_that_may_be_deleted_none_is_evicted(*, own: bool, gangs: bool) -> None:
    joined = disruption.as_gang_member(
        replace(FIRST, must_evict=own), "train", replace(FIRST, must_evict=gangs)
    )
    assert joined.must_evict is (own and gangs)
