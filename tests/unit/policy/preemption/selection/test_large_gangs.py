"""What a scheduler's proposal costs on a node with many pods of one gang."""

from collections.abc import Iterator
from dataclasses import replace

from reprieve_policy.preemption.selection import select_victims
from reprieve_policy.preemption.selection.eligibility import Eligibility
from reprieve_policy.preemption.selection.snapshot import GangKey, ScheduledPod
from reprieve_testing.objects.snapshots import (
    a_node_info,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
)

GANG = GangKey("team", "large")


class CountedMembers(tuple[ScheduledPod, ...]):
    """Members that count how often they are all read."""

    __slots__ = ()
    reads = 0

    def __iter__(self) -> Iterator[ScheduledPod]:
        CountedMembers.reads += 1
        return super().__iter__()


def test_whether_a_proposal_is_outdated_reads_the_members_of_a_gang_once() -> None:
    """Without this, a large gang on many nodes would delay every preemptor for seconds."""
    here = [a_scheduled_pod(f"p{number}", gang=GANG) for number in range(50)]
    elsewhere = a_scheduled_pod("elsewhere", gang=GANG)
    nodes = a_node_info("a", *here), a_node_info("b", elsewhere)
    built = a_snapshot(*nodes).with_gang("large").build()
    gang = built.gangs[GANG]
    counted = replace(gang, members=CountedMembers(gang.members))
    eligibility = Eligibility(a_preemptor(), replace(built, gangs={GANG: counted}))
    CountedMembers.reads = 0
    assert not select_victims.is_proposal_outdated(nodes[0], {elsewhere.uid}, eligibility)
    assert CountedMembers.reads == 1
    assert select_victims.is_proposal_outdated(nodes[0], {elsewhere.uid, "gone"}, eligibility)
