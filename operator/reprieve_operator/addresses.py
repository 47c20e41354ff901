"""Where a hint may go: the pod's own address and nowhere else, and only where that address is the pod's alone.

`status.podIP` is written by kubelets. One that lies must not make Reprieve call the node itself (cloud metadata is
link-local, the node's own services are on loopback and on the host's address).
"""

import ipaddress

from yarl import URL

from reprieve_policy.checkpoint import HttpHint

from .pods import Pod


def hint_url(pod: Pod, hint: HttpHint, *, allow_loopback: bool) -> URL | str:
    """Return the URL to call, or the reason why there is none."""
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
    elif pod.status.podIP == pod.status.hostIP:
        return "the pod's address is its node's"
    elif address.is_link_local or address.is_multicast or address.is_unspecified or address.is_reserved:
        return "the pod's address is not a unicast address of its own"
    host = f"[{address}]" if address.version == 6 else str(address)
    return URL(f"http://{host}:{hint.port}{hint.path}", encoded=True)
