"""Cleaners for the pods that Reprieve evicts, as handlers of a kopf operator.

`pip install '.[kopf]'` in a clone, then decorate a handler with
`@reprieve.on.eviction(finalizer=...)`.
`docs/cleaners.md` has an example of twenty lines.
"""

from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

from reprieve_policy.lifecycle.cleanup import CleanerTurn
from reprieve_policy.lifecycle.eviction import Eviction

if TYPE_CHECKING:
    from . import on as on

# The messages of the gRPC contract are in the package `reprieve.checkpoint.v1`, which every
# workload generates for itself. Without this, it could not import them where this one is installed.
__path__ = extend_path(__path__, __name__)

__all__ = ["CleanerTurn", "Eviction", "on"]


def __getattr__(name: str) -> Any:
    """Import `on` where it is used: only that needs kopf."""
    if name == "on":
        return import_module(".on", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
