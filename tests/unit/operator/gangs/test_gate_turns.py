"""Whose turn it is where the time of one decision does not suffice for all gangs."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.gangs import gate_pods, gate_turns
from reprieve_operator.gangs.gang_counts import CountedGang
from reprieve_operator.gangs.gate_pods import GatePod
from reprieve_operator.gangs.gate_turns import GateTurns, WatchedGang
from reprieve_operator.gangs.room_store import RoomStore
from reprieve_operator.gangs.room_watch import RoomKnowledge, RoomWatch
from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.gangs.gate_steps import GateDecision, GatedGang, GateStep
from reprieve_policy.gangs.start_requirements import NO_REQUIREMENTS
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_policy.preemption.selection.gangs.room import RoomLimits
from reprieve_testing.objects.builders import NOW


@dataclass
class KnownRoom:
    """The room of a cluster without nodes."""

    store: RoomStore = field(default_factory=RoomStore)
    knowledge: RoomKnowledge = RoomKnowledge.KNOWN

    def want(self) -> None:
        return


@dataclass
class FixedPolicy:
    current: PolicySettings = field(default_factory=PolicySettings)


def a_waiting_gang(name: str) -> WatchedGang:
    labels = {keys.OLD_POD_GROUP: name, keys.OLD_MIN_AVAILABLE: "2"}
    pod = gate_pods.to_labelled_pod(
        GatePod(metadata=VersionedMeta(name=name, uid=name, labels=labels)), Facts(), NOW
    )
    member = pod.member
    gang = GatedGang(members=[member], timeout_seconds=600)
    decision = GateDecision(GateStep.QUEUE, (member,))
    counted = CountedGang(settles_at=0)
    return WatchedGang(("team", ("", name)), [pod], counted, NO_REQUIREMENTS, gang, decision)


async def test_each_gang_has_its_turn_where_the_time_suffices_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned: list[str] = []

    class OnePlan:
        """Room that has the time to plan for one gang, and finds no victims."""

        def __class_getitem__(cls, _: object) -> type:
            return cls

        def __init__(self, *args: Any, ungated: object) -> None:  # noqa: ARG002
            self.limits: RoomLimits[Any] = args[4]
            self.took_turn: set[Any] = set()
            self.without_turn: set[Any] = set()

        def has_room(self, key: Any) -> bool:
            if key not in self.limits.had_turn:
                if self.took_turn:
                    self.without_turn.add(key)
                else:
                    self.took_turn.add(key)
                    planned.append(key[1][1])
            return False

    monkeypatch.setattr(gate_turns, "GangRoom", OnePlan)
    monkeypatch.setattr(gate_turns, "_PAUSE_FACTOR", 0.0)
    clock = Clock(now=lambda: NOW, monotonic=lambda: 0.0, wall=lambda: 0.0)
    turns = GateTurns(cast("RoomWatch", KnownRoom()), cast("PolicySource", FixedPolicy()), clock)
    gangs = [a_waiting_gang(name) for name in "abc"]
    for _ in range(6):
        await turns.next_turn(gangs)
    assert planned == ["a", "b", "c"], "and then nothing is decided until something changes"
