"""Recreates bare pods: stores a victim's replacement before its end, and creates it afterwards.

Level-based: all records are reconciled periodically, so that it does not matter which operator
wrote a record, nor when an operator was killed. The replacement is created once the victim's name
is free. It has the victim's name, so that there is never a second one, and an annotation with the
victim's uid, so that a record whose replacement exists is recognized as done.
"""

import asyncio
import logging
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import msgspec

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import event_messages, pod_state
from reprieve_operator.cluster.call_limiter import CallLimiter, CallPriority
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.namespace_rests import NamespaceRests
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy import keys
from reprieve_policy.kube.objects import annotations_of
from reprieve_policy.kube.values import timestamp
from reprieve_policy.lifecycle import bare_pod, ledger, replacement_annotations
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.api_error import unreadable_error
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.single_flight import SingleFlight

from .bare_pod_store import BarePodStore, NamespacedName, ReplacementRecord, too_large_reason
from .replacement_queue import ReplacementQueue

_log = logging.getLogger(__name__)

_LONGEST_REFUSAL = timedelta(hours=24)
"""A replacement refused for this long (by a quota, a missing ServiceAccount) is given up."""
_TERMINATING = "NamespaceTerminating"
_GRANT_SECONDS, _DENIAL_SECONDS = 60.0, 2.0
"""How long an answer about the permission to create pods counts.

Denials expire quickly, so that a new RoleBinding takes effect soon.
"""
_MAX_GRANTS = 1000
_MAX_POD_BYTES = 512 * 1024
"""Of a pod as the API server sends it: a manifest that is stored has 128 KiB at most, and the names
of the fields that each writer has set, the status, and our annotations come on top. Decoded as a
whole, a pod takes up to twenty times as much."""
_MAX_POD_READS = 4
"""Pods that are in memory as a whole at a time. One is decoded at a time, and what is kept of it
until it is stored has 128 KiB of JSON: about 20 MB in all."""

_MAX_STORE_SECONDS = 5.0
"""For a pod that is in memory as a whole; then it is tried again. Its read may wait behind calls of
its Namespace that hang. Without this, a few such Namespaces would hold up the victims of others."""


class PendingReplacement(NamedTuple):
    """A bare pod that is to be created."""

    victim_uid: str
    namespace: str
    name: str
    retry_at: datetime | None
    """When it is tried again, if the API server refused it."""


