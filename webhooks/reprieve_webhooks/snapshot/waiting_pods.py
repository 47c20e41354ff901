"""Pods that wait to be classified again, taken from each Namespace in turn.

Without the turns, a tenant whose Job has ten thousand pods would have the pods of other tenants'
Jobs wait for all of those.
"""

from collections import OrderedDict
from collections.abc import Iterable

from reprieve_runtime.client.reflector import Key


class WaitingPods:
    """Each pod once, the first added first of its Namespace."""

    def __init__(self) -> None:
        self._names: OrderedDict[str, OrderedDict[str, None]] = OrderedDict()
        """By Namespace; the one whose turn it is comes first."""

    def __bool__(self) -> bool:
        return bool(self._names)

    def add(self, keys: Iterable[Key]) -> None:
        """Add pods; one that waits already keeps its place."""
        for namespace, name in keys:
            self._names.setdefault(namespace, OrderedDict())[name] = None

    def discard(self, key: Key) -> None:
        """Remove a pod, if it waits."""
        namespace, name = key
        names = self._names.get(namespace)
        if names is not None:
            names.pop(name, None)
            if not names:
                del self._names[namespace]

    def next(self) -> Key:
        """Return the pod whose turn it is; the next turn is another Namespace's."""
        namespace, names = next(iter(self._names.items()))
        self._names.move_to_end(namespace)
        return namespace, next(iter(names))
