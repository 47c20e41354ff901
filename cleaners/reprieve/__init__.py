"""Cleaners for the pods that Reprieve evicts, as handlers of a kopf operator.

`pip install 'reprieve[kopf]'`, then decorate a handler with `@reprieve.on.eviction(finalizer=...)`.
`docs/cleaners.md` has an example of twenty lines.
"""

try:
    import kopf as _kopf  # noqa: F401 - a clear error where it is missing
except ImportError as error:  # pragma: no cover - the development environment has kopf
    raise ImportError("cleaners need kopf: pip install 'reprieve[kopf]'") from error

from reprieve_policy.lifecycle.cleanup import CleanerTurn
from reprieve_policy.lifecycle.eviction import Eviction

from . import on

__all__ = ["CleanerTurn", "Eviction", "on"]