class BarePodController:
    """Stores and creates the replacements of bare pods during one leader's term."""

    def __init__(
        self,
        writes: Writes,
        store: BarePodStore,
        *,
        policy: PolicySource,
        recorder: EventRecorder,
        metrics: OperatorMetrics,
        clock: Clock,
        interval_seconds: float,
    ) -> None:
        self._writes = writes
        self._store = store
        self._policy = policy
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._create_rights: SingleFlight[str, bool] = SingleFlight(
            lambda granted: _GRANT_SECONDS if granted else _DENIAL_SECONDS,
            limits=None,
            max_results=_MAX_GRANTS,
            monotonic=clock.monotonic,
        )
        # A Namespace has two of them at most, and one while another Namespace reads.
        self._pod_reads = CallLimiter(_MAX_POD_READS, keeps_share_free=True)
        self._completed: set[str] = set()
        self._unconfirmed: set[str] = set()
        """Victims whose replacements may be created: the API server's answer was lost."""
        self._queue = ReplacementQueue(clock)
        self._rests = NamespaceRests(clock)

    async def store_replacement(self, pod: VictimPod, state: Eviction) -> None:
        """Store the replacement of a bare pod before its end, if its Namespace allows recreation.

        Raises `ApiError`.
        """
        namespace = pod.metadata.namespace or ""
        if not self._policy.current.recreate_bare_pods or pod.metadata.ownerReferences:
            return
        # Before the pod is read: of a Namespace that does not enable recreation, none is.
        if not await self._is_create_allowed(namespace):
            return
        # Without this, some dozens of large pods that are victims at once would have the operator
        # killed for its memory. One priority for all, so that the Namespaces take turns.
        async with self._pod_reads.acquire(CallPriority.TERMINATE, namespace):
            try:
                async with asyncio.timeout(_MAX_STORE_SECONDS):
                    await self._read_and_store(pod, state)
            except TimeoutError as error:
                message = f"not stored within {_MAX_STORE_SECONDS:g} seconds"
                raise ApiError(0, "Timeout", message) from error

    async def _read_and_store(self, pod: VictimPod, state: Eviction) -> None:
        replacement = await self._read_replacement(pod, state)
        if replacement is not None:
            await self._put_replacement(pod, replacement)

    async def _read_replacement(self, pod: VictimPod, state: Eviction) -> dict[str, Any] | None:
        """Return the replacement; `None` if there is none, or none that can be stored.

        Nothing else of the pod stays in memory: what is stored is small.
        """
        try:
            manifest = await self._read_full_pod(pod)
        except ApiError as error:
            if not error.is_answer_too_large:
                raise
            self._report_not_stored(pod, too_large_reason())
            return None
        if manifest is None or not bare_pod.is_recreatable(manifest):
            return None
        entry = self._ledger_entry(pod, state)
        replacement = bare_pod.build_replacement(manifest, entry, self._policy.current)
        if reason := self._store.rejection_reason(replacement):
            self._report_not_stored(pod, reason)
            return None
        return replacement

    async def _put_replacement(self, pod: VictimPod, replacement: dict[str, Any]) -> None:
        place = NamespacedName(pod.metadata.namespace or "", pod.metadata.name or "")
        before = annotations_of(pod.metadata).get(keys.REQUEUED_FROM, "")
        if self._store.pending.get(before) == place:
            # This pod is itself a replacement whose record could not be removed. Without this, the
            # older pod would be recreated, with its older checkpoint.
            await self._store.remove(before)
        await self._store.put(pod.metadata.uid or "", replacement)

    def _report_not_stored(self, pod: VictimPod, reason: str) -> None:
        self._recorder.event(
            ObjectReference.for_pod(pod.metadata), *event_messages.not_requeued(reason)
        )

    async def forget_replacement(self, uid: str) -> None:
        """Drop the replacement of a victim that exists and needs none; raises `ApiError`."""
        if uid in self._store.pending or not self._store.is_loaded:
            await self._store.remove(uid)

    def on_victim_gone(self, uid: str, *, has_finished: bool = False) -> None:
        """Queue the replacement of a victim that is gone; drop it if the victim has finished."""
        if uid not in self._store.pending:
            return
        if has_finished:
            self._completed.add(uid)
        self._queue.add(uid)

    def pending(self) -> list[PendingReplacement]:
        """Return the replacements that are not created yet, also those of victims that still go."""
        return [
            PendingReplacement(uid, place.namespace, place.name, self._retry_at(uid))
            for uid, place in self._store.pending.items()
        ]

    def _retry_at(self, uid: str) -> datetime | None:
        seconds = self._queue.retry_in_seconds(uid)
        return None if seconds is None else self._clock.now() + timedelta(seconds=seconds)

    async def run(self) -> None:
        """Create replacements until cancelled."""
        await self._load()
        while True:
            for uid in list(self._store.pending):
                await self._reconcile(uid)
            self._rests.end_round()
            await self._process_queue()

    async def _process_queue(self) -> None:
        """Reconcile the records of queued uids until the next reconciliation of all records."""
        until = self._clock.monotonic() + self._interval_seconds
        while (left := until - self._clock.monotonic()) > 0:
            await self._queue.wait(left)
            for uid in self._queue.take_all():
                await self._reconcile(uid)

    async def _load(self) -> None:
        while True:
            try:
                return await self._store.load()
            except ApiError as error:
                _log.warning("could not read the records of bare pods", extra={"error": str(error)})
            await asyncio.sleep(self._interval_seconds)

    async def _reconcile(self, uid: str) -> None:
        place = self._store.pending.get(uid)
        if place is None or not self._queue.is_due(uid):
            return
        if not self._rests.is_due(place.namespace, uid):
            return
        try:
            with self._rests.noting(place.namespace, uid):
                if uid in self._completed:
                    await self._store.remove(uid)
                else:
                    await self._recreate(uid, place)
        except msgspec.MsgspecError as error:
            # An unreadable record must not block the others.
            self._back_off(uid, place, unreadable_error(error))
        except ApiError as error:
            self._back_off(uid, place, error)
        if uid not in self._store.pending:
            self._completed.discard(uid)
            self._unconfirmed.discard(uid)
            self._queue.forget_refusals(uid)

    def _back_off(self, uid: str, place: NamespacedName, error: ApiError) -> None:
        is_first = self._queue.back_off(uid)
        extra = {"pod": f"{place.namespace}/{place.name}", "error": str(error)}
        _log.warning("could not recreate bare pod yet", extra=extra)
        if is_first and not error.is_unreachable:
            self._record_event(uid, place, event_messages.requeue_refused(error.message))

    async def _recreate(self, uid: str, place: NamespacedName) -> None:
        present = await self._read_pod(place)
        if present is not None and present.metadata.uid == uid:
            await self._free_name(present, uid, place)
            return
        if present is None:
            record = await self._store.get(uid)
            if record is not None and not await self._create(record, uid, place):
                return
        elif annotations_of(present.metadata).get(keys.REQUEUED_FROM) != uid:
            self._record_event(
                uid, place, event_messages.not_requeued("another pod has taken its name")
            )
        elif uid in self._unconfirmed:
            self._unconfirmed.remove(uid)
            count = annotations_of(present.metadata).get(keys.PREEMPTED_COUNT, "")
            self._report_created(present.metadata.uid or "", count, place)
        await self._store.remove(uid)

    async def _free_name(self, present: VictimPod, uid: str, place: NamespacedName) -> None:
        """Free the name of a victim that still exists, or drop its replacement if it needs none."""
        if pod_state.is_victim(present.metadata):
            return
        if not pod_state.has_failed_after_notice(present):
            # The pod stays or has finished. Without this, it would be recreated once a user
            # deletes it.
            await self._store.remove(uid)
        elif present.metadata.deletionTimestamp is None:
            await self._delete_failed_pod(uid, place)

    async def _delete_failed_pod(self, uid: str, place: NamespacedName) -> None:
        """Delete a victim that failed by itself: no controller does, and it holds the name."""
        try:
            await self._writes.delete_object(object_path("pods", place.namespace, place.name), uid)
        except ApiError as error:
            record = await self._store.get(uid)
            if record is None or self._is_refused_for_good(record, error, uid, place):
                await self._store.remove(uid)
            return
        self._queue.add(uid)

    async def _create(self, record: ReplacementRecord, uid: str, place: NamespacedName) -> bool:
        """Create the replacement; return whether it is done: created, or refused for good."""
        try:
            made = await self._writes.create(
                object_path("pods", place.namespace), record.replacement
            )
        except ApiError as error:
            if error.is_unanswered:
                self._unconfirmed.add(uid)
            return self._is_refused_for_good(record, error, uid, place)
        count = record.replacement["metadata"]["annotations"][keys.PREEMPTED_COUNT]
        self._report_created(made["metadata"]["uid"], count, place)
        return True

    def _report_created(self, uid: str, count: str, place: NamespacedName) -> None:
        self._record_event(uid, place, event_messages.requeued(count))
        self._metrics.requeues.labels(place.namespace, "reprieve").inc()

    def _is_refused_for_good(
        self, record: ReplacementRecord, error: ApiError, uid: str, place: NamespacedName
    ) -> bool:
        if error.is_conflict:
            return False  # A pod with this name was just created, maybe by us: check again later.
        since = timestamp.parse(record.metadata.creationTimestamp)
        is_late = since is not None and self._clock.now() - since > _LONGEST_REFUSAL
        is_ending = error.is_forbidden and any(word == _TERMINATING for word, _ in error.causes)
        if not (error.is_not_found or error.is_invalid_object or is_ending or is_late):
            raise error
        self._record_event(uid, place, event_messages.not_requeued(error.message))
        return True

    def _record_event(self, uid: str, place: NamespacedName, event: tuple[str, str]) -> None:
        self._recorder.event(ObjectReference("Pod", place.namespace, place.name, uid), *event)

    async def _read_pod(self, place: NamespacedName) -> VictimPod | None:
        return await self._writes.get(object_path("pods", place.namespace, place.name), VictimPod)

    async def _read_full_pod(self, pod: VictimPod) -> dict[str, Any] | None:
        """Return the pod with all its fields, `None` if it is gone.

        Raises `ApiError`; `is_answer_too_large` if it has more than `_MAX_POD_BYTES`.
        """
        path = object_path("pods", pod.metadata.namespace, pod.metadata.name)
        found = await self._writes.get(
            path, dict[str, Any], CallPriority.TERMINATE, max_bytes=_MAX_POD_BYTES
        )
        return found if found is not None and found["metadata"]["uid"] == pod.metadata.uid else None

    def _ledger_entry(self, pod: VictimPod, state: Eviction) -> ledger.LedgerEntry:
        before = replacement_annotations.read(annotations_of(pod.metadata))
        if before is not None and state.checkpoint is not None:
            # The checkpoint in the pod's annotations is older than the one in its state. Without
            # this, a time that the pod wrote itself would be combined with the older path.
            before = replace(before, checkpoint=None)
        known = {} if before is None else {ledger.SHARED_SLOT: before}
        return ledger.record(known, ledger.SHARED_SLOT, state, pod.metadata, self._clock.now())[
            ledger.SHARED_SLOT
        ]

    async def _is_create_allowed(self, namespace: str) -> bool:
        """Return whether the operator may create pods in the Namespace: it enables recreation."""
        return await self._create_rights.do(namespace, partial(self._review_access, namespace))

    async def _review_access(self, namespace: str) -> bool:
        attributes = {"namespace": namespace, "verb": "create", "resource": "pods"}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = await self._writes.create(object_path("selfsubjectaccessreviews"), review)
        granted = bool(answer["status"]["allowed"])
        if not granted:
            _log.info(
                "bare pods are not recreated: the operator may not create pods in this namespace",
                extra={"namespace": namespace},
            )
        return granted
