"""Makes bare pods anew: what will replace a victim is stored before its end, and made once its name is free.

Level-based: whatever record there is, is looked at again and again, so that it makes no difference who wrote it, nor when an
operator was killed. The replacement has the victim's name, so that there is never a second one, and says whose place it
took, so that a record whose replacement was made is known for done.
"""

import asyncio
import contextlib
import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import event_messages, pod_state
from reprieve_operator.cluster.event_recorder import EventRecorder, ObjectReference
from reprieve_operator.cluster.pods import VictimPod
from reprieve_operator.cluster.policy_source import PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy import keys
from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import annotations_of
from reprieve_policy.lifecycle import bare_pod, ledger, replacement_annotations
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

from .bare_pod_store import BarePodStore, NamespacedName, ReplacementRecord

_log = logging.getLogger(__name__)

_GIVE_UP_AFTER = timedelta(hours=24)
"""A replacement that has been refused for so long (by a quota, for want of its ServiceAccount) will not be made."""
_LONGEST_PAUSE_SECONDS = 300.0
_PERMANENT_STATUSES = (404, 422)
"""Its Namespace is gone; the API server no longer takes such a pod."""
_FORBIDDEN, _CONFLICT = 403, 409
_TERMINATING = "NamespaceTerminating"
_GRANT_SECONDS, _DENIAL_SECONDS = 60.0, 2.0
"""For which an answer about the right to create pods counts: a no is to be none soon after an admin has bound it."""
_MAX_GRANTS = 1000


class _RetryBackoff(NamedTuple):
    """Until when a replacement that was refused is not tried again."""

    retry_at: float
    seconds: float


_NO_BACKOFF = _RetryBackoff(0.0, 1.0)


