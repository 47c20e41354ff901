"""Addresses that are no pod's own: those of Services and of nodes. No hint is sent there.

The kubelet of a pod's node writes the pod's address. A compromised one could name a Service or the
kubelet of another node, and have the operator call it.
"""

import asyncio
import ipaddress
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from reprieve_operator.background import run_until_one_ends
from reprieve_operator.cluster.pods import PAGE_SIZE
from reprieve_policy.kube.objects import ObjectMeta
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector

_log = logging.getLogger(__name__)

_ABSENT_RETRY_SECONDS = 300.0
"""API servers before 1.33 do not serve ServiceCIDRs; an admin may grant the right later."""
_NODES_SECONDS = 600.0
"""Between two lists of nodes, while workloads are called: a list grows with the cluster. The first
is read at the start. Without that, the first hint of each leader would go to any node."""
_RETRY_SECONDS = 60.0
_OWN_TYPES = ("InternalIP", "ExternalIP")
"""The types of addresses that are no names."""
_API_SERVER = "KUBERNETES_SERVICE_HOST"
"""The address of the Service `kubernetes`, which every pod is told."""

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCidrSpec:
    """The ranges of addresses of Services."""

    cidrs: Sequence[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCidr:
    """A ServiceCIDR."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ServiceCidrSpec = field(default_factory=ServiceCidrSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAddress:
    """One of a node's addresses; it may be a host name."""

    type: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAddresses:
    """The part of a node's status that has its addresses."""

    addresses: Sequence[NodeAddress] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressedNode:
    """A node, of which only the addresses are read."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    status: NodeAddresses = field(default_factory=NodeAddresses)


class ReservedAddresses:
    """Follows the ranges of Services, and reads the nodes' addresses while workloads are called."""

    def __init__(self, api: Api, environment: Mapping[str, str] = os.environ) -> None:
        self._api = api
        self._service_cidrs: Reflector[ServiceCidr, tuple[Network, ...]] = Reflector(
            api,
            object_path("servicecidrs"),
            ServiceCidr,
            lambda found: _networks(found.spec.cidrs or ()),
            absent_retry_seconds=_ABSENT_RETRY_SECONDS,
            absent_statuses=(HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN),
        )
        self._api_server = _parse(environment.get(_API_SERVER, ""))
        self._of_nodes: frozenset[Address] = frozenset()
        self._wanted = asyncio.Event()
        self._wanted.set()

    async def run(self) -> None:
        """Follow both until cancelled."""
        await run_until_one_ends(self._service_cidrs.run, self._read_nodes_while_wanted)

    def refusal(self, address: Address) -> str | None:
        """Return why no workload is called at this address; `None` if it may be a pod's own."""
        self._wanted.set()
        if address == self._api_server or any(
            address in network
            for networks in self._service_cidrs.items.values()
            for network in networks
        ):
            return "the pod's address is that of a Service"
        return "the pod's address is a node's" if address in self._of_nodes else None

    async def _read_nodes_while_wanted(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                self._of_nodes = await self._read_nodes()
            except ApiError as error:
                _log.warning("could not read the nodes' addresses", extra={"error": str(error)})
                self._wanted.set()
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                await asyncio.sleep(_NODES_SECONDS)

    async def _read_nodes(self) -> frozenset[Address]:
        found = set[Address]()
        async for nodes, _ in self._api.list_pages(
            object_path("nodes"), AddressedNode, limit=PAGE_SIZE
        ):
            for node in nodes:
                found |= _own_addresses(node.status.addresses or ())
        return frozenset(found)


def _own_addresses(listed: Sequence[NodeAddress]) -> set[Address]:
    """Return a node's addresses: the first of each type and version, so four at most.

    Some clouds list the addresses of the node's pods after it, if these are addresses of its
    network interfaces. Without this, no workload there would be called, and a compromised kubelet
    could list the addresses of all pods, and have no workload of other nodes called.

    An address within a node's `spec.podCIDRs` counts, too: a kubelet that registers its node may
    state these, and so have the addresses of all others not count.
    """
    own: dict[tuple[str, int], Address] = {}
    for one in listed:
        address = _parse(one.address) if one.type in _OWN_TYPES else None
        if address is not None:
            own.setdefault((one.type, address.version), address)
    return set(own.values())


def _parse(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _networks(texts: Sequence[str]) -> tuple[Network, ...]:
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text, strict=False))
        except ValueError:
            _log.warning("unreadable range of Services", extra={"cidr": text})
    return tuple(found)
