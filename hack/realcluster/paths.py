"""Folders outside the tree, by the XDG rules.

The cache (built programs) and the state (clusters).
"""

from __future__ import annotations

import os
from pathlib import Path


def cache_home() -> Path:
    """Return the folder for files that can be built again."""
    return _base("XDG_CACHE_HOME", ".cache") / "reprieve"


def state_home() -> Path:
    """Return the folder for files that outlive a command: one folder for each cluster."""
    return _base("XDG_STATE_HOME", ".local/state") / "reprieve"


def _base(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / default
