"""The kinds that are being placed: what each leaves is the same however they were added."""

from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy.preemption.selection.gangs.kinds import (
    DemandKind,
    FreeNode,
    KindOnNodes,
    count_places,
)
from reprieve_policy.preemption.selection.gangs.placing import PlacingKinds
from reprieve_testing.objects.snapshots import a_node_info, a_pod_demand

NODES = [FreeNode(a_node_info(f"n{cpu}", cpu=cpu)) for cpu in (3, 5, 8)]


def a_kind(cpu: int, count: int) -> KindOnNodes:
    kind = DemandKind(a_pod_demand(cpu=cpu), count)
    return KindOnNodes(kind, {node.info.name: count_places(kind, node) for node in NODES})


KINDS = st.lists(st.builds(a_kind, st.integers(1, 4), st.integers(1, 9)), min_size=1, max_size=6)


@given(KINDS, KINDS)
def test_the_margin_does_not_depend_on_when_it_was_asked_for(
    added: list[KindOnNodes], own: list[KindOnNodes]
) -> None:
    early = PlacingKinds()
    for kind in added:
        early.add(kind)
        early.margin(kind.kind.identity, own)
    late = PlacingKinds()
    for kind in added:
        late.add(kind)
    for kind in added:
        identity = kind.kind.identity
        assert early.margin(identity, own) == late.margin(identity, own)


def test_equal_pods_of_several_gangs_are_one_kind() -> None:
    placing = PlacingKinds()
    for count in (3, 4):
        placing.add(a_kind(1, count))
    (kind,) = placing.all
    assert kind.kind.count == 7
    assert placing.margin(kind.kind.identity, [a_kind(2, 2)]) == 16 - 7 - 2 * 2
