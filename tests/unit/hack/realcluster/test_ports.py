"""Blocks of ports: no two clusters share ports or pod addresses."""

from __future__ import annotations

import socket
from ipaddress import IPv4Network

import pytest

from realcluster import ports
from realcluster.errors import ClusterError


def test_every_component_has_a_port_of_its_own_inside_the_block() -> None:
    numbers = [ports.port(ports.FIRST, component) for component in ports.OFFSETS]
    assert len(set(numbers)) == len(numbers)
    assert set(numbers) <= set(ports.block(ports.FIRST))


@pytest.mark.parametrize(
    ("other", "overlap"), [(1, True), (ports.BLOCK - 1, True), (ports.BLOCK, False)]
)
def test_blocks_overlap_when_they_share_a_port(*, other: int, overlap: bool) -> None:
    assert ports.overlaps(20000, [20000 + other]) is overlap
    assert ports.overlaps(20000 + other, [20000]) is overlap


def test_a_block_in_which_something_listens_is_not_chosen() -> None:
    first = ports.choose([])
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", first + 3))
        listener.listen()
        assert ports.choose([]) != first
        with pytest.raises(ClusterError, match=f"something listens on {first + 3}"):
            ports.check(first, [])


def test_a_recorded_block_is_not_chosen_even_when_nothing_listens() -> None:
    first = ports.choose([])
    assert not ports.overlaps(ports.choose([first]), [first])


@pytest.mark.parametrize("base", [0, 1023, 65536 - ports.BLOCK + 1])
def test_a_block_outside_the_unprivileged_ports_is_refused(base: int) -> None:
    with pytest.raises(ClusterError, match="must be between 1024 and 65516"):
        ports.check(base, [])


def test_neighbouring_clusters_have_different_pod_networks() -> None:
    networks = {ports.pod_cidr(ports.FIRST + index * ports.BLOCK) for index in range(200)}
    assert len(networks) == 200
    assert all(20 <= int(network.split(".")[1]) < 220 for network in networks)


def test_clusters_have_different_service_networks() -> None:
    networks = {ports.service_cidr(base) for base in range(ports.LEAST, ports.END, ports.BLOCK)}
    assert len(networks) == len(range(ports.LEAST, ports.END, ports.BLOCK))
    assert all(IPv4Network(network).subnet_of(IPv4Network("10.224.0.0/12")) for network in networks)
