"""Addresses of Services and of nodes are no pod's own: no hint is sent there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reprieve_operator.checkpointing import endpoints
from reprieve_operator.checkpointing.endpoints import HttpEndpoint
from reprieve_operator.checkpointing.reserved_addresses import ReservedAddresses
from reprieve_operator.cluster.pods import VictimPod
from reprieve_policy.checkpointing.checkpoint_plan import HttpHint
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

CIDRS, NODES = "/apis/networking.k8s.io/v1/servicecidrs", "/api/v1/nodes"
HINT = HttpHint(8080, "/checkpoint")
API_SERVER = {"KUBERNETES_SERVICE_HOST": "172.20.0.1"}


def a_node(*addresses: str) -> Any:
    listed = [{"type": "InternalIP", "address": address} for address in addresses]
    return {"metadata": {"name": "n"}, "status": {"addresses": listed}}


def service_cidr(*cidrs: str) -> Any:
    return {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": list(cidrs)}}


@asynccontextmanager
async def running(
    directory: Path, node: Any = None, **stubbed: Any
) -> AsyncIterator[ReservedAddresses]:
    collections = {
        CIDRS: {"kubernetes": service_cidr("10.96.0.0/16", "fd00:96::/112", "not a range")},
        NODES: {"n": node or a_node("192.168.7.2", "fd00:7::2", "node-a.example")},
    }
    async with stub_api(directory, collections=collections, **stubbed) as (stub, api):
        stub.lists_released.set()
        addresses = ReservedAddresses(api, API_SERVER)
        task = asyncio.create_task(addresses.run())
        try:
            yield await _known(stub, addresses)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _known(stub: StubApi, addresses: ReservedAddresses) -> ReservedAddresses:
    await until(lambda: addresses._service_cidrs.is_synced)
    # Before the first workload is called.
    await until(lambda: stub.calls[NODES] == 1 and (NODES in stub.barred or addresses._of_nodes))
    return addresses


def resolved(addresses: ReservedAddresses, address: str) -> object:
    pod = msgspec.convert({"status": {"podIP": address}}, VictimPod)
    return endpoints.resolve(pod, HINT, allow_loopback=False, refusal_of=addresses.refusal)


REFUSED = {
    "a Service": ("10.96.0.10", "the pod's address is that of a Service"),
    "a Service, IPv6": ("fd00:96::a", "the pod's address is that of a Service"),
    "a Service, IPv4-mapped": ("::ffff:10.96.0.10", "the pod's address is that of a Service"),
    "the API server": ("172.20.0.1", "the pod's address is that of a Service"),
    "another node": ("192.168.7.2", "the pod's address is a node's"),
    "another node, IPv6": ("fd00:7::2", "the pod's address is a node's"),
}


async def test_no_hint_goes_to_a_service_or_a_node(tmp_path: Path) -> None:
    async with running(tmp_path) as addresses:
        for address, reason in REFUSED.values():
            assert resolved(addresses, address) == reason
        for address in ("10.244.1.7", "240.10.0.5"):
            assert isinstance(resolved(addresses, address), HttpEndpoint)
        assert resolved(addresses, "255.255.255.255") == (
            "the pod's address is not a unicast address of its own"
        )


async def test_addresses_of_pods_that_a_cloud_lists_after_their_nodes_are_called(
    tmp_path: Path,
) -> None:
    """Such as those of network interfaces in AWS. Its first internal addresses are a node's own."""
    node = a_node("10.0.1.5", "fd00:1::5", "10.0.1.77", "fd00:1::77")
    async with running(tmp_path, node) as addresses:
        for address in ("10.0.1.77", "fd00:1::77"):
            assert isinstance(resolved(addresses, address), HttpEndpoint)
        for address in ("10.0.1.5", "fd00:1::5"):
            assert resolved(addresses, address) == "the pod's address is a node's"


async def test_a_kubelet_that_lists_the_addresses_of_all_pods_has_few_of_them_refused(
    tmp_path: Path,
) -> None:
    """Without this, one could have no victim of any other node called."""
    types = ("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "Other")
    listed = [
        {"type": kind, "address": f"{network}{number}"}
        for place, kind in enumerate(types)
        for network in (f"10.244.{place}.", f"fd00:{place + 1}::")
        for number in range(1, 100)
    ]
    node = {"metadata": {"name": "n"}, "status": {"addresses": listed}}
    async with running(tmp_path, node) as addresses:
        refused = [
            one["address"]
            for one in listed
            if not isinstance(resolved(addresses, one["address"]), HttpEndpoint)
        ]
    assert refused == ["10.244.0.1", "fd00:1::1", "10.244.1.1", "fd00:2::1"]


@pytest.mark.parametrize("how", ["absent", "barred"])
async def test_without_the_kind_or_the_right_pods_are_still_called(
    tmp_path: Path, how: str
) -> None:
    async with running(tmp_path, **{how: {CIDRS}}) as addresses:
        assert isinstance(resolved(addresses, "10.96.0.10"), HttpEndpoint)
        assert resolved(addresses, "192.168.7.2") == "the pod's address is a node's"


async def test_nodes_that_may_not_be_read_hold_up_no_hint(tmp_path: Path) -> None:
    async with running(tmp_path, barred={NODES}) as addresses:
        assert isinstance(resolved(addresses, "192.168.7.2"), HttpEndpoint)
        assert resolved(addresses, "10.96.0.10") == "the pod's address is that of a Service"
