"""Reports gangs whose pods differ, as Events, a metric and conditions on native PodGroups.

Admission refuses differences that it sees; this module finds the others. The resync lists the
metadata of every pod. A namespace whose gangs changed since it was last read is then read in full,
page by page, because priorities and native groups are in the spec. The monitor keeps one number for
each namespace and one message for each gang that differs.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import PAGE_SIZE
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_policy import keys
from reprieve_policy.config.namespace import OFF, UNTOUCHED
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import dialects, divergence, divergence_scan
from reprieve_policy.gangs.divergence_scan import DivergenceRecord, DivergenceScan
from reprieve_policy.kube.objects import (
    ObjectMeta,
    PodView,
    Resource,
    Spec,
    VersionedMeta,
    annotations_of,
    labels_of,
)
from reprieve_policy.kube.pods import Pod, is_terminating
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

from .pod_groups import ListedPodGroup, PodGroupConditions

_log = logging.getLogger(__name__)

_TRAITS = frozenset(
    {
        keys.PREEMPTIBLE,
        keys.CAN_PREEMPT,
        keys.PREEMPTION_CLASS,
        keys.PREEMPTION_PRIORITY_CLASS,
        keys.DISRUPTION_MODE,
    }
)
_RELEVANT_KEYS = _TRAITS | {place.key for place in dialects.GANG_FIELDS}

_GangKey = tuple[str, str, str]


@dataclass(slots=True)
class _NamespaceFingerprint:
    """The gang fields of a namespace's pods, as two hashes that do not depend on their order."""

    gang_pods: int = 0
    all_pods: int = 0
    has_gangs: bool = False

    def add(self, metadata: ObjectMeta) -> None:
        """Add one pod."""
        view = PodView("", labels_of(metadata), annotations_of(metadata), Spec(), is_template=False)
        relevant = [
            item
            for part in (view.labels, view.annotations)
            for item in part.items()
            if item[0] in _RELEVANT_KEYS
        ]
        pod_hash = hash((metadata.uid, metadata.deletionTimestamp is None, *sorted(relevant)))
        self.all_pods ^= pod_hash
        if divergence_scan.is_gang_member(view):
            self.gang_pods ^= pod_hash
            self.has_gangs = True


class DivergingGang(NamedTuple):
    """A gang whose pods differ, and in what."""

    namespace: str
    name: str
    text: str


