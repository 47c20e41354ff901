"""What a pod asks for, and how many pods a workload makes at once: the request of a job in document 000.

A pod's request mirrors Kubernetes' own: containers and sidecars run together; each other init container runs alone, beside the
sidecars that were started before it; what the pod says as a whole goes before what its containers say.
"""

from collections import Counter
from collections.abc import Iterable

from . import quota
from .objects import Container, Resource, ResourceRequirements, Spec
from .quota import Amounts


def of_pod(spec: Spec) -> dict[str, int]:
    """Return the amounts that one pod asks for, in nanos by resource."""
    total = Counter(_sum(spec.containers or ()))
    started: Counter[str] = Counter()
    highest: Counter[str] = Counter()
    for container in spec.initContainers or ():
        asked = _asked(container.resources)
        if container.restartPolicy == "Always":
            started.update(asked)
            highest |= started
        else:
            highest |= started + Counter(asked)
    amounts = dict((total + started) | highest) | _asked(spec.resources)
    return dict(Counter(amounts) + Counter(quota.read_amounts(spec.overhead or {})))


def pods_of(resource: Resource) -> int | None:
    """Return how many pods a workload has at once: 0 where it is paused, `None` where that is not its own to say."""
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
        total.update(_asked(container.resources))
    return total


def _asked(requirements: ResourceRequirements | None) -> dict[str, int]:
    if requirements is None:
        return {}
    # As the API server does for pods: in a template, a GPU is often said as a limit only.
    return quota.read_amounts({**(requirements.limits or {}), **(requirements.requests or {})})
