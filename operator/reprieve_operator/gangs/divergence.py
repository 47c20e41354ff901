"""Gangs whose pods do not agree, though admission refuses what it sees: Events, a metric and conditions on native PodGroups.

The sweep shows the metadata of every pod. A namespace whose gangs changed since the last sweep is then read in full, page
by page: priorities and native groups stand in the spec. What is remembered is a number for each namespace, and a sentence
for each gang that does not agree.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.namespace_policies import NamespacePolicies
from reprieve_operator.cluster.pods import VersionedMeta
from reprieve_operator.cluster.policy_source import PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_policy import keys
from reprieve_policy.config.namespace import OFF
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import dialects, divergence, divergence_scan
from reprieve_policy.gangs.divergence_scan import DivergenceRecord, DivergenceScan
from reprieve_policy.kube.objects import PodView, Resource, Spec, annotations_of, labels_of
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.stored_pod import StoredPod

from .pod_groups import PodGroupConditions, VersionedPodGroup

_log = logging.getLogger(__name__)

_PAGE = 50
"""Pods asked for at once: a page is in memory whole."""
_TRAITS = frozenset(
    {keys.PREEMPTIBLE, keys.CAN_PREEMPT, keys.PREEMPTION_CLASS, keys.PREEMPTION_PRIORITY_CLASS}
)
_RELEVANT_KEYS = _TRAITS | {place.key for place in dialects.GANG_FIELDS}

_GangKey = tuple[str, str, str]


@dataclass(slots=True)
class _NamespaceFingerprint:
    """What a namespace's pods say, folded into two numbers that don't depend on their order."""

    gang_pods: int = 0
    all_pods: int = 0
    has_gangs: bool = False


class DivergenceMonitor:
    """One term's counts."""

    def __init__(
        self,
        api: Api,
        effects: Writes,
        announcer: EventRecorder,
        policy: PolicySource,
        namespaces: NamespacePolicies,
        clock: Clock,
    ) -> None:
        self._api = api
        self._announcer = announcer
        self._policy = policy
        self._namespaces = namespaces
        self._pod_groups = PodGroupConditions(api, effects, clock)
        self._fingerprints: dict[str, _NamespaceFingerprint] = {}
        self._checked_fingerprints: dict[str, int] = {}
        self._reported: dict[_GangKey, str] = {}

    def count_diverging(self) -> int:
        """Return how many gangs did not agree when their namespace was last read."""
        return len(self._reported)

    def add_pod(self, metadata: VersionedMeta) -> None:
        """Take in the metadata of one pod of this sweep."""
        marks = self._fingerprints.setdefault(metadata.namespace or "", _NamespaceFingerprint())
        view = PodView("", labels_of(metadata), annotations_of(metadata), Spec(), is_template=False)
        said = [
            item
            for part in (view.labels, view.annotations)
            for item in part.items()
            if item[0] in _RELEVANT_KEYS
        ]
        mark = hash((metadata.uid, metadata.deletionTimestamp is None, *sorted(said)))
        marks.all_pods ^= mark
        if divergence_scan.is_gang_member(view):
            marks.gang_pods ^= mark
            marks.has_gangs = True

    async def check_changed_namespaces(self) -> None:
        """Read the namespaces whose gangs changed, after all pods of a sweep were seen; raises `ApiError`."""
        seen, self._fingerprints = self._fingerprints, {}
        groups = await self._pod_groups.list_by_namespace()
        marks = {
            name: self._fingerprint(
                name, seen.get(name, _NamespaceFingerprint()), groups.get(name, ())
            )
            for name in seen.keys() | groups.keys()
        }
        changed = {
            name: mark
            for name, mark in marks.items()
            if mark is not None and self._checked_fingerprints.get(name) != mark
        }
        # What is gone is forgotten, so that this stays as small as what is there.
        self._checked_fingerprints = {
            name: mark
            for name, mark in self._checked_fingerprints.items()
            if marks.get(name) == mark
        }
        self._reported = {
            key: text for key, text in self._reported.items() if marks.get(key[0]) is not None
        }
        facts = Facts(
            settings=self._policy.current,
            priority_classes=await self._list_priority_classes() if changed else {},
        )
        for name, mark in changed.items():
            try:
                is_said = await self._check_namespace(name, groups.get(name, ()), facts)
            except ApiError as error:
                # Tried again in the next sweep: what is wrong with one namespace must not hide the others.
                _log.warning("gangs not counted", extra={"namespace": name, "error": str(error)})
                continue
            if is_said:
                self._checked_fingerprints[name] = mark

    def _fingerprint(
        self, name: str, marks: _NamespaceFingerprint, groups: Sequence[VersionedPodGroup]
    ) -> int | None:
        """Return what changes when a namespace has to be read again; `None` where it has no gangs that concern us."""
        if self._namespaces.get(name).enforcement == OFF:
            return None
        if groups:
            return hash((marks.all_pods, *sorted(group.metadata.uid or "" for group in groups)))
        return marks.gang_pods if marks.has_gangs else None

    async def _list_priority_classes(self) -> Mapping[str, Resource]:
        pages = self._api.list_pages(object_path("priorityclasses"), Resource)
        return {found.metadata.name or "": found async for page, _ in pages for found in page}

    async def _check_namespace(
        self, name: str, groups: Sequence[VersionedPodGroup], facts: Facts
    ) -> bool:
        """Report what is found, and return whether all of it is said."""
        facts = replace(facts, namespace=self._namespaces.get(name))
        call: DivergenceScan[ObjectReference] = DivergenceScan(
            {
                group.metadata.name or "": group.spec.priority
                for group in groups
                if group.spec.priority is not None
            }
        )
        async for pods, _ in self._api.list_pages(
            object_path("pods", name), StoredPod, limit=_PAGE
        ):
            for pod in pods:
                _add_pod(call, pod, facts)
        self._report(name, call)
        entries = [(group, call.gangs.get(("", group.metadata.name or ""))) for group in groups]
        shown = [
            await self._pod_groups.write_condition(group, entry.priority_mismatches if entry else 0)
            for group, entry in entries
        ]
        return all(shown)

    def _report(self, namespace: str, scan: DivergenceScan[ObjectReference]) -> None:
        found = {
            (namespace, *key): entry
            for key, entry in scan.gangs.items()
            if entry.first_differing_pod is not None
        }
        told = {key: text for key, text in self._reported.items() if key[0] == namespace}
        for key in told.keys() - found.keys():
            del self._reported[key]
        for key, entry in found.items():
            self._reported[key] = text = _divergence_message(entry)
            if told.get(key) != text and entry.first_differing_pod is not None:
                self._announcer.event(entry.first_differing_pod, "GangDiverges", text)


def _add_pod(scan: DivergenceScan[ObjectReference], pod: StoredPod, facts: Facts) -> None:
    if pod.is_terminating:
        return
    metadata = pod.metadata
    who = ObjectReference("Pod", metadata.namespace or "", metadata.name or "", metadata.uid or "")
    scan.add_pod(who, pod.view, facts)


def _divergence_message(entry: DivergenceRecord[Any]) -> str:
    what = ", ".join(
        words for name, words in divergence.TRAIT_LABELS.items() if name in entry.differing
    )
    return f'differs from other pods of gang "{entry.gang.name}" in {what}; a gang is preempted as a whole or not at all'
