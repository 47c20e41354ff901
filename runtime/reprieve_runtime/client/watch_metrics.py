"""What can be seen of the watches of a program: how old its facts may be, and what it could not read."""

from collections.abc import Callable, Mapping
from typing import Protocol

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector


class WatchedCollection(Protocol):
    """A collection that is kept by list and watch."""

    @property
    def age_seconds(self) -> float:
        """Since the API server last said anything of it."""

    @property
    def unreadable(self) -> int:
        """How many of its objects cannot be read."""


class WatchCollector(Collector):
    """Two gauges of few values: the collections are the program's, not the cluster's."""

    def __init__(self, watches: Callable[[], Mapping[str, WatchedCollection]]) -> None:
        self._watches = watches

    def collect(self) -> list[GaugeMetricFamily]:
        """Return the gauges as of now."""
        age = GaugeMetricFamily(
            "reprieve_facts_age_seconds",
            "Since the API server last said anything of a collection; about a minute where nothing changes.",
            labels=["collection"],
        )
        unreadable = GaugeMetricFamily(
            "reprieve_unreadable_objects",
            "Objects of a collection that cannot be read, and are passed over.",
            labels=["collection"],
        )
        for collection, watch in self._watches().items():
            age.add_metric([collection], watch.age_seconds)
            unreadable.add_metric([collection], watch.unreadable)
        return [age, unreadable]
