"""Reports gangs whose pods differ, as Events, a metric and conditions on native PodGroups.

Admission refuses differences that it sees; this module finds the others. The resync lists the
metadata of every pod. A namespace whose gangs changed since the last resync is then read in full,
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

    def add_pod(self, metadata: VersionedMeta) -> None:
        """Add the metadata of one pod of this resync."""
        fingerprint = self._fingerprints.setdefault(
            metadata.namespace or "", _NamespaceFingerprint()
        )
        view = PodView("", labels_of(metadata), annotations_of(metadata), Spec(), is_template=False)
        relevant = [
            item
            for part in (view.labels, view.annotations)
            for item in part.items()
            if item[0] in _RELEVANT_KEYS
        ]
        pod_hash = hash((metadata.uid, metadata.deletionTimestamp is None, *sorted(relevant)))
        fingerprint.all_pods ^= pod_hash
        if divergence_scan.is_gang_member(view):
            fingerprint.gang_pods ^= pod_hash
            fingerprint.has_gangs = True

    async def check_changed_namespaces(self) -> None:
        """Check the namespaces whose gangs changed, after `add_pod` for all pods of a resync.

        Raises `ApiError`.
        """
        seen, self._fingerprints = self._fingerprints, {}
        groups = await self._pod_groups.list_by_namespace()
        hashes = {
            name: self._hash_namespace(
                name, seen.get(name, _NamespaceFingerprint()), groups.get(name, ())
            )
            for name in seen.keys() | groups.keys()
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
        facts = Facts(
            settings=self._policy.current,
            priority_classes=await self._list_priority_classes() if changed else {},
        )
        for name, value in changed.items():
            try:
                is_complete = await self._check_namespace(name, groups.get(name, ()), facts)
            except ApiError as error:
                # Retried in the next resync: a failure in one namespace must not hide the others.
                extra = {"namespace": name, "error": str(error)}
                _log.warning("could not check the gangs of a namespace", extra=extra)
                continue
            if is_complete:
                self._checked_hashes[name] = value

    def _hash_namespace(
        self, name: str, fingerprint: _NamespaceFingerprint, groups: Sequence[ListedPodGroup]
    ) -> int | None:
        """Return a value that changes if the namespace must be read again.

        Returns `None` for a namespace without gangs, with enforcement off, or that the operator may
        not write to.
        """
        if name == UNTOUCHED or self._namespaces.get(name).enforcement == OFF:
            return None
        if groups:
            uids = sorted(group.metadata.uid for group in groups)
            return hash((fingerprint.all_pods, *uids))
        return fingerprint.gang_pods if fingerprint.has_gangs else None

    async def _list_priority_classes(self) -> Mapping[str, Resource]:
        pages = self._api.list_pages(object_path("priorityclasses"), Resource)
        return {found.metadata.name or "": found async for page, _ in pages for found in page}

    async def _check_namespace(
        self, name: str, groups: Sequence[ListedPodGroup], facts: Facts
    ) -> bool:
        """Report the gangs that differ; return whether all conditions were written."""
        facts = replace(facts, namespace=self._namespaces.get(name))
        scan: DivergenceScan[ObjectReference] = DivergenceScan(
            {group.metadata.name: group.priority for group in groups if group.priority is not None}
        )
        async for pods, _ in self._api.list_pages(object_path("pods", name), Pod, limit=PAGE_SIZE):
            for pod in pods:
                _add_pod(scan, pod, facts)
        self._report(name, scan)
        entries = [(group, scan.gangs.get(("", group.metadata.name))) for group in groups]
        written = [
            await self._pod_groups.write_condition(group, entry.priority_mismatches if entry else 0)
            for group, entry in entries
        ]
        return all(written)

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
