"""Where things are kept outside the tree: the user's cache (built programs) and state (clusters), by the XDG rules."""

from __future__ import annotations

import os
from pathlib import Path


def cache_home() -> Path:
    """Return the folder for what can be built again."""
    return _base("XDG_CACHE_HOME", ".cache") / "reprieve"


def state_home() -> Path:
    """Return the folder for what must outlive a command: one folder a cluster."""
    return _base("XDG_STATE_HOME", ".local/state") / "reprieve"


def _base(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / default
