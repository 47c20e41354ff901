"""What the gate does with one gang next: it waits, is released, has started, or is held back."""

from dataclasses import dataclass, field, replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.gangs import gate_steps
from reprieve_policy.gangs.gate_steps import GatedGang, GateMember, GateReleaseReason, GateStep
from reprieve_testing.objects.builders import NOW, after

ON = PolicySettings(gang_gate=True, ceiling_seconds=1800)
TIMEOUT = 600


def members(
    number: int, of: int | None = 4, *, since: float = 0, **fields: object
) -> list[GateMember]:
    pods = (
        GateMember(uid=f"{since}-{index}-{fields}", created_at=after(since), min_available=of)
        for index in range(number)
    )
    return [replace(pod, **fields) for pod in pods]  # type: ignore[arg-type]  # named by tests


def released(number: int, at: float = 0, **fields: object) -> list[GateMember]:
    return members(number, is_gated=False, released_at=after(at), **fields)


def a_gang(*pods: list[GateMember], **fields: object) -> GatedGang:
    gang = GatedGang(members=[pod for some in pods for pod in some], timeout_seconds=TIMEOUT)
    return replace(gang, **fields)  # type: ignore[arg-type]  # named by tests


@dataclass(frozen=True, kw_only=True)
class Case:
    """A gang, and what is done with it."""

    gang: GatedGang
    want: GateStep
    pods: int = 0
    reason: GateReleaseReason | None = None
    surplus: int = 0
    done: int = 0
    settings: PolicySettings = field(default_factory=lambda: ON)
    now: datetime = NOW
    is_room_known: bool = True