class BarePodController:
    """The bare pods of one term."""

    def __init__(
        self,
        effects: Writes,
        store: BarePodStore,
        *,
        policy: PolicySource,
        announcer: EventRecorder,
        metrics: OperatorMetrics,
        clock: Clock,
        interval_seconds: float,
    ) -> None:
        self._effects = effects
        self._store = store
        self._policy = policy
        self._announcer = announcer
        self._metrics = metrics
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._create_rights: dict[str, tuple[float, bool]] = {}
        self._completed: set[str] = set()
        self._queue: set[str] = set()
        self._backoffs: dict[str, _RetryBackoff] = {}
        self._changed = asyncio.Event()

    async def store_replacement(self, pod: VictimPod, state: Eviction) -> None:
        """Store what will replace a bare pod that goes now, where its Namespace wants that; raises `ApiError`."""
        namespace, uid = pod.metadata.namespace or "", pod.metadata.uid or ""
        if not self._policy.current.recreate_bare_pods or pod.metadata.ownerReferences:
            return
        whole = await self._read_full_pod(pod)
        if (
            whole is None
            or not bare_pod.is_recreatable(whole)
            or not await self._is_create_allowed(namespace)
        ):
            return
        entry = self._ledger_entry(pod, state)
        replacement = bare_pod.build_replacement(whole, entry, self._policy.current)
        if why := self._store.rejection_reason(replacement):
            self._announcer.event(
                ObjectReference.for_pod(pod.metadata), *event_messages.not_requeued(why)
            )
            return
        before = annotations_of(pod.metadata).get(keys.REQUEUED_FROM, "")
        if self._store.pending.get(before) == NamespacedName(namespace, pod.metadata.name or ""):
            # It was made, and that could not be noted. Without this, the older one would come back, with what it had saved.
            await self._store.remove(before)
        await self._store.put(uid, replacement)

    async def forget_replacement(self, uid: str) -> None:
        """Forget the replacement of a victim whose work is done, and that is still there; raises `ApiError`."""
        if uid in self._store.pending or not self._store.is_loaded:
            await self._store.remove(uid)

    def on_victim_gone(self, uid: str, *, has_finished: bool = False) -> None:
        """Take note that a victim is gone, and whether its work was done, or that it stays."""
        if uid not in self._store.pending:
            return
        if has_finished:
            self._completed.add(uid)
        self._queue.add(uid)
        self._changed.set()

    async def run(self) -> None:
        """Make replacements until cancelled."""
        await self._load()
        while True:
            for uid in list(self._store.pending):
                await self._reconcile(uid)
            await self._process_queue()

    async def _process_queue(self) -> None:
        """Attend to those of which there is news, until it is time to look at all of them again."""
        until = self._clock.monotonic() + self._interval_seconds
        while (left := until - self._clock.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()
            self._changed.clear()
            while self._queue:
                await self._reconcile(self._queue.pop())

    async def _load(self) -> None:
        while True:
            try:
                return await self._store.load()
            except ApiError as error:
                _log.warning("records of bare pods not read", extra={"error": str(error)})
            await asyncio.sleep(self._interval_seconds)

    async def _reconcile(self, uid: str) -> None:
        place, pause = self._store.pending.get(uid), self._backoffs.get(uid, _NO_BACKOFF)
        if place is None or self._clock.monotonic() < pause.retry_at:
            return
        try:
            if uid in self._completed:
                await self._store.remove(uid)
            else:
                await self._recreate(uid, place)
        except msgspec.MsgspecError as error:
            # One that cannot be read must not keep the others from being made.
            self._back_off(uid, place, ApiError(0, "Unreadable", str(error)))
        except ApiError as error:
            self._back_off(uid, place, error)
        if uid not in self._store.pending:
            self._completed.discard(uid)
            self._backoffs.pop(uid, None)

    def _back_off(self, uid: str, place: NamespacedName, error: ApiError) -> None:
        pause = self._backoffs.get(uid, _NO_BACKOFF)
        seconds = min(_LONGEST_PAUSE_SECONDS, 2 * pause.seconds)
        self._backoffs[uid] = _RetryBackoff(self._clock.monotonic() + seconds, seconds)
        extra = {"pod": f"{place.namespace}/{place.name}", "error": str(error)}
        _log.warning("bare pod not made anew yet", extra=extra)
        if pause is _NO_BACKOFF and error.status:
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
        await self._store.remove(uid)

    async def _free_name(self, present: VictimPod, uid: str, place: NamespacedName) -> None:
        """Forget the replacement of a victim that is still there and is none any more, or have its name freed."""
        if pod_state.is_victim(present.metadata):
            return
        if not pod_state.has_failed_after_notice(present):
            # It stays, or has finished. Without this, it would come back once its owner deletes it.
            await self._store.remove(uid)
        elif present.metadata.deletionTimestamp is None:
            await self._delete_failed_pod(uid, place)

    async def _delete_failed_pod(self, uid: str, place: NamespacedName) -> None:
        """Delete what is left of a victim that failed by itself: nobody else does, and it has the name."""
        try:
            await self._effects.delete_object(object_path("pods", place.namespace, place.name), uid)
        except ApiError as error:
            record = await self._store.get(uid)
            if record is None or self._is_refused_for_good(record, error, uid, place):
                await self._store.remove(uid)
            return
        self._queue.add(uid)
        self._changed.set()

    async def _create(self, record: ReplacementRecord, uid: str, place: NamespacedName) -> bool:
        """Return whether there is nothing left to do: it was made, or will never be."""
        try:
            made = await self._effects.create(
                object_path("pods", place.namespace), record.replacement
            )
        except ApiError as error:
            return self._is_refused_for_good(record, error, uid, place)
        count = record.replacement["metadata"]["annotations"][keys.PREEMPTED_COUNT]
        self._record_event(made["metadata"]["uid"], place, event_messages.requeued(count))
        self._metrics.requeues.labels(place.namespace, "reprieve").inc()
        return True

    def _is_refused_for_good(
        self, record: ReplacementRecord, error: ApiError, uid: str, place: NamespacedName
    ) -> bool:
        if error.status == _CONFLICT:
            return False  # Somebody has just taken the name, maybe we: the next look says who.
        since = timestamp.parse(record.metadata.creationTimestamp)
        is_late = since is not None and self._clock.now() - since > _GIVE_UP_AFTER
        is_ending = error.status == _FORBIDDEN and any(
            word == _TERMINATING for word, _ in error.causes
        )
        if not (error.status in _PERMANENT_STATUSES or is_ending or is_late):
            raise error
        self._record_event(uid, place, event_messages.not_requeued(error.message))
        return True

    def _record_event(self, uid: str, place: NamespacedName, event: tuple[str, str]) -> None:
        self._announcer.event(ObjectReference("Pod", place.namespace, place.name, uid), *event)

    async def _read_pod(self, place: NamespacedName) -> VictimPod | None:
        return await self._effects.get(object_path("pods", place.namespace, place.name), VictimPod)

    async def _read_full_pod(self, pod: VictimPod) -> dict[str, Any] | None:
        """Return the pod with all its fields, `None` where it is gone."""
        path = object_path("pods", pod.metadata.namespace, pod.metadata.name)
        found = await self._effects.get(path, dict[str, Any])
        return found if found is not None and found["metadata"]["uid"] == pod.metadata.uid else None

    def _ledger_entry(self, pod: VictimPod, state: Eviction) -> ledger.LedgerEntry:
        before = replacement_annotations.read(annotations_of(pod.metadata))
        if before is not None and state.checkpoint is not None:
            # What the pod was told is older, whenever it says that it has saved: without this, a time that it wrote itself goes with the
            # path that it came from.
            before = replace(before, checkpoint=None)
        known = {} if before is None else {ledger.SHARED_SLOT: before}
        return ledger.record(known, ledger.SHARED_SLOT, state, pod.metadata, self._clock.now())[
            ledger.SHARED_SLOT
        ]

    async def _is_create_allowed(self, namespace: str) -> bool:
        """Return whether the Namespace wants it: whether somebody has bound the right to create pods there to us."""
        now = self._clock.monotonic()
        until, granted = self._create_rights.get(namespace, (now, False))
        if now < until:
            return granted
        attributes = {"namespace": namespace, "verb": "create", "resource": "pods"}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = await self._effects.create(object_path("selfsubjectaccessreviews"), review)
        granted = bool(answer["status"]["allowed"])
        if len(self._create_rights) >= _MAX_GRANTS:
            self._create_rights.clear()
        self._create_rights[namespace] = (
            now + (_GRANT_SECONDS if granted else _DENIAL_SECONDS),
            granted,
        )
        if not granted:
            _log.info(
                "bare pods are not made anew: no right to create pods",
                extra={"namespace": namespace},
            )
        return granted
