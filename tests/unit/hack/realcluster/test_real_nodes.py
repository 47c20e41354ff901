"""A real node's configuration, and what it reads from the machine, without a node."""

from __future__ import annotations

import io
import ipaddress
import json
import tarfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest

from realcluster.control_plane import client_certificate, keys
from realcluster.errors import ClusterError
from realcluster.progress import Progress
from realcluster.real_nodes import image, kernel, node
from realcluster.real_nodes.config import (
    PAUSE_IMAGE,
    POOL,
    Node,
    bridge_name,
    choose_subnet,
    cni_config,
    containerd_config,
    kubelet_config,
    parse_routes,
)
from realcluster.state import Cluster, Settings

ROUTES = """\
Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	0	00000000	0	0	0
eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
"""
MOUNTS = """\
proc /proc proc rw,relatime 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
"""
LDD = """\
/usr/bin/python3:
	linux-vdso.so.1 (0x00007f7ce527b000)
	libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f7ce493e000)
	libmissing.so => not found
	/lib64/ld-linux-x86-64.so.2 (0x00007f7ce527d000)
/usr/bin/sh:
	libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f7ce493e000)
	statically linked
"""


def a_node(name: str = "dev-real-0") -> Node:
    programs = {
        program: f"/cache/{program}/{program}"
        for program in ("containerd", "cni-bridge", "cni-host-local", "runc")
    }
    return Node(
        name,
        "/state/nodes/x",
        "10.200.7.0/24",
        programs,
        ("/cache/pause.tar",),
        "/state/logs",
        "/state/volumes",
    )


def test_a_node_is_read_as_it_was_written() -> None:
    assert Node.from_json(a_node().to_json()) == a_node()


def test_the_node_has_the_first_address_of_its_subnet() -> None:
    assert a_node().address == "10.200.7.1"


def test_bridges_of_long_names_differ_and_fit_the_kernel() -> None:
    names = {bridge_name(f"a-cluster-with-a-rather-long-name-real-{index}") for index in range(8)}
    assert len(names) == 8
    assert all(len(name) <= 15 for name in names)


def test_routes_are_read_without_the_default_route() -> None:
    assert list(parse_routes(ROUTES)) == [ipaddress.IPv4Network("192.0.2.0/24")]


def test_a_subnet_in_use_is_not_chosen() -> None:
    first = choose_subnet("n", [])
    second = choose_subnet("n", [ipaddress.IPv4Network(first)])
    assert first != second
    assert ipaddress.IPv4Network(second).subnet_of(POOL)


def test_two_nodes_begin_their_search_at_different_places() -> None:
    assert choose_subnet("a-real-0", []) != choose_subnet("b-real-0", [])


def test_no_subnet_left_is_an_error() -> None:
    with pytest.raises(ValueError, match="no free /24"):
        choose_subnet("n", [POOL])


def test_containerd_keeps_the_sandbox_image_and_needs_no_rights_that_may_be_missing() -> None:
    config = tomllib.loads(containerd_config(a_node(), "overlayfs"))
    images, runtime = (
        config["plugins"][f"io.containerd.cri.v1.{part}"] for part in ("images", "runtime")
    )
    assert images["pinned_images"] == {"sandbox": "localhost/reprieve/pause:1"}
    assert images["snapshotter"] == "overlayfs"
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["cni"]["bin_dirs"] == ["/cache/cni-bridge", "/cache/cni-host-local"]
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["BinaryName"] == "/cache/runc/runc"


def test_the_kubelet_admits_only_users_that_the_api_server_authenticates() -> None:
    config = json.loads(kubelet_config(a_node(), 1024))
    assert config["authentication"]["anonymous"] == {"enabled": False}
    assert config["authorization"] == {"mode": "Webhook"}
    assert config["address"] == "10.200.7.1"
    assert config["cgroupRoot"] == "/reprieve/dev-real-0"


def test_the_pod_network_does_not_switch_on_forwarding() -> None:
    (bridge,) = json.loads(cni_config(a_node()))["plugins"]
    assert not bridge["isGateway"]
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.200.7.0/24", "gateway": "10.200.7.1"}]]


def test_cgroup_hierarchies_are_found_in_both_versions() -> None:
    found = dict(kernel.parse_cgroup_mounts(MOUNTS))
    assert set(found) == {
        "/sys/fs/cgroup/cpu,cpuacct",
        "/sys/fs/cgroup/cpuset",
        "/sys/fs/cgroup/unified",
    }
    assert "cpuset" in found["/sys/fs/cgroup/cpuset"]
    assert found["/sys/fs/cgroup/unified"] == {"2"}


def test_a_node_is_ready_only_by_a_heartbeat_after_its_start() -> None:
    item = {
        "status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": "2026-01-02T03:04:05Z"}]}
    }
    assert node.last_heartbeat(item) == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_ldd_lines_without_a_path_are_passed_over() -> None:
    assert image.parse_ldd(LDD) == [
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib64/ld-linux-x86-64.so.2",
    ]


def test_an_image_names_itself_and_its_only_layer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = tmp_path / "program"
    program.write_bytes(b"static")
    program.chmod(0o700)
    with tarfile.open(image.pause_image(program)) as tar:
        blobs = {member.name: _read(tar, member.name) for member in tar.getmembers()}
    (entry,) = json.loads(blobs["index.json"])["manifests"]
    assert entry["annotations"]["io.containerd.image.name"] == PAUSE_IMAGE
    manifest = json.loads(blobs[_blob(entry)])
    with tarfile.open(fileobj=io.BytesIO(blobs[_blob(manifest["layers"][0])])) as layer:
        assert [(member.name, oct(member.mode), member.uid) for member in layer] == [
            ("pause", "0o755", 0)
        ]
    config = json.loads(blobs[_blob(manifest["config"])])
    assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]


def _read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()


def _blob(descriptor: dict[str, str]) -> str:
    return "blobs/" + descriptor["digest"].replace(":", "/")


def test_the_curve_has_the_order_that_keys_are_drawn_from() -> None:
    assert client_certificate.multiply(keys.P256_ORDER, client_certificate.G) is None


def test_a_point_of_the_curve_as_published() -> None:
    # NIST, "Mathematical routines for the NIST prime elliptic curves", P-256: 2G.
    x = 0x7CF27B188D034F7E8A52380304B51AC3C08969E277F21B35A60B48FC47669978
    y = 0x07775510DB8ED040293D9AC69F7430DBBA7DADE63CE982299E04B79D227873D1
    assert client_certificate.multiply(2, client_certificate.G) == (x, y)


def test_the_client_certificate_is_signed_by_its_own_key() -> None:
    x509 = pytest.importorskip("cryptography.x509")
    certificate_text, key_text = client_certificate.new_client_pair("someone", "some:group")
    certificate = x509.load_pem_x509_certificate(certificate_text.encode())
    certificate.verify_directly_issued_by(certificate)
    assert certificate.subject.rfc4514_string() == "CN=someone,O=some:group"
    assert "EC PRIVATE KEY" in key_text


def test_an_image_is_imported_into_real_nodes_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    without = Cluster("simulated", 16443, Settings())
    with pytest.raises(ClusterError, match="simulated has no real node"):
        node.load_image(without, tmp_path / "image.tar", Progress())
