"""The programs that can be built, and their pinned Go modules.

The versions are in the pins' `go.mod` files and nowhere else. A new binary is a new row of
BINARIES. This module runs no command.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from realcluster.errors import ClusterError

PINS = Path(__file__).parent / "pins"
# Pins whose sources are beside the code that uses them; all others are in PINS.
ELSEWHERE = {"bench": Path(__file__).parents[2] / "bench" / "peers"}


@dataclass(frozen=True)
class Binary:
    """One program: its pin (a folder with a module graph), its module, and its build options."""

    pin: str
    module: str
    package: str
    seconds: int  # estimated, on two cores, after the rows above; shown before a first build
    stamp: str = (
        ""  # the module whose version is stamped into Kubernetes' version variables; "": none
    )
    variables: tuple[
        tuple[str, str], ...
    ] = ()  # further link-time variables; "{version}" in a value is replaced
    cgo: bool = False
    tags: tuple[str, ...] = ()


KUBERNETES = "k8s.io/kubernetes"
KUBERNETES_VERSION = "REPRIEVE_KUBERNETES"
"""Names an older minor version, like `1.34`; it has a pin `kubernetes-1.34`. Without it, the newest
is built: the pin `kubernetes`."""
_OLDER = "kubernetes-"


def kubernetes_pin() -> str:
    """Return the pin of the Kubernetes version that this process builds and runs."""
    wanted = os.environ.get(KUBERNETES_VERSION, "")
    return f"{_OLDER}{wanted}" if wanted else "kubernetes"


def kubernetes_version() -> str:
    """Return the version that `kubernetes_pin` has, like `v1.37.1`."""
    return module_version(pin_files(kubernetes_pin())[0].read_text(), KUBERNETES)


def _kubernetes(name: str, seconds: int) -> Binary:
    return Binary(
        kubernetes_pin(), KUBERNETES, f"{KUBERNETES}/cmd/{name}", seconds, stamp=KUBERNETES
    )


CONTAINERD = "github.com/containerd/containerd/v2"
CNI = "github.com/containernetworking/plugins"
HELM = "helm.sh/helm/v4"
KUBE_ROUTER = "github.com/cloudnativelabs/kube-router/v2"


def _node(package: str, seconds: int) -> Binary:
    return Binary(
        "node",
        CONTAINERD,
        package,
        seconds,
        variables=((f"{CONTAINERD}/version.Version", "{version}"),),
    )


def _bench(folder: str, seconds: int) -> Binary:
    return Binary("bench", "sigs.k8s.io/controller-runtime", f"./{folder}", seconds)


BINARIES: dict[str, Binary] = {
    "etcd": Binary("etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3", 40),
    "kube-apiserver": _kubernetes("kube-apiserver", 280),
    "kube-controller-manager": _kubernetes("kube-controller-manager", 80),
    "kube-scheduler": _kubernetes("kube-scheduler", 10),
    "kubectl": _kubernetes("kubectl", 25),
    "kwok": Binary("kwok", "sigs.k8s.io/kwok", "sigs.k8s.io/kwok/cmd/kwok", 60),
    "kubelet": _kubernetes("kubelet", 30),
    # The node's programs. The first builds the packages of the other two.
    "containerd": _node(f"{CONTAINERD}/cmd/containerd", 150),
    "containerd-shim-runc-v2": _node(f"{CONTAINERD}/cmd/containerd-shim-runc-v2", 5),
    "ctr": _node(f"{CONTAINERD}/cmd/ctr", 10),
    "cni-bridge": Binary("node", CNI, f"{CNI}/plugins/main/bridge", 10),
    "cni-host-local": Binary("node", CNI, f"{CNI}/plugins/ipam/host-local", 1),
    "pause": _node("./cmd/pause", 1),
    # Stamped with the Kubernetes version it is built against: otherwise its emulation-version check
    # fails.
    "kube-scheduler-plugins": Binary(
        "scheduler-plugins",
        "sigs.k8s.io/scheduler-plugins",
        "sigs.k8s.io/scheduler-plugins/cmd/scheduler",
        140,
        stamp=KUBERNETES,
    ),
    # Renders and installs the chart in tests.
    "helm": Binary(
        "helm",
        HELM,
        f"{HELM}/cmd/helm",
        120,
        variables=((f"{HELM}/internal/version.version", "{version}"),),
    ),
    # Evaluates alert rules and queries as Prometheus does. The tag leaves out the discovery of
    # targets in clouds.
    "promtool": Binary(
        "prometheus",
        "github.com/prometheus/prometheus",
        "github.com/prometheus/prometheus/cmd/promtool",
        300,
        variables=(("github.com/prometheus/common/version.Version", "{version}"),),
        tags=("remove_all_sd",),
    ),
    # Only checks the configuration that `up --provider kind` writes: it needs Docker for all else.
    "kind": Binary("kind", "sigs.k8s.io/kind", "sigs.k8s.io/kind", 20),
    # Enforces NetworkPolicies on a real node in a test; its router and its proxy do not run.
    "kube-router": Binary(
        "kube-router",
        KUBE_ROUTER,
        f"{KUBE_ROUTER}/cmd/kube-router",
        120,
        variables=((f"{KUBE_ROUTER}/pkg/version.Version", "{version}"),),
    ),
    # Compare a cluster with a repository by the libraries of Argo CD and Flux.
    "argocd-diff": Binary("argo-cd", "github.com/argoproj/argo-cd/v3", "./cmd/argocd-diff", 240),
    "flux-drift": Binary("flux", "github.com/fluxcd/pkg/ssa", "./cmd/flux-drift", 40),
    "bench-controller-runtime": _bench("controllerruntime", 150),
    "bench-net-http": _bench("nethttp", 5),
    "bench-load": _bench("load", 5),
    "bench-create": _bench("create", 5),
    # Always of the newest version: the older one has no policies that fill in defaults.
    "bench-admission": Binary("kubernetes", KUBERNETES, "./cmd/bench-admission", 60),
}

GROUPS: dict[str, tuple[str, ...]] = {
    "control-plane": (
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubectl",
        "kwok",
    ),
    "node": (
        "kubelet",
        "containerd",
        "containerd-shim-runc-v2",
        "ctr",
        "cni-bridge",
        "cni-host-local",
        "pause",
    ),
    "scheduler-plugins": ("kube-scheduler-plugins",),
    "helm": ("helm",),
    "promtool": ("promtool",),
    "kind": ("kind",),
    "kube-router": ("kube-router",),
    "gitops": ("argocd-diff", "flux-drift"),
    "bench": ("bench-controller-runtime", "bench-net-http", "bench-load", "bench-create"),
    "bench-admission": ("bench-admission",),
}
GROUPS["all"] = tuple(dict.fromkeys(name for group in tuple(GROUPS.values()) for name in group))


def pin_files(pin: str) -> tuple[Path, Path]:
    """Return the `go.mod` and `go.sum` that fix every source file of a build."""
    return _folder(pin) / "go.mod", _folder(pin) / "go.sum"


def own_sources(binary: Binary) -> list[Path]:
    """Return the Go files of a program whose source is here, beside its `go.mod`.

    Otherwise none.
    """
    return (
        sorted((_folder(binary.pin) / binary.package).glob("*.go"))
        if binary.package.startswith(".")
        else []
    )


def version(binary: Binary) -> str:
    """Return the version that `binary` is pinned to, like `v1.37.1`."""
    return module_version(pin_files(binary.pin)[0].read_text(), binary.module)


def module_version(go_mod: str, module: str) -> str:
    """Return the version of `module` that `go_mod` builds with.

    A replacement overrides a requirement.
    """
    name = re.escape(module)
    for pattern in (rf"^\s*(?:replace )?{name} => \S+ (v\S+)", rf"^\s*(?:require )?{name} (v\S+)"):
        if found := re.search(pattern, go_mod, re.MULTILINE):
            return found[1]
    raise ClusterError(f"the pinned go.mod does not mention {module}")


def go_directive(go_mod: str) -> tuple[int, ...]:
    """Return the lowest Go version that `go_mod` requires, like `(1, 26, 0)`."""
    found = re.search(r"^go (\d+(?:\.\d+)*)", go_mod, re.MULTILINE)
    return tuple(int(part) for part in found[1].split(".")) if found else (1,)


def link_flags(binary: Binary) -> str:
    """Return the value of `-ldflags`: no symbol tables, and the version variables."""
    values = {key: value.replace("{version}", version(binary)) for key, value in binary.variables}
    if binary.stamp:
        values |= _kubernetes_version(
            module_version(pin_files(binary.pin)[0].read_text(), binary.stamp)
        )
    return " ".join(["-s", "-w", *(f"-X {key}={value}" for key, value in values.items())])


def _kubernetes_version(git_version: str) -> dict[str, str]:
    """Return the variables that Kubernetes' own build sets.

    Without them a server reports v0.0.0.
    """
    major, minor, _ = git_version.removeprefix("v").split(".", 2)
    stamp = {"gitVersion": git_version, "gitMajor": major, "gitMinor": minor}
    stamp |= {"gitCommit": "go-module", "gitTreeState": "archive"}
    packages = ("k8s.io/client-go/pkg/version", "k8s.io/component-base/version")
    return {f"{package}.{key}": value for package in packages for key, value in stamp.items()}


def _folder(pin: str) -> Path:
    folder = ELSEWHERE.get(pin, PINS / pin)
    if pin.startswith(_OLDER) and not folder.is_dir():
        known = ", ".join(
            sorted(found.name.removeprefix(_OLDER) for found in PINS.glob(f"{_OLDER}*"))
        )
        raise ClusterError(
            f"{KUBERNETES_VERSION}={pin.removeprefix(_OLDER)}: no such version is pinned; leave it "
            f"out for the newest, or name one of {known}"
        )
    return folder