class DivergenceMonitor:
    """Finds the gangs that differ during one leader's term."""

    def __init__(
        self,
        api: Api,
        writes: Writes,
        recorder: EventRecorder,
        policy: PolicySource,
        namespaces: NamespacePolicies,
        clock: Clock,
    ) -> None:
        self._api = api
        self._recorder = recorder
        self._policy = policy
        self._namespaces = namespaces
        self._pod_groups = PodGroupConditions(api, writes, clock)
        self._fingerprints: dict[str, _NamespaceFingerprint] = {}
        self._checked_hashes: dict[str, int] = {}
        self._reported: dict[_GangKey, str] = {}

    def count_diverging(self) -> int:
        """Return how many gangs differed when their namespace was last read."""
        return len(self._reported)

    def diverging(self) -> list[DivergingGang]:
        """Return the gangs that differed when their namespace was last read."""
        return [
            DivergingGang(namespace, "/".join(filter(None, identity)), text)
            for (namespace, *identity), text in self._reported.items()
        ]

    def begin(self) -> None:
        """Begin a resync, also after one that failed midway."""
        self._fingerprints = {}

    def add_pod(self, metadata: VersionedMeta) -> None:
        """Add the metadata of one pod of this resync."""
        namespace = metadata.namespace or ""
        self._fingerprints.setdefault(namespace, _NamespaceFingerprint()).add(metadata)

    async def check_changed_namespaces(self) -> None:
        """Check the namespaces whose gangs changed, after `add_pod` for all pods of a resync.

        Raises `ApiError`.
        """
        seen, self._fingerprints = self._fingerprints, {}
        groups = await self._pod_groups.list_by_namespace()
        facts = {
            name: Facts(settings=self._policy.current, namespace=self._namespaces.get(name))
            for name in seen.keys() | groups.keys()
        }
        hashes = {
            name: _hash_namespace(
                name, seen.get(name, _NamespaceFingerprint()), groups.get(name, ()), facts[name]
            )
            for name in facts
        }
        changed = {
            name: value
            for name, value in hashes.items()
            if value is not None and self._checked_hashes.get(name) != value
        }
        # Deleted namespaces are dropped, so that these dictionaries do not grow.
        self._checked_hashes = {
            name: value for name, value in self._checked_hashes.items() if hashes.get(name) == value
        }
        self._reported = {
            key: text for key, text in self._reported.items() if hashes.get(key[0]) is not None
        }
        classes = await self._list_priority_classes() if changed else {}
        for name in changed:
            known = replace(facts[name], priority_classes=classes)
            try:
                checked = await self._check_namespace(name, groups.get(name, ()), known)
            except ApiError as error:
                # Retried in the next resync: a failure in one namespace must not hide the others.
                extra = {"namespace": name, "error": str(error)}
                _log.warning("could not check the gangs of a namespace", extra=extra)
                continue
            if checked is not None:
                self._checked_hashes[name] = checked

    async def _list_priority_classes(self) -> Mapping[str, Resource]:
        pages = self._api.list_pages(object_path("priorityclasses"), Resource)
        return {found.metadata.name or "": found async for page, _ in pages for found in page}

    async def _check_namespace(
        self, name: str, groups: Sequence[ListedPodGroup], facts: Facts
    ) -> int | None:
        """Report the gangs that differ.

        Returns the hash of what was read, `None` if not all conditions were written. That of the
        resync's list would be wrong: a pod that was made since, and is gone before the next list,
        would leave the same hash before and after, and what was reported of it would stay.
        """
        fingerprint = _NamespaceFingerprint()
        scan: DivergenceScan[ObjectReference] = DivergenceScan(
            {group.metadata.name: group.priority for group in groups if group.priority is not None}
        )
        async for pods, _ in self._api.list_pages(object_path("pods", name), Pod, limit=PAGE_SIZE):
            for pod in pods:
                fingerprint.add(pod.metadata)
                _add_pod(scan, pod, facts)
        self._report(name, scan)
        entries = [(group, scan.gangs.get(("", group.metadata.name))) for group in groups]
        written = [
            await self._pod_groups.write_condition(group, entry.priority_mismatches if entry else 0)
            for group, entry in entries
        ]
        return _hash_namespace(name, fingerprint, groups, facts) if all(written) else None

    def _report(self, namespace: str, scan: DivergenceScan[ObjectReference]) -> None:
        diverging = {
            (namespace, *key): entry
            for key, entry in scan.gangs.items()
            if entry.first_differing_pod is not None
        }
        before = {key: text for key, text in self._reported.items() if key[0] == namespace}
        for key in before.keys() - diverging.keys():
            del self._reported[key]
        for key, entry in diverging.items():
            self._reported[key] = text = _divergence_message(entry)
            if before.get(key) != text and entry.first_differing_pod is not None:
                self._recorder.event(entry.first_differing_pod, "GangDiverges", text)


def _hash_namespace(
    name: str, fingerprint: _NamespaceFingerprint, groups: Sequence[ListedPodGroup], facts: Facts
) -> int | None:
    """Return a value that changes if the namespace must be read again.

    Returns `None` for a namespace without gangs, with enforcement off, or that the operator may not
    write to.
    """
    if name == UNTOUCHED or facts.namespace.enforcement == OFF:
        return None
    policies = (facts.settings, facts.namespace)
    if groups:
        uids = sorted(group.metadata.uid for group in groups)
        return hash((policies, fingerprint.all_pods, *uids))
    return hash((policies, fingerprint.gang_pods)) if fingerprint.has_gangs else None


def _add_pod(scan: DivergenceScan[ObjectReference], pod: Pod, facts: Facts) -> None:
    if is_terminating(pod):
        return
    metadata = pod.metadata
    reference = ObjectReference(
        "Pod", metadata.namespace or "", metadata.name or "", metadata.uid or ""
    )
    scan.add_pod(reference, pod.view, facts)


def _divergence_message(entry: DivergenceRecord[Any]) -> str:
    traits = ", ".join(
        label for name, label in divergence.TRAIT_LABELS.items() if name in entry.differing
    )
    return (
        f'differs from other pods of gang "{entry.gang.name}" in {traits}; '
        "a gang is preempted as a whole or not at all"
    )
