"""Equal values of the cached pods, of which one is kept for all of them.

The pods of one template have the same labels, requests and inputs of their loss. A value that no
decision changes may be the same object for all of them.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import TypeVar, cast

from reprieve_policy.preemption.selection.snapshot import ScheduledPod

from .encoded_pods import EncodedPod

_MAX_VALUES = 10_000
"""Distinct values that are known at once; some 40 MB at most, where a user makes each as long as
possible. Pods whose values are forgotten keep them, and only share them with no later pod."""
_MAX_BYTES, _MAX_ITEMS = 4096, 16
"""Of one value. Without these, the large pods that a user creates and deletes would stay in memory
here."""

H = TypeVar("H", bound=Hashable)
V = TypeVar("V")


class SharedValues:
    """Returns the value that was first seen for each of many equal ones."""

    def __init__(self, max_values: int = _MAX_VALUES) -> None:
        self._values: dict[object, object] = {}
        self._max_values = max_values

    def of_pod(self, pod: ScheduledPod) -> ScheduledPod:
        """Return an equal pod, whose values are those of earlier pods where they are equal."""
        return replace(
            pod,
            namespace=self._share(pod.namespace),
            node=self._share(pod.node),
            cost_inputs=self._share(pod.cost_inputs),
            loss_inputs=self._share(pod.loss_inputs),
            amounts=self._share_mapping(pod.amounts),
            ports=self._share(pod.ports),
            labels=self._share_mapping(pod.labels),
            quota=self._share(pod.quota),
            gang=self._share(pod.gang),
        )

    def of_encoded(self, encoded: EncodedPod) -> EncodedPod:
        """Return an equal encoding, which shares all but its own part with earlier ones."""
        return EncodedPod(encoded.own, self._share(encoded.workload), self._share(encoded.spec))

    def _share(self, value: H) -> H:
        if isinstance(value, (bytes, frozenset)) and len(value) > _max_length_of(value):
            return value
        # By type as well: tuples of different types may be equal.
        return self._first((type(value), value), value)

    def _share_mapping(self, value: Mapping[str, V]) -> Mapping[str, V]:
        if len(value) > _MAX_ITEMS:
            return value
        return self._first(("mapping", tuple(value.items())), value)

    def _first(self, key: Hashable, value: V) -> V:
        found = self._values.get(key)
        if found is not None:
            return cast("V", found)
        if len(self._values) >= self._max_values:
            self._values.clear()
        self._values[key] = value
        return value


def _max_length_of(value: bytes | frozenset[object]) -> int:
    return _MAX_BYTES if isinstance(value, bytes) else _MAX_ITEMS
