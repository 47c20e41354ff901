"""Names, addresses and configuration files of a real node's programs. Pure.

In its own mount namespace, a node sees private folders at the usual places (/var/lib/kubelet,
/run/containerd, …; see `init`), so all nodes use the same paths. Only the node's bridge and
cgroups are shared with the host; their names contain the node's name.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

LABEL = ("reprieve.dev/real-node", "true")
PAUSE_IMAGE = "localhost/reprieve/pause:1"
CONFIG = "/var/lib/reprieve"  # the configuration files of the node, as the node sees them
CNI_CONFIG = f"{CONFIG}/cni"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
POOL = ipaddress.IPv4Network("10.192.0.0/12")  # pod subnets are /24s of this
KUBELET_PORT = 10250  # on the node's own address, so all nodes have the same

EVICTION_SIGNALS = (
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "imagefs.available",
)

# What the kubelet sets at its start (pkg/kubelet/cm/container_manager_linux.go). The node shows it
# files with these values instead.
SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


@dataclass(frozen=True)
class Node:
    """One real node of a cluster.

    `subnet` holds its pods; the bridge and the node have its first address.
    """

    name: str
    directory: str
    subnet: str
    programs: dict[str, str]  # name -> path: containerd, ctr, kubelet, runc, …
    images: tuple[str, ...]  # OCI layout tarballs to import
    logs: str
    volumes: str  # the folder of the cluster's volumes; the API server knows it by this path

    @property
    def address(self) -> str:
        """The address of the bridge and of the node, and the gateway of its pods."""
        return str(next(ipaddress.IPv4Network(self.subnet).hosts()))

    @property
    def bridge(self) -> str:
        """The name of the bridge that joins its pods."""
        return bridge_name(self.name)

    @property
    def cgroup(self) -> str:
        """Its path in every cgroup hierarchy, without the leading slash."""
        return self.cgroup_of(self.name)

    @staticmethod
    def cgroup_of(name: str) -> str:
        """Return the path of node `name` in every cgroup hierarchy, without the leading slash."""
        return f"reprieve/{name}"

    def to_json(self) -> str:
        """Return what `from_json` reads."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: str) -> Node:
        """Return the recorded node."""
        values = json.loads(text)
        return Node(**values | {"images": tuple(values["images"])})


def bridge_name(node: str) -> str:
    """Return the name of the node's bridge.

    It is a digest, because interface names have 15 characters at most.
    """
    return f"rpv{hashlib.sha256(node.encode()).hexdigest()[:10]}"


def parse_routes(proc_net_route: str) -> Iterator[ipaddress.IPv4Network]:
    """Yield the IPv4 networks in the text of /proc/net/route, except the default route."""
    for line in proc_net_route.splitlines()[1:]:
        fields = line.split()
        destination, mask = (
            int.from_bytes(bytes.fromhex(fields[column]), "little") for column in (1, 7)
        )
        if mask:
            yield ipaddress.IPv4Network((destination, mask.bit_count()))


def choose_subnet(node: str, taken: Iterable[ipaddress.IPv4Network]) -> str:
    """Return a /24 for `node`'s pods that overlaps none of `taken`.

    The node's name determines where the search starts. Otherwise, two clusters that start at the
    same moment would choose the same network.
    """
    taken = list(taken)
    candidates = list(POOL.subnets(new_prefix=24))
    start = int(hashlib.sha256(node.encode()).hexdigest(), 16) % len(candidates)
    for candidate in candidates[start:] + candidates[:start]:
        if not any(candidate.overlaps(network) for network in taken):
            return str(candidate)
    raise ValueError(f"no free /24 in {POOL}")


def cni_config(node: Node) -> str:
    """Return the CNI network: a bridge in the host's network namespace.

    Host processes can reach the pods. `isGateway` stays off: it would turn on IP forwarding for the
    whole machine. The bridge has its address before the first pod.
    """
    ipam = {
        "type": "cni-host-local",
        "ranges": [[{"subnet": node.subnet, "gateway": node.address}]],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dataDir": "/run/cni",
    }
    bridge = {
        "type": "cni-bridge",
        "bridge": node.bridge,
        "isGateway": False,
        "ipMasq": False,
        "ipam": ipam,
    }
    return json.dumps({"cniVersion": "1.0.0", "name": "reprieve", "plugins": [bridge]}, indent=1)


def containerd_config(node: Node, snapshotter: str) -> str:
    """Return containerd's configuration.

    `restrict_oom_score_adj`: without it, every sandbox fails with "can't get final child's PID from
    pipe: EOF" on a machine that withholds CAP_SYS_RESOURCE. `pinned_images`: without it, the
    kubelet may collect the sandbox image, and there is no registry to pull it from again.
    """
    runc = "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc"
    lines: dict[str, dict[str, Any]] = {
        "": {"version": 3, "root": "/var/lib/containerd", "state": "/run/containerd"},
        "grpc": {"address": CONTAINERD_SOCKET},
        "plugins.'io.containerd.cri.v1.images'": {"snapshotter": snapshotter},
        "plugins.'io.containerd.cri.v1.images'.pinned_images": {"sandbox": PAUSE_IMAGE},
        "plugins.'io.containerd.cri.v1.runtime'": {"restrict_oom_score_adj": True},
        "plugins.'io.containerd.cri.v1.runtime'.cni": {
            "use_internal_loopback": True,
            "bin_dirs": sorted(
                {str(Path(node.programs[name]).parent) for name in ("cni-bridge", "cni-host-local")}
            ),
            "conf_dir": CNI_CONFIG,
        },
        runc: {"runtime_type": "io.containerd.runc.v2"},
        f"{runc}.options": {"BinaryName": node.programs["runc"], "SystemdCgroup": False},
    }
    return "\n".join(_toml(section, values) for section, values in lines.items())


def _toml(section: str, values: dict[str, Any]) -> str:
    # JSON's strings, numbers, booleans and lists are also valid TOML.
    body = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(([f"[{section}]"] if section else []) + body) + "\n"


def kubelet_config(node: Node, open_files: int) -> str:
    """Return the kubelet's configuration (JSON is YAML).

    `open_files` is the limit that it inherits.
    """
    values = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": node.address,
        "port": KUBELET_PORT,
        "healthzBindAddress": node.address,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{CONFIG}/client-ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{node.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        # Nothing answers there. Without an address, every pod gets the Warning Event
        # MissingClusterDNS again
        # and again.
        "clusterDNS": [node.address],
        "clusterDomain": "cluster.local",
        # Empty: the machine's own file may be a link into /run, which the node does not see.
        "resolvConf": f"{CONFIG}/resolv.conf",
        # A changed ConfigMap reaches its pods' files at the next sync (default: a minute); a
        # changed
        # annotation reaches them at once, whatever this value.
        "syncFrequency": "2s",
        # Images cannot be pulled again, and the disk is shared: never collect images, never evict.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": dict.fromkeys(EVICTION_SIGNALS, "0%"),
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        # Both would need CAP_SYS_RESOURCE to exceed what the kubelet inherits.
        "oomScoreAdj": 0,
        "maxOpenFiles": open_files,
        "maxPods": 100,
    }
    return json.dumps(values, indent=1)
