"""The facts about a cluster that `check` takes from the files that it reads.

An unknown fact causes no refusal. Each object is evaluated twice: with strict facts, in which an
unknown object does not exist, and with lenient facts, in which it has the most favourable value.
What both refuse is a violation. Where they differ, a warning names the missing fact.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple, Self

from reprieve_cli.manifests.manifest_objects import ManifestObject
from reprieve_cli.output.finding import ObjectName
from reprieve_policy.admission import preemption_priority
from reprieve_policy.config import namespace, settings
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.preemption_class import HIGHEST, LOWEST, ClassSet
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import job_requests
from reprieve_policy.kube.kinds import KINDS
from reprieve_policy.kube.limits import quota
from reprieve_policy.kube.limits.quota import Quotas
from reprieve_policy.kube.objects import (
    ObjectMeta,
    Resource,
    Spec,
    annotations_of,
    labels_of,
    pod_views,
)

from .known_jobs import KnownJobs

POLICY_MAP = ObjectName("ConfigMap", *Facts().policy_config_map)

_BUILT_IN = {
    name: Resource(kind="PriorityClass", metadata=ObjectMeta(name=name), value=value)
    for name, value in (
        ("system-cluster-critical", 2_000_000_000),
        ("system-node-critical", 2_000_001_000),
    )
}
"""PriorityClasses that every cluster has."""

_ALL_CLASSES_ALLOWED = NamespacePolicy(
    allowed_classes=ClassSet(frozenset(range(LOWEST, HIGHEST + 1)))
)


class MissingFactKind(Enum):
    """The kind of an unknown object."""

    NAMESPACE = "Namespace"
    PRIORITY_CLASS = "PriorityClass"


MissingFacts = dict[str, MissingFactKind]
"""The unknown objects that rules looked up, by a name for users."""


class StrictFacts(NamedTuple):
    """The facts for one object, and the objects that are unknown."""

    facts: Facts
    missing: MissingFacts


@dataclass(slots=True)
class KnownObjects:
    """The objects that were read and that rules depend on."""

    is_complete: bool = False
    """True if a PriorityClass or Namespace that was not read does not exist."""
    settings: PolicySettings = field(default_factory=PolicySettings)
    namespaces: dict[str, tuple[NamespacePolicy, ...]] = field(default_factory=dict)
    """The policies of each Namespace: several if it is defined more than once."""
    priority_classes: dict[str, Resource] = field(default_factory=lambda: dict(_BUILT_IN))
    quotas: Quotas = field(default_factory=Quotas)
    """The quotas' bounds; their usage is not known and counts as zero."""
    jobs: KnownJobs = field(default_factory=KnownJobs)

    def add(self, item: ManifestObject) -> None:
        """Add an object that the cluster will have."""
        resource = item.resource
        if resource is None or item.lacks_fields:
            return
        metadata, name = resource.metadata, item.name.name
        if resource.kind == "Namespace":
            policies = (*self.namespaces.get(name, ()), namespace_policy(resource))
            self.namespaces[name] = tuple(dict.fromkeys(policies))
        elif resource.kind == "PriorityClass":
            self.priority_classes[name] = resource
        elif resource.kind == "Pod":
            self.jobs.add(item.name.namespace, name, next(pod_views(resource)))
        elif resource.kind == "ElasticQuota":
            spec = resource.spec or Spec()
            self.quotas.put(quota.read_leniently(metadata, spec.min or {}, spec.max or {}, {}))
        elif item.name == POLICY_MAP:
            parsed = settings.parse(resource.data or {})
            self.settings = parsed if isinstance(parsed, PolicySettings) else self.settings

    def readings(self, item: ManifestObject) -> Iterator[Self]:
        """Yield these objects, once for each policy that the object's Namespace may have."""
        name = item.name.namespace
        for policy in self.namespaces.get(name, ())[1:]:
            yield replace(self, namespaces={**self.namespaces, name: (policy,)})
        yield self

    def strict_facts(self, item: ManifestObject) -> StrictFacts:
        """Return facts in which an unknown object does not exist, and record lookups of those."""
        missing: MissingFacts = {}
        policy = self._policy_of(item, missing)
        classes = (
            self.priority_classes
            if self.is_complete
            else _PriorityClassLookup(self.priority_classes, missing)
        )
        return StrictFacts(self._facts(item, policy or NamespacePolicy(), classes), missing)

    def lenient_facts(self, item: ManifestObject, *kinds: MissingFactKind) -> Facts:
        """Return facts in which unknown objects of these kinds have the most favourable values."""
        policy, classes = self._policy_of(item, {}), self.priority_classes
        if policy is None:
            policy = (
                _ALL_CLASSES_ALLOWED if MissingFactKind.NAMESPACE in kinds else NamespacePolicy()
            )
        if MissingFactKind.PRIORITY_CLASS not in kinds:
            return self._facts(item, policy, classes)
        priority = _consistent_priority(item, classes)
        stand_in = Resource(
            kind="PriorityClass", metadata=ObjectMeta(), value=priority, globalDefault=True
        )
        return self._facts(item, policy, _PriorityClassLookup(classes, {}, stand_in))

    def _facts(
        self, item: ManifestObject, policy: NamespacePolicy, classes: Mapping[str, Resource]
    ) -> Facts:
        facts = Facts(
            settings=self.settings,
            namespace=policy,
            priority_classes=classes,
            quotas=self.quotas,
            is_offline=True,
        )
        return self._with_job_requests(item, facts)

    def _with_job_requests(self, item: ManifestObject, facts: Facts) -> Facts:
        """Add what the other pods of a pod's job request, where a quota counts them together."""
        resource, (_, namespace, name) = item.resource, item.name
        job = None if resource is None else job_requests.job_to_count(resource, None, facts)
        if resource is None or job is None:
            return facts
        view = next(pod_views(resource))
        requests = self.jobs.requests_beside(job, namespace, name, view, facts)
        return replace(facts, job_requests=requests)

    def _policy_of(self, item: ManifestObject, missing: MissingFacts) -> NamespacePolicy | None:
        row = KINDS.get(item.name.kind)
        if row is not None and not row.is_namespaced:
            return NamespacePolicy()
        name = item.name.namespace
        if name not in self.namespaces and not (name and self.is_complete):
            missing[f'Namespace "{name}"' if name else "its Namespace"] = MissingFactKind.NAMESPACE
        return self.namespaces[name][0] if name in self.namespaces else None


