"""What a job requests (document 000): what a pod requests, and how many pods there are at once.

A pod's request mirrors Kubernetes' own computation. Containers and sidecars run together. Each
other init container runs alone, beside the sidecars that were started before it. Requests of the
pod as a whole override those of its containers.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .limits import quota
from .limits.quota import Amounts
from .objects import Container, Quantities, Resource, ResourceRequirements, Spec


@dataclass(slots=True)
class _Last:
    """The spec last asked about, and its amounts. Objects never change, so they stay valid."""

    known: tuple[Spec, Amounts] | None = None


_LAST = _Last()


def of_pod(spec: Spec) -> Amounts:
    """Return the amounts that one pod requests, in nanos by resource."""
    # A pod's requests, devices, cost and loss are read in a row. Without this, adding up its
    # containers four times would take half of the time that a listed pod takes.
    last = _LAST.known
    if last is None or last[0] is not spec:
        last = _LAST.known = spec, _add_up(spec)
    return last[1]


def _add_up(spec: Spec) -> dict[str, int]:
    total = Counter(_sum(spec.containers or ()))
    started: Counter[str] = Counter()
    highest: Counter[str] = Counter()
    for container in spec.initContainers or ():
        request = _request(container.resources)
        if container.restartPolicy == "Always":
            started.update(request)
            # A sidecar's own request is in `started` now.
            request = dict.fromkeys(request, 0)
        # Only what it names: sums of all for each would take seconds with thousands of containers.
        for name, amount in request.items():
            highest[name] = max(highest[name], started[name] + amount)
    amounts = dict((total + started) | highest) | _request(spec.resources)
    return dict(Counter(amounts) + Counter(quota.read_amounts(spec.overhead or {})))


def is_read_whole(spec: Spec) -> bool:
    """True if the amounts of a pod are all that it requests.

    Of very long lists, not all is read; what is requested by ResourceClaims is in no list.
    """
    return not spec.resourceClaims and all(
        len(each) <= quota.MAX_ENTRIES for each in _all_written(spec)
    )


def count_entries(spec: Spec) -> int:
    """Return the number of containers and of their requests.

    The pod's own requests and its overhead count as two containers more.
    """
    return sum(1 + len(each) for each in _all_written(spec))


def pods_of(resource: Resource) -> int | None:
    """Return how many pods a workload has at once.

    0: it is paused. `None`: the kind does not state it.
    """
    spec = resource.spec or Spec()
    if resource.kind == "CronJob":
        spec = (spec.jobTemplate.spec if spec.jobTemplate else None) or Spec()
    if resource.kind in ("Job", "CronJob"):
        parallelism = 1 if spec.parallelism is None else spec.parallelism
        return max(
            0, parallelism if spec.completions is None else min(parallelism, spec.completions)
        )
    if resource.kind in _WITH_REPLICAS:
        return 1 if spec.replicas is None else max(0, spec.replicas)
    return None


_WITH_REPLICAS = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"})


def _sum(containers: Iterable[Container]) -> Amounts:
    total: Counter[str] = Counter()
    for container in containers:
        total.update(_request(container.resources))
    return total


def _request(requirements: ResourceRequirements | None) -> dict[str, int]:
    return quota.read_amounts(_written(requirements))


def _all_written(spec: Spec) -> Iterator[Quantities]:
    yield spec.overhead or {}
    yield _written(spec.resources)
    for container in (*(spec.containers or ()), *(spec.initContainers or ())):
        yield _written(container.resources)


def _written(requirements: ResourceRequirements | None) -> Quantities:
    if requirements is None:
        return {}
    # The API server does the same for pods. In a template, a GPU often has a limit only.
    return {**(requirements.limits or {}), **(requirements.requests or {})}
