"""The metrics of all workers as those of one program.

The multi-process mode of prometheus_client has no place here: it keeps its values in files, of
which the root file system of the pod has none, and it knows neither collectors nor gauges that are
computed when they are read, which most of ours are.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

_COUNTED = ("counter", "histogram", "summary")
_SUMMED = frozenset(
    {"process_open_fds", "process_resident_memory_bytes", "process_virtual_memory_bytes"}
)
"""Gauges of which the program has as much as all workers together."""
_LEAST = frozenset(
    {
        "process_start_time_seconds",
        "reprieve_ca_certificate_expiry_timestamp_seconds",
        "reprieve_policy_is_good",
        "reprieve_serving_certificate_expiry_timestamp_seconds",
    }
)
"""Gauges of which the least is that of the worker that is worst off. Of others, it is the most."""


class Family(NamedTuple):
    """A metric, in a form that can be sent to another process."""

    name: str
    documentation: str
    kind: str
    samples: Sequence[tuple[str, Mapping[str, str], float]]

    @property
    def is_counted(self) -> bool:
        """True where the values only grow."""
        return self.kind in _COUNTED


def families_of(registry: CollectorRegistry) -> list[Family]:
    """Return the metrics of a registry as of now."""
    return [
        Family(
            metric.name,
            metric.documentation,
            metric.type,
            [(sample.name, sample.labels, sample.value) for sample in metric.samples],
        )
        for metric in registry.collect()
    ]


def summed(families: Iterable[Family]) -> list[Family]:
    """Return one family for each name."""
    by_name: dict[str, list[Family]] = {}
    for family in families:
        by_name.setdefault(family.name, []).append(family)
    return [_summed(alike) for alike in by_name.values()]


def _summed(alike: Sequence[Family]) -> Family:
    merge = _merge_of(alike[0])
    values: dict[tuple[str, tuple[tuple[str, str], ...]], list[float]] = {}
    for family in alike:
        for name, labels, value in family.samples:
            values.setdefault((name, tuple(labels.items())), []).append(value)
    samples = [(name, dict(labels), merge(of)) for (name, labels), of in values.items()]
    return alike[0]._replace(samples=samples)


def _merge_of(family: Family) -> Callable[[Iterable[float]], float]:
    if family.is_counted or family.name in _SUMMED:
        return sum
    return min if family.name in _LEAST else max


class SummedMetrics(Collector):
    """A collector of the metrics of all workers, in a registry of its own."""

    def __init__(
        self, own: CollectorRegistry, others: Callable[[], Awaitable[Iterable[Family]]]
    ) -> None:
        self._own, self._others = own, others
        self._families: Iterable[Family] = ()
        self.registry = CollectorRegistry()
        self.registry.register(self)

    async def refresh(self) -> None:
        """Read all metrics anew."""
        self._families = summed([*families_of(self._own), *await self._others()])

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics that were read last."""
        for family in self._families:
            metric = Metric(family.name, family.documentation, family.kind)
            metric.samples = [
                Sample(name, dict(labels), value) for name, labels, value in family.samples
            ]
            yield metric
