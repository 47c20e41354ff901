"""What `check` knows of a cluster that it does not see: the objects that it was given, and how far they can be trusted.

What merely is not known refuses nothing. A second, lenient world fills each gap as favourably as possible; only what both
worlds refuse is a violation, and what they disagree about is a warning that says what was missing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from reprieve_cli.manifests.manifest_objects import ManifestObject
from reprieve_cli.output.finding import ObjectName
from reprieve_policy.admission import preemption_priority
from reprieve_policy.config import namespace, settings
from reprieve_policy.config.namespace import NamespacePolicy
from reprieve_policy.config.preemption_class import HIGHEST, LOWEST, ClassSet
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.facts import Facts
from reprieve_policy.kube import quota
from reprieve_policy.kube.kinds import KINDS
from reprieve_policy.kube.objects import ObjectMeta, Resource, Spec, annotations_of, labels_of
from reprieve_policy.kube.quota import Quotas

POLICY_MAP = ObjectName("ConfigMap", "reprieve-system", "reprieve-policy")

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
    """Of what kind something is that is not known."""

    NAMESPACE = "Namespace"
    PRIORITY_CLASS = "PriorityClass"


MissingFacts = dict[str, MissingFactKind]
"""What was asked for and is not known, as a person would name it."""


class StrictFacts(NamedTuple):
    """Facts for one object, and what they lack."""

    facts: Facts
    missing: MissingFacts


@dataclass(slots=True)
class KnownObjects:
    """What the objects that were read say of the cluster."""

    is_complete: bool = False
    """True where a PriorityClass or Namespace that was not read does not exist."""
    settings: PolicySettings = field(default_factory=PolicySettings)
    namespaces: dict[str, NamespacePolicy] = field(default_factory=dict)
    priority_classes: dict[str, Resource] = field(default_factory=lambda: dict(_BUILT_IN))
    quotas: Quotas = field(default_factory=Quotas)
    """What they promise; nothing is used of them yet."""

    def add(self, subject: ManifestObject) -> None:
        """Take an object's word for what the cluster will be like."""
        resource = subject.resource
        if resource is None:
            return
        metadata, name = resource.metadata, subject.name.name
        if resource.kind == "Namespace":
            self.namespaces[name] = namespace.read_leniently(
                labels_of(metadata), annotations_of(metadata)
            )
        elif resource.kind == "PriorityClass":
            self.priority_classes[name] = resource
        elif resource.kind == "ElasticQuota":
            spec = resource.spec or Spec()
            self.quotas.put(quota.read_leniently(metadata, spec.min or {}, spec.max or {}, {}))
        elif subject.name == POLICY_MAP:
            parsed = settings.parse(resource.data or {})
            self.settings = parsed if isinstance(parsed, PolicySettings) else self.settings

    def strict_facts(self, subject: ManifestObject) -> StrictFacts:
        """Return the facts as far as they are known, and the gaps, noted as rules ask; what is not known does not exist."""
        gaps: MissingFacts = {}
        policy = self._policy_of(subject, gaps)
        classes = (
            self.priority_classes
            if self.is_complete
            else _PriorityClassLookup(self.priority_classes, gaps)
        )
        return StrictFacts(self._facts(policy or NamespacePolicy(), classes), gaps)

    def lenient_facts(self, subject: ManifestObject, *gaps: MissingFactKind) -> Facts:
        """Return facts in which whatever is not known, of these kinds, is as the object would have it."""
        policy, classes = self._policy_of(subject, {}), self.priority_classes
        if policy is None:
            policy = (
                _ALL_CLASSES_ALLOWED if MissingFactKind.NAMESPACE in gaps else NamespacePolicy()
            )
        if MissingFactKind.PRIORITY_CLASS not in gaps:
            return self._facts(policy, classes)
        wished = _consistent_priority(subject, classes)
        stand_in = Resource(
            kind="PriorityClass", metadata=ObjectMeta(), value=wished, globalDefault=True
        )
        return self._facts(policy, _PriorityClassLookup(classes, {}, stand_in))

    def _facts(self, policy: NamespacePolicy, classes: Mapping[str, Resource]) -> Facts:
        return Facts(
            settings=self.settings,
            namespace=policy,
            priority_classes=classes,
            quotas=self.quotas,
            is_offline=True,
        )

    def _policy_of(self, subject: ManifestObject, missing: MissingFacts) -> NamespacePolicy | None:
        row = KINDS.get(subject.name.kind)
        if row is not None and not row.is_namespaced:
            return NamespacePolicy()
        name = subject.name.namespace
        if name not in self.namespaces and not (name and self.is_complete):
            missing[f'Namespace "{name}"' if name else "its Namespace"] = MissingFactKind.NAMESPACE
        return self.namespaces.get(name)


class _PriorityClassLookup(Mapping[str, Resource]):
    """PriorityClasses by name; what was asked for in vain is noted, and answered with a stand-in where there is one."""

    def __init__(
        self, known: Mapping[str, Resource], missing: MissingFacts, stand_in: Resource | None = None
    ) -> None:
        self._known = known
        self._gaps = missing
        self._stand_in = stand_in

    def __getitem__(self, name: str) -> Resource:
        if name in self._known:
            return self._known[name]
        self._gaps[f'PriorityClass "{name}"'] = MissingFactKind.PRIORITY_CLASS
        if self._stand_in is None:
            raise KeyError(name)
        return self._stand_in

    def __iter__(self) -> Iterator[str]:
        """Yield the names; who looks at them all looks for the cluster's default, so `""` stands for an unknown one."""
        yield from self._known
        if not any(found.globalDefault for found in self._known.values()):
            self._gaps["the cluster's default PriorityClass"] = MissingFactKind.PRIORITY_CLASS
            if self._stand_in is not None:
                yield ""

    def __len__(self) -> int:
        return len(self._known)


def _consistent_priority(subject: ManifestObject, known: Mapping[str, Resource]) -> int:
    """Return the one value that an unknown PriorityClass could have to agree with all that the object says."""
    resource = subject.resource
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
