"""All pods that run on a node or wait for one, each classified as a victim or a preemptor.

A pod is classified by its Namespace's policy, its classes, its quota, its group and its Job: when
the pod is added or changes, and again when one of those changes. For that, the few fields that are
read of a pod are kept encoded, beside the `ScheduledPod` or `Preemptor` that they make.

What admins change holds at once: until all pods that it concerns are classified again, the cache is
not up to date. What tenants change, their Jobs and groups and the labels of their Namespaces, is
taken up in the background, and until then their pods count as before. Without this, a tenant could
keep the cache out of date for others.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import NamedTuple

from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.gangs.pod_group import PodGroupInfo
from reprieve_policy.kube.pods import Pod
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.snapshot import (
    GangInfo,
    GangKey,
    Preemptor,
    Release,
    ScheduledPod,
)
from reprieve_runtime.client.reflector import Key

from . import encoded_pods, pod_pruning, quota_uses
from .encoded_pods import EncodedPod
from .namespace_facts import NamespaceFacts
from .pod_dependencies import Dependency, PodDependencies, dependencies_of
from .quota_uses import QuotaUses
from .shared_values import SharedValues
from .snapshot_cache import SnapshotCache
from .waiting_pods import WaitingPods

_ASSUMED_SECONDS = 5.0
"""For a nomination, a mark or a deletion to come back through the watch; normally milliseconds."""


@dataclass(frozen=True, slots=True)
class _CachedPod:
    """A pod as it was observed last, and its classification."""

    encoded: EncodedPod
    classified: ScheduledPod | Preemptor | None
    dependencies: tuple[Dependency, ...]
    """Its native group and, on a node, its Job, also where nothing is known of them yet."""


class _AssumedPod(NamedTuple):
    """An assumption about a pod."""

    expires_at: float
    observed: ScheduledPod | Preemptor | None
    """The classification of the pod as the watch observed it."""


class _UnnotifiedMark(NamedTuple):
    """A marked pod that no operator has notified, and until when it counts as leaving."""

    uid: str
    expires_at: float


class PodCache:
    """Classifies pods and keeps them in the snapshot cache."""

    def __init__(
        self,
        snapshot_cache: SnapshotCache,
        facts_of: Callable[[str], Facts],
        policy_version: Callable[[], object],
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`facts_of` returns the current facts of a Namespace and of the cluster.

        `policy_version` differs after each change of a Namespace, a PriorityClass or the policy.
        """
        self._snapshot_cache = snapshot_cache
        self._facts = NamespaceFacts(facts_of, policy_version)
        self._dependencies, self._quota_uses = PodDependencies(), QuotaUses()
        self._shared_values = SharedValues()
        self._clock, self._monotonic = clock, monotonic
        self._pods: dict[Key, _CachedPod] = {}
        self._to_reclassify: dict[Key, None] = {}
        """The pods that a change by an admin concerns, or an assumption that is over."""
        self._waiting = WaitingPods()
        """The pods that a change by a tenant concerns."""
        self._assumed: dict[Key, _AssumedPod] = {}
        self._unnotified_marks: dict[Key, _UnnotifiedMark] = {}
        """Marked pods that no operator has notified yet."""

    @property
    def is_up_to_date(self) -> bool:
        """True where every pod is classified by the settings, policies and quotas of now."""
        self._queue_outdated()
        return not self._to_reclassify

    def put(self, pod: Pod) -> None:
        """Add a pod or its new state."""
        key = (pod.metadata.namespace or "", pod.metadata.name or "")
        pod, encoded = pod_pruning.prune(pod)
        cached = self._pods.get(key)
        # Many changes of a pod, such as restarts of its containers, concern no field that is read.
        if cached is None or cached.encoded != encoded:
            self._classify_and_store(key, pod, self._shared_values.of_encoded(encoded))

    def remove(self, key: Key) -> None:
        """Remove a pod."""
        cached = self._pods.pop(key, None)
        self._to_reclassify.pop(key, None)
        self._waiting.discard(key)
        self._assumed.pop(key, None)
        self._unnotified_marks.pop(key, None)
        if cached is not None:
            self._unlink(key, cached)
            self._facts.remove_pod(key[0])

    def assume(self, preemptor: Preemptor, node: str, victims: Iterable[ScheduledPod]) -> None:
        """Assume, for a while, that a scheduler follows its answer: nomination and marks will come.

        Without this, the next pod of the preemptor's gang, which comes within milliseconds, would
        be given other victims.
        """
        key = (preemptor.namespace, preemptor.name)
        cached = self._pods.get(key)
        # The cached preemptor, not `preemptor`: that one carries the rest of its gang.
        if (
            cached is not None
            and isinstance(cached.classified, Preemptor)
            and cached.classified.demand.uid == preemptor.demand.uid
        ):
            self._set_assumed(key, cached, replace(cached.classified, nominated_node=node))
        for victim in victims:
            key = (victim.namespace, victim.name)
            cached = self._pods.get(key)
            if (
                cached is not None
                and isinstance(cached.classified, ScheduledPod)
                and cached.classified.uid == victim.uid
            ):
                before = cached.classified.release
                release = Release(
                    expected_at=self._clock(),
                    notified=True,
                    is_being_deleted=True,
                    is_held_by_budget=before is not None and before.is_held_by_budget,
                    preemptor_uid=preemptor.demand.uid,
                )
                leaving = replace(cached.classified, release=release)
                self._set_assumed(key, cached, leaving)

    def without_assumed(self, groups: Mapping[GangKey, GangInfo]) -> Mapping[GangKey, GangInfo]:
        """Return these gangs with their pods as the watch observed them, without assumptions."""
        observed = {
            assumed.observed.uid: assumed.observed
            for assumed in self._assumed.values()
            if isinstance(assumed.observed, ScheduledPod)
        }
        changed = {pod.gang for pod in observed.values() if pod.gang is not None}
        as_observed = {
            key: snapshot_builder.gang_info_of(
                key, [observed.get(member.uid, member) for member in groups[key].members]
            )
            for key in changed & groups.keys()
        }
        return {**groups, **as_observed} if as_observed else groups

    def put_job(self, namespace: str, uid: str, bound: Walltime | None) -> None:
        """Record the walltime of a Job; `None`: it has none, or no longer exists."""
        self._dependencies.put_job(namespace, uid, bound)

    def put_group(self, key: Key, group: PodGroupInfo | None) -> None:
        """Record a native group; `None`: it no longer exists."""
        self._dependencies.put_group(key, group)

    def reclassify(self, max_entries: int) -> None:
        """Classify again at most `max_entries` of the pods that are not up to date."""
        for key in list(islice(self._to_reclassify, max_entries)):
            self._reclassify(key)

    def queue_changes_of_tenants(self) -> None:
        """Queue the pods whose Job, group or Namespace's labels changed since the last call.

        Those whose mark expired as well. How often this is called bounds how often one Job has its
        pods classified again.
        """
        now = self._monotonic()
        self._waiting.add(self._dependencies.take_changed())
        relabelled = self._facts.take_relabelled()
        if relabelled:
            self._waiting.add(
                key
                for key, cached in self._pods.items()
                if key[0] in relabelled and isinstance(cached.classified, Preemptor)
            )
        self._waiting.add(
            key
            for key, marked in self._unnotified_marks.items()
            if marked.expires_at <= now and self._is_being_evicted(key)
        )

    def reclassify_waiting(self, max_entries: int) -> bool:
        """Classify again at most `max_entries` of the pods that wait; return whether some are left.

        The pods of each Namespace are taken in turn.
        """
        for _ in range(max_entries):
            if not self._waiting:
                return False
            self._reclassify(self._waiting.next())
        return bool(self._waiting)

    def _reclassify(self, key: Key) -> None:
        encoded = self._pods[key].encoded
        self._classify_and_store(key, encoded_pods.decode(encoded), encoded)

    def _set_assumed(
        self, key: Key, cached: _CachedPod, classified: ScheduledPod | Preemptor
    ) -> None:
        """Replace the classification of a pod until it is classified again."""
        self._remove_from_snapshot(cached.classified)
        self._add_to_snapshot(classified)
        self._pods[key] = replace(cached, classified=classified)
        before = self._assumed.get(key)
        observed = cached.classified if before is None else before.observed
        self._assumed[key] = _AssumedPod(self._monotonic() + _ASSUMED_SECONDS, observed)

    def _classify_and_store(self, key: Key, pod: Pod, encoded: EncodedPod) -> None:
        before = self._pods.get(key)
        if before is not None:
            self._unlink(key, before)
        else:
            self._facts.add_pod(key[0])
        self._to_reclassify.pop(key, None)
        self._waiting.discard(key)
        self._assumed.pop(key, None)
        dependencies = tuple(dependencies_of(pod))
        classified = self._ignore_expired_mark(key, self._classify(pod, dependencies))
        self._add_to_snapshot(classified)
        self._dependencies.link(key, dependencies)
        if classified is not None:
            self._quota_uses.add_pod(classified)
        self._pods[key] = _CachedPod(encoded, classified, dependencies)

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

    def _unlink(self, key: Key, cached: _CachedPod) -> None:
        self._remove_from_snapshot(cached.classified)
        self._dependencies.unlink(key, cached.dependencies)
        if cached.classified is not None:
            self._quota_uses.remove_pod(cached.classified)

    def _classify(
        self, pod: Pod, dependencies: Sequence[Dependency]
    ) -> ScheduledPod | Preemptor | None:
        facts = self._facts.get(pod.metadata.namespace or "")
        native = self._dependencies.group(dependencies)
        if pod.occupies_node:
            job_walltime = self._dependencies.job_walltime(dependencies)
            scheduled = snapshot_builder.scheduled_pod_of(
                pod, facts, native=native, job_walltime=job_walltime, now=self._clock()
            )
            return self._shared_values.of_pod(scheduled)
        return snapshot_builder.preemptor_of(pod, facts, native=native) if pod.is_pending else None

    def _ignore_expired_mark(
        self, key: Key, classified: ScheduledPod | Preemptor | None
    ) -> ScheduledPod | Preemptor | None:
        """Return the classification of a pod, in which an expired mark does not count.

        A marked pod that no operator notified within the ceiling counts as staying.
        """
        release = classified.release if isinstance(classified, ScheduledPod) else None
        if (
            not isinstance(classified, ScheduledPod)
            or release is None
            or not release.is_only_marked
        ):
            self._unnotified_marks.pop(key, None)
            return classified
        now = self._monotonic()
        marked = self._unnotified_marks.get(key)
        if marked is None or marked.uid != classified.uid:
            marked = self._unnotified_marks[key] = _UnnotifiedMark(
                classified.uid, now + self._facts.settings.ceiling_seconds
            )
        return classified if now < marked.expires_at else replace(classified, release=None)

    def _is_being_evicted(self, key: Key) -> bool:
        classified = self._pods[key].classified
        return isinstance(classified, ScheduledPod) and classified.is_leaving

    def _queue_outdated(self) -> None:
        """Queue the pods whose classification rests on facts or assumptions that no longer hold."""
        changed = self._facts.drop_changed()
        now = self._monotonic()
        self._to_reclassify.update(
            dict.fromkeys(
                key for key, assumed in self._assumed.items() if assumed.expires_at <= now
            )
        )
        self._to_reclassify.update(dict.fromkeys(self._with_other_quota()))
        if changed:
            self._to_reclassify.update(
                dict.fromkeys(key for key in self._pods if key[0] in changed)
            )

    def _with_other_quota(self) -> Iterator[Key]:
        """Yield the pods that use another quota since a change of the quotas."""
        outdated = self._quota_uses.take_outdated(self._facts.quotas)
        namespaces = {use.namespace for use in outdated}
        if namespaces:
            for key, cached in self._pods.items():
                if (
                    key[0] in namespaces
                    and cached.classified is not None
                    and quota_uses.use_of(cached.classified) in outdated
                ):
                    yield key
