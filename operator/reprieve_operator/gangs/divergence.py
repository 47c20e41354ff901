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
from reprieve_operator.cluster.event_recorder import Announcer, Regarding
from reprieve_operator.cluster.namespace_policies import NamespacePolicies
from reprieve_operator.cluster.pods import VersionedMeta
from reprieve_operator.cluster.policy_source import PolicySource
from reprieve_operator.cluster.writes import Effects
from reprieve_policy import keys
from reprieve_policy.config.namespace import OFF
from reprieve_policy.facts import Facts
from reprieve_policy.gangs import dialects, divergence, divergence_scan
from reprieve_policy.gangs.divergence_scan import Entry, RollCall
from reprieve_policy.kube.objects import PodView, Resource, Spec, annotations_of, labels_of
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.stored_pod import StoredPod

from .pod_groups import PodGroup, PodGroups

_log = logging.getLogger(__name__)

_PAGE = 50
"""Pods asked for at once: a page is in memory whole."""
_TRAITS = frozenset({keys.PREEMPTIBLE, keys.CAN_PREEMPT, keys.PREEMPTION_CLASS, keys.PREEMPTION_PRIORITY_CLASS})
_READ = _TRAITS | {place.key for place in dialects.PLACES}

_GangKey = tuple[str, str, str]


@dataclass(slots=True)
class _Marks:
    """What a namespace's pods say, folded into two numbers that don't depend on their order."""

    of_gangs: int = 0
    of_all: int = 0
    has_gangs: bool = False


class GangCensus:
    """One term's counts."""

    def __init__(
        self,
        api: Api,
        effects: Effects,
        announcer: Announcer,
        policy: PolicySource,
        namespaces: NamespacePolicies,
        clock: Clock,
    ) -> None:
        self._api = api
        self._announcer = announcer
        self._policy = policy
        self._namespaces = namespaces
        self._groups = PodGroups(api, effects, clock)
        self._seen: dict[str, _Marks] = {}
        self._read: dict[str, int] = {}
        self._complaints: dict[_GangKey, str] = {}

    def count_diverging(self) -> int:
        """Return how many gangs did not agree when their namespace was last read."""
        return len(self._complaints)

    def see(self, metadata: VersionedMeta) -> None:
        """Take in the metadata of one pod of this sweep."""
        marks = self._seen.setdefault(metadata.namespace or "", _Marks())
        view = PodView("", labels_of(metadata), annotations_of(metadata), Spec(), is_template=False)
        said = [item for part in (view.labels, view.annotations) for item in part.items() if item[0] in _READ]
        mark = hash((metadata.uid, metadata.deletionTimestamp is None, *sorted(said)))
        marks.of_all ^= mark
        if divergence_scan.has_part(view):
            marks.of_gangs ^= mark
            marks.has_gangs = True

    async def finish(self) -> None:
        """Read the namespaces whose gangs changed, after all pods of a sweep were seen; raises `ApiError`."""
        seen, self._seen = self._seen, {}
        groups = await self._groups.by_namespace()
        marks = {
            name: self._mark(name, seen.get(name, _Marks()), groups.get(name, ()))
            for name in seen.keys() | groups.keys()
        }
        changed = {name: mark for name, mark in marks.items() if mark is not None and self._read.get(name) != mark}
        # What is gone is forgotten, so that this stays as small as what is there.
        self._read = {name: mark for name, mark in self._read.items() if marks.get(name) == mark}
        self._complaints = {key: text for key, text in self._complaints.items() if marks.get(key[0]) is not None}
        facts = Facts(settings=self._policy.current, priority_classes=await self._priority_classes() if changed else {})
        for name, mark in changed.items():
            try:
                is_said = await self._read_namespace(name, groups.get(name, ()), facts)
            except ApiError as error:
                # Tried again in the next sweep: what is wrong with one namespace must not hide the others.
                _log.warning("gangs not counted", extra={"namespace": name, "error": str(error)})
                continue
            if is_said:
                self._read[name] = mark

    def _mark(self, name: str, marks: _Marks, groups: Sequence[PodGroup]) -> int | None:
        """Return what changes when a namespace has to be read again; `None` where it has no gangs that concern us."""
        if self._namespaces.of(name).enforcement == OFF:
            return None
        if groups:
            return hash((marks.of_all, *sorted(group.metadata.uid or "" for group in groups)))
        return marks.of_gangs if marks.has_gangs else None

    async def _priority_classes(self) -> Mapping[str, Resource]:
        pages = self._api.pages(object_path("priorityclasses"), Resource)
        return {found.metadata.name or "": found async for page, _ in pages for found in page}

    async def _read_namespace(self, name: str, groups: Sequence[PodGroup], facts: Facts) -> bool:
        """Report what is found, and return whether all of it is said."""
        facts = replace(facts, namespace=self._namespaces.of(name))
        call: RollCall[Regarding] = RollCall(
            {group.metadata.name or "": group.spec.priority for group in groups if group.spec.priority is not None}
        )
        async for pods, _ in self._api.pages(object_path("pods", name), StoredPod, limit=_PAGE):
            for pod in pods:
                _take(call, pod, facts)
        self._report(name, call)
        entries = [(group, call.gangs.get(("", group.metadata.name or ""))) for group in groups]
        shown = [await self._groups.show(group, entry.misfits if entry else 0) for group, entry in entries]
        return all(shown)

    def _report(self, namespace: str, call: RollCall[Regarding]) -> None:
        found = {(namespace, *key): entry for key, entry in call.gangs.items() if entry.witness is not None}
        told = {key: text for key, text in self._complaints.items() if key[0] == namespace}
        for key in told.keys() - found.keys():
            del self._complaints[key]
        for key, entry in found.items():
            self._complaints[key] = text = _complaint(entry)
            if told.get(key) != text and entry.witness is not None:
                self._announcer.announce(entry.witness, "GangDiverges", text)


def _take(call: RollCall[Regarding], pod: StoredPod, facts: Facts) -> None:
    if pod.is_leaving:
        return
    metadata = pod.metadata
    who = Regarding("Pod", metadata.namespace or "", metadata.name or "", metadata.uid or "")
    call.take(who, pod.view, facts)


def _complaint(entry: Entry[Any]) -> str:
    what = ", ".join(words for name, words in divergence.WORDS.items() if name in entry.differing)
    return (
        f'differs from other pods of gang "{entry.gang.name}" in {what}; a gang is preempted as a whole or not at all'
    )