def namespace_policy(resource: Resource) -> NamespacePolicy:
    """Return the policy of a Namespace."""
    metadata = resource.metadata
    return namespace.read_leniently(labels_of(metadata), annotations_of(metadata))


class _PriorityClassLookup(Mapping[str, Resource]):
    """PriorityClasses by name; records lookups of unknown ones, and returns the stand-in if any."""

    def __init__(
        self, known: Mapping[str, Resource], missing: MissingFacts, stand_in: Resource | None = None
    ) -> None:
        self._known = known
        self._missing = missing
        self._stand_in = stand_in

    def __getitem__(self, name: str) -> Resource:
        if name in self._known:
            return self._known[name]
        self._missing[f'PriorityClass "{name}"'] = MissingFactKind.PRIORITY_CLASS
        if self._stand_in is None:
            raise KeyError(name)
        return self._stand_in

    def __iter__(self) -> Iterator[str]:
        """Yield the names, and `""` for an unknown default.

        Rules iterate over the classes only to find the cluster's default.
        """
        yield from self._known
        if not any(found.globalDefault for found in self._known.values()):
            self._missing["the cluster's default PriorityClass"] = MissingFactKind.PRIORITY_CLASS
            if self._stand_in is not None:
                yield ""

    def __len__(self) -> int:
        return len(self._known)


def _consistent_priority(item: ManifestObject, known: Mapping[str, Resource]) -> int:
    """Return the value of an unknown PriorityClass that agrees with the rest of the object."""
    resource = item.resource
    assert resource is not None
    values = [
        resource.value,
        *(claim.spec.priority for claim in preemption_priority.priority_claims(resource)),
    ]
    values += [
        known[name].value
        for name in preemption_priority.priority_class_names(resource)
        if name in known
    ]
    return next((value for value in values if value is not None), 0)
