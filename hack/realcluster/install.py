"""What `kubectl apply` is given where the two programs run as local processes: an overlay, at a cluster's own port.

Overlays of `manifests/overlays/local` name one URL, with the port that a single cluster has. Several clusters side by
side need one each.
"""

from __future__ import annotations

from pathlib import Path

from .kubectl import Kubectl

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
BASE = MANIFESTS / "base"
LOCAL = MANIFESTS / "overlays" / "local"
DEMO = MANIFESTS / "overlays" / "demo"
NAMESPACE_FILE = BASE / "namespace.yaml"
"""To be applied before anything else is: a dry run of the rest is refused in a namespace that does not exist."""

LOCAL_URL = "https://127.0.0.1:9443/"


def render(kubectl: Kubectl, overlay: Path, port: int) -> str:
    """Return the YAML of `overlay`, its webhooks called on `port` of this machine."""
    return kubectl.read("kustomize", overlay).replace(LOCAL_URL, f"https://127.0.0.1:{port}/")


def install(kubectl: Kubectl, overlay: Path, port: int) -> str:
    """Apply `overlay`; return what kubectl says."""
    return kubectl.read("apply", "-f", "-", stdin=render(kubectl, overlay, port))
