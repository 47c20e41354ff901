"""Metrics of a program's watches: the age of their data, and the number of unreadable objects."""

from collections.abc import Callable, Mapping
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class WatchedCollection(Protocol):
    """A collection that a reflector keeps."""

    @property
    def age_seconds(self) -> float:
        """Seconds since the last list or watch event."""

    @property
    def unreadable(self) -> int:
        """The number of its unreadable objects."""


class WatchCollector(Collector):
    """Two gauges with one value for each collection that the program watches."""

    def __init__(self, watches: Callable[[], Mapping[str, WatchedCollection]]) -> None:
        self._watches = watches

    def collect(self) -> list[GaugeMetricFamily]:
        """Return the gauges as of now."""
        age = GaugeMetricFamily(
            "reprieve_facts_age_seconds",
            "Seconds since the last list or watch event of a collection; "
            "up to about 60 if nothing changes.",
            labels=["collection"],
        )
        unreadable = GaugeMetricFamily(
            "reprieve_unreadable_objects",
            "Objects of a collection that cannot be decoded and are skipped.",
            labels=["collection"],
        )
        for collection, watch in self._watches().items():
            age.add_metric([collection], watch.age_seconds)
            unreadable.add_metric([collection], watch.unreadable)
        return [age, unreadable]
