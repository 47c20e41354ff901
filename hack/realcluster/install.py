"""Manifests for the two programs as local processes: an overlay, at one cluster's own port.

The overlays of `manifests/overlays/local` name one URL, with a single cluster's port. Several
clusters side by side need one URL each.
"""

from __future__ import annotations

from pathlib import Path

from .client.kubectl import Kubectl

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
BASE = MANIFESTS / "base"
LOCAL = MANIFESTS / "overlays" / "local"
DEMO = MANIFESTS / "overlays" / "demo"
DEMO_DEPLOYMENTS = MANIFESTS / "overlays" / "demo-deployments"
NAMESPACE_FILE = BASE / "namespace.yaml"
"""Apply this first: the API server refuses a dry run in a namespace that does not exist."""

LOCAL_URL = "https://127.0.0.1:9443/"


def render(kubectl: Kubectl, overlay: Path, port: int) -> str:
    """Return the YAML of `overlay`, with webhook URLs at `port` of this machine."""
    return kubectl.read("kustomize", overlay).replace(LOCAL_URL, f"https://127.0.0.1:{port}/")


def install(kubectl: Kubectl, overlay: Path, port: int) -> str:
    """Apply `overlay`; return kubectl's output."""
    return kubectl.read("apply", "-f", "-", stdin=render(kubectl, overlay, port))