COMPLETE, NOT_NEEDED = GateReleaseReason.COMPLETE, GateReleaseReason.NOT_NEEDED
CASES = {
    "three of four pods keep waiting": Case(gang=a_gang(members(3)), want=GateStep.WAIT),
    "four of four pods wait for their turn": Case(
        gang=a_gang(members(4)), want=GateStep.QUEUE, pods=4
    ),
    "no more pods than the minimum are released at first": Case(
        gang=a_gang(members(6)), want=GateStep.QUEUE, pods=4
    ),
    "a pod that joins pods which the scheduler has already needs room for itself": Case(
        gang=a_gang(members(1), others=3), want=GateStep.QUEUE, pods=1
    ),
    "a pod of a gang that runs is not held again": Case(
        gang=a_gang(members(1), others=3, others_bound=3),
        want=GateStep.STARTED,
        pods=1,
        reason=COMPLETE,
    ),
    "more pods than a gang needs that runs wait for their room": Case(
        gang=a_gang(members(2), others=4, others_bound=4), want=GateStep.STARTED, surplus=2
    ),
    "one pod that no gate held does not let the rest of a new gang go": Case(
        gang=a_gang(members(3), others=1, others_bound=1), want=GateStep.QUEUE, pods=3
    ),
    "half of a gang that runs does": Case(
        gang=a_gang(members(2), others=2, others_bound=2),
        want=GateStep.STARTED,
        pods=2,
        reason=COMPLETE,
    ),
    "a recreated pod waits while two others are missing": Case(
        gang=a_gang(members(1), others=1, others_bound=1), want=GateStep.WAIT
    ),
    "the lowest of several minimums counts": Case(
        gang=a_gang(members(1, of=2), members(1, of=4, since=1)), want=GateStep.QUEUE, pods=2
    ),
    "just before the timeout, an incomplete gang waits": Case(
        gang=a_gang(members(3)), now=after(599), want=GateStep.WAIT
    ),
    "an incomplete gang waits on after the timeout": Case(
        gang=a_gang(members(3)), now=after(600), want=GateStep.INCOMPLETE
    ),
    "the timeout counts from the oldest pod": Case(
        gang=a_gang(members(1), members(1, since=599)), now=after(600), want=GateStep.INCOMPLETE
    ),
    "a complete gang may wait for its room for longer than the timeout": Case(
        gang=a_gang(members(4)), now=after(6000), want=GateStep.QUEUE, pods=4
    ),
    "a gang that other controllers hold is in no queue": Case(
        gang=a_gang(members(3), members(1, since=1, has_other_gates=True)), want=GateStep.WAIT
    ),
    "a pod that is not needed yet may be held by others": Case(
        gang=a_gang(members(4), members(1, since=1, has_other_gates=True)),
        want=GateStep.QUEUE,
        pods=4,
    ),
    "without knowledge of the room, a complete gang is released": Case(
        gang=a_gang(members(6)), is_room_known=False, want=GateStep.STARTED, pods=6, reason=COMPLETE
    ),
    "without knowledge of the room, an incomplete gang is released at the timeout": Case(
        gang=a_gang(members(3)),
        is_room_known=False,
        now=after(600),
        want=GateStep.STARTED,
        pods=3,
        reason=GateReleaseReason.TIMED_OUT,
    ),
    "without knowledge of the room, nothing is held back": Case(
        gang=a_gang(released(4)),
        is_room_known=False,
        now=after(6000),
        want=GateStep.STARTED,
        done=4,
    ),
    "a gang that an operator has released by half is released further": Case(
        gang=a_gang(released(2), members(2)),
        now=after(599),
        want=GateStep.RELEASE,
        pods=2,
        reason=COMPLETE,
    ),
    "the pods that are not needed wait until the others are placed": Case(
        gang=a_gang(released(4), members(2)), now=after(599), want=GateStep.WAIT
    ),
    "a released gang of which three are placed is waited for": Case(
        gang=a_gang(released(3, is_bound=True), released(1)), now=after(599), want=GateStep.WAIT
    ),
    "a gang that has run goes on without a replacement that is not placed": Case(
        gang=a_gang(released(2, is_bound=True), released(2), members(1), has_run=True),
        now=after(600),
        want=GateStep.STARTED,
        done=2,
    ),
    "but not with less than half of what it needs": Case(
        gang=a_gang(released(1, is_bound=True), released(3), has_run=True),
        now=after(600),
        want=GateStep.HOLD_BACK,
        pods=4,
    ),
    "a gang of which all that it needs are placed has started": Case(
        gang=a_gang(released(4, is_bound=True)), now=after(6000), want=GateStep.STARTED, done=4
    ),
    "the pods that were not needed wait for their room, and the labels stay": Case(
        gang=a_gang(released(4, is_bound=True), members(2)), want=GateStep.STARTED, surplus=2
    ),
    "one of them that has room is placed": Case(
        gang=a_gang(released(4, is_bound=True), released(1)),
        now=after(599),
        want=GateStep.STARTED,
    ),
    "one that is not placed in time is left to the scheduler, and the gang runs on": Case(
        gang=a_gang(released(4, is_bound=True), released(1), members(1)),
        now=after(600),
        want=GateStep.STARTED,
        surplus=1,
        done=1,
    ),
    "placed pods without the label count": Case(
        gang=a_gang(released(2, is_bound=True), others=2, others_bound=2),
        want=GateStep.STARTED,
        done=2,
    ),
    "a gang that is not placed in time is held back": Case(
        gang=a_gang(released(3, is_bound=True), released(1)),
        now=after(600),
        want=GateStep.HOLD_BACK,
        pods=4,
    ),
    "the time to place it counts from the first release": Case(
        gang=a_gang(released(1), released(3, at=300)),
        now=after(600),
        want=GateStep.HOLD_BACK,
        pods=4,
    ),
    "victims that leave for it get their notice first": Case(
        gang=a_gang(released(3, is_bound=True), released(1, is_nominated=True)),
        now=after(2399),
        want=GateStep.WAIT,
    ),
    "and that ends at the ceiling": Case(
        gang=a_gang(released(3, is_bound=True), released(1, is_nominated=True)),
        now=after(2400),
        want=GateStep.HOLD_BACK,
        pods=4,
    ),
    "a pod that was placed waits for no victims": Case(
        gang=a_gang(released(3, is_bound=True, is_nominated=True), released(1)),
        now=after(600),
        want=GateStep.HOLD_BACK,
        pods=4,
    ),
    "pods that leave do not count": Case(
        gang=a_gang(released(3, is_bound=True, is_leaving=True), members(1)),
        now=after(599),
        want=GateStep.WAIT,
    ),
    "a pod whose release shows no time is placed in time after its creation": Case(
        gang=a_gang(members(4, is_gated=False)), now=after(6000), want=GateStep.HOLD_BACK, pods=4
    ),
    "a gang whose released pods all run is not held back": Case(
        gang=a_gang(released(3, is_bound=True)), now=after(6000), want=GateStep.WAIT
    ),
    "the time of a replacement begins with its own release": Case(
        gang=a_gang(released(3, is_bound=True), released(1, at=5900)),
        now=after(6000),
        want=GateStep.WAIT,
    ),
    "a new pod of a gang that runs is left to the scheduler": Case(
        gang=a_gang(released(4), others=4, others_bound=4),
        now=after(6000),
        want=GateStep.STARTED,
        done=4,
    ),
    "a gang that was held back is not incomplete while its pods leave": Case(
        gang=a_gang(released(3, is_bound=True, is_leaving=True), members(1, since=600)),
        now=after(6000),
        want=GateStep.WAIT,
    ),
    "enough pods that the gate does not hold are waited for": Case(
        gang=a_gang(members(1), others=4), want=GateStep.WAIT
    ),
    "a pod without a minimum is released": Case(
        gang=a_gang(members(1, of=None)), want=GateStep.STARTED, pods=1, reason=NOT_NEEDED
    ),
    "the minimum of its PodGroup counts where the pods state none": Case(
        gang=a_gang(members(3, of=None), group_minimum=4), want=GateStep.WAIT
    ),
    "what the pods state counts before the minimum of the PodGroup": Case(
        gang=a_gang(members(3, of=3), group_minimum=4), want=GateStep.QUEUE, pods=3
    ),
    "a gang of one is released": Case(
        gang=a_gang(members(1, of=1)), want=GateStep.STARTED, pods=1, reason=NOT_NEEDED
    ),
    "all pods are released if the gate is switched off": Case(
        gang=a_gang(released(1), members(3)),
        settings=PolicySettings(),
        want=GateStep.STARTED,
        pods=3,
        reason=NOT_NEEDED,
        done=1,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_done_with_a_gang(case: Case) -> None:
    decision = gate_steps.decide_step(
        case.gang, case.settings, case.now, is_room_known=case.is_room_known
    )
    assert (decision.step, len(decision.pods), decision.reason) == (
        case.want,
        case.pods,
        case.reason,
    )
    assert (len(decision.surplus), len(decision.done)) == (case.surplus, case.done)


def test_the_oldest_pods_are_released_first() -> None:
    gang = a_gang(members(2, of=2, since=5), members(1, of=2, since=1))
    pods = gate_steps.decide_step(gang, ON, NOW).pods
    assert [pod.created_at for pod in pods] == [after(1), after(5)]


def pods_in_any_state() -> st.SearchStrategy[GateMember]:
    return st.builds(
        GateMember,
        uid=st.uuids().map(str),
        created_at=st.integers(-600, 600).map(after),
        min_available=st.none() | st.integers(0, 6),
        is_gated=st.booleans(),
        released_at=st.none() | st.integers(-600, 600).map(after),
        is_bound=st.booleans(),
        is_leaving=st.booleans(),
        is_nominated=st.booleans(),
    )


@given(
    st.lists(pods_in_any_state(), min_size=1, max_size=8),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(-600, 6000),
)
def test_a_gang_is_never_released_in_parts(
    pods: list[GateMember], others: int, bound: int, now: int
) -> None:
    gang = a_gang(pods, others=max(others, bound), others_bound=bound)
    decision = gate_steps.decide_step(gang, ON, after(now))
    if decision.step in (GateStep.QUEUE, GateStep.RELEASE):
        assert all(pod.is_gated for pod in decision.pods)
        ungated = len(gang.released) + gang.others
        assert ungated + len(decision.pods) == gang.minimum or not gang.count >= gang.minimum
    if decision.step is GateStep.QUEUE:
        assert not gang.released, "a gang that was released before is in no queue"
    if decision.step is GateStep.HOLD_BACK:
        assert gang.bound < gang.minimum, "a gang that has started is never held back"
