"""What the page says of the queue: preemptors, gangs, pods to be created again, suspended Jobs."""

from dataclasses import replace
from datetime import timedelta

from reprieve_operator.replacements.bare_pods import PendingReplacement
from reprieve_operator.replacements.job_resumer import SuspendedJob
from reprieve_operator.ui.gangs import GangRow
from reprieve_operator.ui.queue import QueueRow, queue_rows
from reprieve_operator.victims.pod_tracker import VictimRef
from reprieve_operator.victims.registry import CurrentVictim
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_policy.lifecycle.victim_set import VictimSetKey
from reprieve_testing.objects.builders import NOW, an_eviction

LATER = NOW + timedelta(minutes=5)
ROOM = VictimSetKey("uid-urgent", "node-1")


def a_victim(name: str, phase: Phase) -> CurrentVictim:
    state = replace(an_eviction().hinted(deadline=LATER).build(), phase=phase)
    return CurrentVictim(VictimRef("team", name, f"uid-{name}"), phase, state, is_stuck=False)


def rows(
    *victims: CurrentVictim,
    sets: dict[str, VictimSetKey] | None = None,
    preemptors: dict[str, tuple[str, str]] | None = None,
    gangs: tuple[GangRow, ...] = (),
    replacements: tuple[PendingReplacement, ...] = (),
    suspended: tuple[SuspendedJob, ...] = (),
) -> list[QueueRow]:
    return queue_rows(
        victims=victims,
        sets=sets or {},
        preemptors=preemptors or {},
        gangs=gangs,
        replacements=replacements,
        suspended=suspended,
    )


def test_a_preemptor_waits_until_the_last_victim_of_its_node_is_ready() -> None:
    (row,) = rows(
        a_victim("a", Phase.SETTLED),
        a_victim("b", Phase.CHECKPOINTING),
        a_victim("other", Phase.HINTED),
        sets={"uid-a": ROOM, "uid-b": ROOM},
        preemptors={"uid-urgent": ("prod", "urgent")},
    )
    assert row == QueueRow(
        kind="preemptor",
        namespace="prod",
        name="urgent",
        waits_for="1 of 2 victims to be ready: team/b",
        node="node-1",
        until=LATER,
    )


def test_a_preemptor_that_is_nominated_to_no_node_is_named_by_its_uid() -> None:
    (row,) = rows(a_victim("a", Phase.TERMINATING), sets={"uid-a": ROOM})
    assert (row.name, row.waits_for, row.until) == ("uid-urgent", "1 victim to go", None)


def test_a_set_whose_victims_are_gone_holds_no_room() -> None:
    assert rows(sets={"uid-a": ROOM}) == []


def test_a_gang_is_in_the_queue_while_it_waits_for_room() -> None:
    gang = GangRow(
        namespace="team", name="train", phase="waiting for room", waits_for="room", pods=4
    )
    found = rows(gangs=(gang, replace(gang, name="early", phase="waiting for pods")))
    assert [(row.kind, row.name, row.waits_for) for row in found] == [("gang", "train", "room")]


def test_a_bare_pod_waits_for_its_victim_its_name_or_its_next_try() -> None:
    found = rows(
        a_victim("c", Phase.TERMINATING),
        replacements=(
            PendingReplacement("uid-c", "team", "c", None),
            PendingReplacement("uid-b", "team", "b", None),
            PendingReplacement("uid-a", "team", "a", LATER),
        ),
    )
    assert [(row.name, row.waits_for, row.until, row.is_problem) for row in found] == [
        ("a", "its next try: the API server refused it", LATER, True),
        ("b", "its name to be free", None, False),
        ("c", "the victim of its name to go", None, False),
    ]


def test_a_suspended_job_waits_for_its_back_off() -> None:
    (row,) = rows(suspended=(SuspendedJob("team", "train", LATER),))
    assert (row.kind, row.name, row.until) == ("Job", "train", LATER)
    assert row.waits_for == "the end of its back-off: it is suspended"
