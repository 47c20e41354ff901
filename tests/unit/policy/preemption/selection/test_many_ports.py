"""What a decision costs beside pods with many host ports."""

from collections.abc import Iterator
from dataclasses import replace

from reprieve_policy.preemption import selection
from reprieve_policy.preemption.selection.snapshot import HostPortInfo, Snapshot
from reprieve_testing.objects.snapshots import (
    a_node_info,
    a_pod_demand,
    a_preemptor,
    a_scheduled_pod,
    a_snapshot,
)


class CountedPorts(frozenset[HostPortInfo]):
    """Ports that count how often they are all read."""

    reads = 0

    def __iter__(self) -> Iterator[HostPortInfo]:
        CountedPorts.reads += 1
        return super().__iter__()


def test_the_host_ports_of_a_pod_are_read_once_whatever_is_decided_beside_it() -> None:
    """Without this, a tenant's pods with many would delay every preemptor with one."""
    pods = [
        a_scheduled_pod(f"p{number}", cpu=1, ports=_ports(300 * number)) for number in range(100)
    ]
    snapshot = a_snapshot(a_node_info("n", *pods, cpu=100)).build()
    CountedPorts.reads = 0
    for number in range(30_300, 30_310):
        assert len(_victims(snapshot, number)) == 1
    assert CountedPorts.reads <= 100
    assert _victims(snapshot, 299) == ["p0"]


def _ports(first: int) -> CountedPorts:
    return CountedPorts(HostPortInfo("0.0.0.0", "TCP", first + one) for one in range(300))


def _victims(snapshot: Snapshot, number: int) -> list[str]:
    """Decide for a preemptor with this host port."""
    wanted = frozenset({HostPortInfo("0.0.0.0", "TCP", number)})
    demand = replace(a_pod_demand(), ports=wanted)
    best = selection.decide(a_preemptor(demand=demand), snapshot, ["n"]).best
    return [] if best is None else [pod.name for pod in best.victims]
