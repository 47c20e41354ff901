"""All pods that have room or wait for it, each judged by what is known of its Namespace, its classes, its group and its Job.

A pod is judged when it comes or changes, and again when one of those does: for that its few fields are kept, packed, beside
the tenant that they make.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.kube.objects import Resource, controller_of, pod_group_name_of
from reprieve_policy.kube.quota import NamespacesByQuota
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.api_objects import Pod
from reprieve_policy.preemption.selection.snapshot import (
    GangInfo,
    GangKey,
    Preemptor,
    Release,
    ScheduledPod,
)
from reprieve_runtime.client.reflector import Key

from . import pod_pruning
from .snapshot_cache import SnapshotCache

V = TypeVar("V")
Dependency = tuple[str, str]
"""What a pod depends on: `Job` and a uid, or a native group's namespace and name. No namespace has a capital letter."""

_ASSUMED_SECONDS = 5.0
"""For a nomination, a mark or a deletion to come back through the watch: milliseconds where all is well."""
_JOB = "Job"
_DECODE = msgspec.msgpack.Decoder(Pod).decode


class _PolicyInputs(NamedTuple):
    """What all pods are judged by; of each, its Namespace's policy beside it."""

    settings: PolicySettings
    priority_classes: Mapping[str, Resource]
    quotas: NamespacesByQuota


@dataclass(frozen=True, slots=True)
class _CachedPod:
    """A pod as it was seen last, and what it was taken for."""

    encoded: bytes
    classified: ScheduledPod | Preemptor | None
    dependencies: tuple[Dependency, ...]
    """Its Job and its native group, whatever is known of them."""


class _AssumedPod(NamedTuple):
    """What is taken for granted of a pod."""

    expires_at: float
    observed: ScheduledPod | Preemptor | None
    """What it was taken for as it was seen."""


class _UnnotifiedMark(NamedTuple):
    """Which pod was marked, and until when that counts as going, as long as nobody has told it."""

    uid: str
    expires_at: float


