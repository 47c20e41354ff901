"""Where a hint is sent: to the pod's own address, if no other endpoint shares it, or to a process.

Kubelets write `status.podIP`. A compromised kubelet must not make Reprieve call the node itself:
cloud metadata is link-local, the node's own services are on loopback and on the host's address.
"""

import ipaddress
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from yarl import URL

from reprieve_operator.cluster.pods import VictimPod
from reprieve_policy.checkpointing import agent
from reprieve_policy.checkpointing.checkpoint_plan import GrpcHint, Hint, HttpHint, SignalHint
from reprieve_policy.kube import processes

_METADATA = tuple(
    map(
        ipaddress.ip_network,
        # Of clouds whose metadata service is not link-local: Alibaba, Azure's wire server, Oracle,
        # AWS with IPv6 (all that it serves to instances: metadata, credentials of pods, DNS, time),
        # Google with IPv6, Scaleway with IPv6.
        (
            "100.100.100.200/32",
            "168.63.129.16/32",
            "192.0.0.192/32",
            "fd00:ec2::/32",
            "fd20:ce::254/128",
            "fd00:42::42/128",
        ),
    )
)
_BROADCAST = ipaddress.ip_address("255.255.255.255")
_FORMERLY_RESERVED = ipaddress.ip_network("240.0.0.0/4")
"""Class E: some clouds give these addresses to pods, as GKE may."""
_TRANSLATED = tuple(
    map(
        ipaddress.ip_network,
        # NAT64 (well-known and local), 6to4, Teredo, IPv4-compatible and IPv4-translated.
        (
            "64:ff9b::/96",
            "64:ff9b:1::/48",
            "2002::/16",
            "2001::/32",
            "::/96",
            "::ffff:0:0:0/96",
        ),
    )
)
"""IPv6 addresses that contain an IPv4 address: a gateway would connect to that one, such as the
metadata service."""


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """A URL on the pod's own address."""

    url: URL


@dataclass(frozen=True, slots=True)
class GrpcEndpoint:
    """A port on the pod's own IP address; never a host name."""

    address: IPv4Address | IPv6Address
    port: int


@dataclass(frozen=True, slots=True)
class SignalEndpoint:
    """The first process of a container.

    `uid` is the uid of the pod that declared the hint: later pods may have the same name.
    """

    namespace: str
    name: str
    uid: str
    container: str
    signal: str


AddressRefusal = Callable[[IPv4Address | IPv6Address], str | None]
"""Why an address is not called, by what is known of the cluster (`reserved_addresses`)."""
Endpoint = HttpEndpoint | GrpcEndpoint | SignalEndpoint
"""One class for each transport; `client.transport_factories` maps them."""


def resolve(
    pod: VictimPod,
    hint: Hint,
    *,
    allow_loopback: bool,
    refusal_of: AddressRefusal = lambda _: None,
) -> Endpoint | str | None:
    """Return the endpoint of the pod's hint, or the reason why it has none.

    Returns `None` if the request is delivered by the annotation alone.
    """
    if isinstance(hint, SignalHint) and not agent.has_agent(pod.spec.initContainers):
        return _signal_endpoint(pod, hint)
    network_hint = (
        hint
        if isinstance(hint, HttpHint | GrpcHint)
        else agent.endpoint(hint, pod.spec.initContainers)
    )
    if network_hint is None:
        return None
    address = _pod_address(pod, allow_loopback=allow_loopback)
    if isinstance(address, str):
        return address
    if not address.is_loopback and (reason := refusal_of(address)):
        return reason
    if isinstance(network_hint, GrpcHint):
        return GrpcEndpoint(address, network_hint.port)
    return HttpEndpoint(_url(address, network_hint.port, network_hint.path))


def _signal_endpoint(pod: VictimPod, hint: SignalHint) -> SignalEndpoint | str:
    """Return the process to signal, or the reason why there is none.

    Without the check, the init process of the node or of the pod would receive the signal.
    """
    field = processes.field_that_moves_pid_1(pod.spec)
    if field is not None:
        return f"process 1 of the container is not its own ({field})"
    metadata = pod.metadata
    return SignalEndpoint(
        metadata.namespace or "",
        metadata.name or "",
        metadata.uid or "",
        hint.container,
        hint.signal,
    )


def _pod_address(pod: VictimPod, *, allow_loopback: bool) -> IPv4Address | IPv6Address | str:
    """Return the address to call, or the reason why there is none."""
    if pod.spec.hostNetwork:
        return "the pod is on its node's network"
    address = _parse(pod.status.podIP)
    if address is None:
        return "the pod has no address"
    # Loopback is part of the private range, so it is checked first.
    if address.is_loopback:
        return address if allow_loopback else "the pod's address is a loopback address"
    refusals = (
        (_is_of_node(address, pod), "the pod's address is its node's"),
        (not _is_unicast(address), "the pod's address is not a unicast address of its own"),
        (_is_in(_METADATA, address), "the pod's address is that of a cloud's metadata service"),
        (
            _is_in(_TRANSLATED, address),
            "the pod's address stands for an address of another network",
        ),
    )
    return next((reason for applies, reason in refusals if applies), address)


def _is_unicast(address: IPv4Address | IPv6Address) -> bool:
    return not (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address == _BROADCAST
        or (address.is_reserved and not _is_in((*_TRANSLATED, _FORMERLY_RESERVED), address))
    )


def _is_in(
    networks: Iterable[IPv4Network | IPv6Network], address: IPv4Address | IPv6Address
) -> bool:
    return any(address in network for network in networks)


def _is_of_node(address: IPv4Address | IPv6Address, pod: VictimPod) -> bool:
    named = (pod.status.hostIP, *(one.ip for one in pod.status.hostIPs or ()))
    return any(_parse(text) == address for text in named)


def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """Return the address, also if it is written in another way, as IPv4-mapped."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _url(address: IPv4Address | IPv6Address, port: int, path: str) -> URL:
    host = f"[{address}]" if address.version == 6 else str(address)
    return URL(f"http://{host}:{port}{path}", encoded=True)
