"""Where a hint goes: the pod's own address and nowhere else, and only where that address is the pod's alone; or a process.

`status.podIP` is written by kubelets. One that lies must not make Reprieve call the node itself (cloud metadata is
link-local, the node's own services are on loopback and on the host's address).
"""

import ipaddress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from yarl import URL

from reprieve_operator.cluster.pods import VictimPod
from reprieve_policy.checkpointing import agent
from reprieve_policy.checkpointing.checkpoint_plan import GrpcHint, Hint, HttpHint, SignalHint
from reprieve_policy.kube import processes


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """A URL on the pod's own address."""

    url: URL


@dataclass(frozen=True, slots=True)
class GrpcEndpoint:
    """A port on the pod's own address, which is never a name."""

    address: IPv4Address | IPv6Address
    port: int


@dataclass(frozen=True, slots=True)
class SignalEndpoint:
    """The first process of a container. The uid is the pod's that declared it: of the same name there may be others."""

    namespace: str
    name: str
    uid: str
    container: str
    signal: str


Endpoint = HttpEndpoint | GrpcEndpoint | SignalEndpoint
"""What a line can reach. One class a carrier; `switchboard.lines_of` says which line is whose."""


def resolve(pod: VictimPod, hint: Hint, *, allow_loopback: bool) -> Endpoint | str | None:
    """Return where this hint of this pod goes; a reason where it cannot; `None` where it is written to the annotation."""
    if isinstance(hint, SignalHint) and not agent.has_agent(pod.spec.initContainers):
        return _signal_endpoint(pod, hint)
    called = (
        hint
        if isinstance(hint, HttpHint | GrpcHint)
        else agent.endpoint(hint, pod.spec.initContainers)
    )
    if called is None:
        return None
    address = _pod_address(pod, allow_loopback=allow_loopback)
    if isinstance(address, str):
        return address
    if isinstance(called, GrpcHint):
        return GrpcEndpoint(address, called.port)
    return HttpEndpoint(_url(address, called.port, called.path))


def _signal_endpoint(pod: VictimPod, hint: SignalHint) -> SignalEndpoint | str:
    """Return the process to signal. Without the check, an init of the node or of the pod would get the signal."""
    obstacle = processes.field_that_moves_pid_1(pod.spec)
    if obstacle is not None:
        return f"process 1 of the container is not its own ({obstacle})"
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
    try:
        address = ipaddress.ip_address(pod.status.podIP)
    except ValueError:
        return "the pod has no address"
    address = getattr(address, "ipv4_mapped", None) or address
    # Loopback lies in the range that is called private, so it is asked for first.
    if address.is_loopback:
        if not allow_loopback:
            return "the pod's address is a loopback address"
    elif pod.status.hostIP in (pod.status.podIP, str(address)):
        return "the pod's address is its node's"
    elif (
        address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or address.is_reserved
    ):
        return "the pod's address is not a unicast address of its own"
    return address


def _url(address: IPv4Address | IPv6Address, port: int, path: str) -> URL:
    host = f"[{address}]" if address.version == 6 else str(address)
    return URL(f"http://{host}:{port}{path}", encoded=True)