class PodCache:
    """The pods, judged and seated."""

    def __init__(
        self,
        snapshot_cache: SnapshotCache,
        facts_of: Callable[[str], Facts],
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`facts_of` returns what is known of a Namespace and of the cluster now."""
        self._snapshot_cache, self._facts_of, self._clock, self._monotonic = (
            snapshot_cache,
            facts_of,
            clock,
            monotonic,
        )
        self._policy_inputs: _PolicyInputs | None = None
        self._facts: dict[str, Facts] = {}
        """By Namespace, those that pods are judged by."""
        self._pods_per_namespace: Counter[str] = Counter()
        """Of the pods of each Namespace. Without this, what is known of Namespaces that are gone would be kept, and looked at, for ever."""
        self._pods: dict[Key, _CachedPod] = {}
        self._to_reevaluate: dict[Key, None] = {}
        """To be judged again."""
        self._assumed: dict[Key, _AssumedPod] = {}
        self._unnotified_marks: dict[Key, _UnnotifiedMark] = {}
        """Those that nobody has told yet."""
        self._dependents: dict[Dependency, set[Key]] = {}
        self._jobs: dict[Dependency, Walltime] = {}
        self._groups: dict[Dependency, PodGroupInfo] = {}

    @property
    def is_up_to_date(self) -> bool:
        """True where every pod is judged by what is known now."""
        self._detect_policy_changes()
        return not self._to_reevaluate

    def put(self, pod: Pod) -> None:
        """Add a pod, or what it has become."""
        key = (pod.metadata.namespace or "", pod.metadata.name or "")
        pod, packed = pod_pruning.prune(pod)
        known = self._pods.get(key)
        # Many changes of a pod, such as restarts of its containers, are of nothing that is read.
        if known is None or known.encoded != packed:
            self._evaluate(key, pod, packed)

    def remove(self, key: Key) -> None:
        """Take a pod away."""
        known = self._pods.pop(key, None)
        self._to_reevaluate.pop(key, None)
        self._assumed.pop(key, None)
        self._unnotified_marks.pop(key, None)
        if known is not None:
            self._unlink(key, known)
            self._pods_per_namespace[key[0]] -= 1
            if not self._pods_per_namespace[key[0]]:
                del self._pods_per_namespace[key[0]]
                self._facts.pop(key[0], None)

    def assume(self, preemptor: Preemptor, node: str, victims: Iterable[ScheduledPod]) -> None:
        """Take for granted, for a while, that a scheduler does as it was told: its nomination and the marks are on their way.

        Without this, the next pod of the preemptor's gang, which comes within milliseconds, would be given other victims.
        """
        key = (preemptor.namespace, preemptor.name)
        known = self._pods.get(key)
        # As it waits by itself: the one that was decided for has its gang with it.
        if known is not None and isinstance(known.classified, Preemptor):
            self._set_assumed(key, known, replace(known.classified, nominated_node=node))
        for victim in victims:
            key = (victim.namespace, victim.name)
            known = self._pods.get(key)
            if (
                known is not None
                and isinstance(known.classified, ScheduledPod)
                and known.classified.uid == victim.uid
            ):
                before = known.classified.release
                release = Release(
                    expected_at=self._clock(),
                    notified=True,
                    is_being_deleted=True,
                    is_held_by_budget=before is not None and before.is_held_by_budget,
                    preemptor_uid=preemptor.demand.uid,
                )
                told = replace(known.classified, release=release)
                self._set_assumed(key, known, told)

    def without_assumed(self, groups: Mapping[GangKey, GangInfo]) -> Mapping[GangKey, GangInfo]:
        """Return these gangs with their pods as they were seen, whatever is expected of them."""
        seen = {
            one.observed.uid: one.observed
            for one in self._assumed.values()
            if isinstance(one.observed, ScheduledPod)
        }
        changed = {tenant.gang for tenant in seen.values() if tenant.gang is not None}
        before = {
            key: snapshot_builder.gang_info_of(
                key, [seen.get(member.uid, member) for member in groups[key].members]
            )
            for key in changed & groups.keys()
        }
        return {**groups, **before} if before else groups

    def put_job(self, uid: str, bound: Walltime | None) -> None:
        """Take in how long a Job may run; `None`: for as long as it likes, or it is gone."""
        self._put_dependency(self._jobs, (_JOB, uid), bound)

    def put_group(self, key: Key, said: PodGroupInfo | None) -> None:
        """Take in what a native group says; `None`: it is gone."""
        self._put_dependency(self._groups, key, said)

    def reevaluate(self, max_entries: int) -> None:
        """Judge again, of the pods that a change concerns, so many."""
        for key in list(islice(self._to_reevaluate, max_entries)):
            known = self._pods[key]
            self._evaluate(key, _DECODE(known.encoded), known.encoded)

    def _put_dependency(
        self, known: dict[Dependency, V], link: Dependency, value: V | None
    ) -> None:
        if known.get(link) == value:
            return
        if value is None:
            del known[link]
        else:
            known[link] = value
        self._to_reevaluate.update(dict.fromkeys(self._dependents.get(link, ())))

    def _set_assumed(
        self, key: Key, known: _CachedPod, classified: ScheduledPod | Preemptor
    ) -> None:
        """Take a pod for something else until it is judged again."""
        self._remove_from_snapshot(known.classified)
        self._add_to_snapshot(classified)
        self._pods[key] = replace(known, classified=classified)
        before = self._assumed.get(key)
        seen = known.classified if before is None else before.observed
        self._assumed[key] = _AssumedPod(self._monotonic() + _ASSUMED_SECONDS, seen)

    def _evaluate(self, key: Key, pod: Pod, packed: bytes) -> None:
        before = self._pods.get(key)
        if before is not None:
            self._unlink(key, before)
        else:
            self._pods_per_namespace[key[0]] += 1
        self._to_reevaluate.pop(key, None)
        self._assumed.pop(key, None)
        links = tuple(_dependencies_of(pod))
        taken_for = self._ignore_expired_mark(key, self._classify(pod, links))
        self._add_to_snapshot(taken_for)
        for link in links:
            self._dependents.setdefault(link, set()).add(key)
        self._pods[key] = _CachedPod(packed, taken_for, links)

    def _add_to_snapshot(self, classified: ScheduledPod | Preemptor | None) -> None:
        if isinstance(classified, ScheduledPod):
            self._snapshot_cache.add_pod(classified)
        elif classified is not None:
            self._snapshot_cache.add_pending_pod(classified)

    def _remove_from_snapshot(self, classified: ScheduledPod | Preemptor | None) -> None:
        if isinstance(classified, ScheduledPod):
            self._snapshot_cache.remove_pod(classified)
        elif classified is not None:
            self._snapshot_cache.remove_pending_pod(classified)

    def _unlink(self, key: Key, known: _CachedPod) -> None:
        self._remove_from_snapshot(known.classified)
        for link in known.dependencies:
            same = self._dependents[link]
            same.discard(key)
            if not same:
                del self._dependents[link]

    def _classify(self, pod: Pod, links: Sequence[Dependency]) -> ScheduledPod | Preemptor | None:
        facts = self._cached_facts(pod.metadata.namespace or "")
        native = next((self._groups[link] for link in links if link in self._groups), None)
        if pod.occupies_node:
            job = next((self._jobs[link] for link in links if link in self._jobs), None)
            return snapshot_builder.scheduled_pod_of(
                pod, facts, native=native, job=job, now=self._clock()
            )
        return snapshot_builder.preemptor_of(pod, facts, native=native) if pod.is_pending else None

    def _ignore_expired_mark(
        self, key: Key, classified: ScheduledPod | Preemptor | None
    ) -> ScheduledPod | Preemptor | None:
        """Return what a pod is taken for: whoever was marked, and told by no operator in all the time that anybody has, stays."""
        release = classified.release if isinstance(classified, ScheduledPod) else None
        if (
            not isinstance(classified, ScheduledPod)
            or release is None
            or not release.is_only_marked
        ):
            self._unnotified_marks.pop(key, None)
            return classified
        now = self._monotonic()
        known = self._unnotified_marks.get(key)
        if known is None or known.uid != classified.uid:
            known = self._unnotified_marks[key] = _UnnotifiedMark(
                classified.uid, now + self._facts_of("").settings.ceiling_seconds
            )
        return classified if now < known.expires_at else replace(classified, release=None)

    def _is_being_evicted(self, key: Key) -> bool:
        taken_for = self._pods[key].classified
        return isinstance(taken_for, ScheduledPod) and taken_for.is_leaving

    def _cached_facts(self, namespace: str) -> Facts:
        facts = self._facts.get(namespace)
        if facts is None:
            facts = self._facts[namespace] = self._facts_of(namespace)
            self._policy_inputs = self._policy_inputs or _policy_inputs_of(facts)
        return facts

    def _detect_policy_changes(self) -> None:
        """Find out whose pods were judged by what is known no more."""
        basis = _policy_inputs_of(self._facts_of(""))
        changed = {
            name
            for name, facts in self._facts.items()
            if self._facts_of(name).namespace != facts.namespace
        }
        if basis != self._policy_inputs:
            self._policy_inputs, changed = basis, set(self._facts)
        for name in changed:
            del self._facts[name]
        now = self._monotonic()
        self._to_reevaluate.update(
            dict.fromkeys(key for key, one in self._assumed.items() if one.expires_at <= now)
        )
        self._to_reevaluate.update(
            dict.fromkeys(
                key
                for key, one in self._unnotified_marks.items()
                if one.expires_at <= now and self._is_being_evicted(key)
            )
        )
        if changed:
            self._to_reevaluate.update(
                dict.fromkeys(key for key in self._pods if key[0] in changed)
            )


def _policy_inputs_of(facts: Facts) -> _PolicyInputs:
    # Copies: what the facts hold changes as the cluster does.
    return _PolicyInputs(
        facts.settings, dict(facts.priority_classes), facts.quotas.namespaces_by_quota
    )


def _dependencies_of(pod: Pod) -> Iterator[Dependency]:
    owner, group = controller_of(pod.metadata), pod_group_name_of(pod.spec.schedulingGroup)
    if owner is not None and owner.kind == "Job":
        yield _JOB, owner.uid
    if group:
        yield pod.metadata.namespace or "", group
