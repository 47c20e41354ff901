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
from reprieve_operator.cluster.event_recorder import Announcer, Regarding
from reprieve_operator.cluster.pods import Pod
from reprieve_operator.cluster.policy_source import PolicySource
from reprieve_operator.cluster.writes import Effects
from reprieve_operator.metrics import Metrics
from reprieve_policy import keys
from reprieve_policy.kube import timestamp
from reprieve_policy.kube.objects import annotations_of
from reprieve_policy.lifecycle import bare_pod, ledger, replacement_annotations
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.client.paths import object_path

from .bare_pod_store import BareStore, Place, Record

_log = logging.getLogger(__name__)

_REFUSED_FOR = timedelta(hours=24)
"""A replacement that has been refused for so long (by a quota, for want of its ServiceAccount) will not be made."""
_LONGEST_PAUSE_SECONDS = 300.0
_NEVER = (404, 422)
"""Its Namespace is gone; the API server no longer takes such a pod."""
_FORBIDDEN, _CONFLICT = 403, 409
_TERMINATING = "NamespaceTerminating"
_GRANT_SECONDS, _DENIAL_SECONDS = 60.0, 2.0
"""For which an answer about the right to create pods counts: a no is to be none soon after an admin has bound it."""
_MAX_GRANTS = 1000


class _Pause(NamedTuple):
    """Until when a replacement that was refused is not tried again."""

    until: float
    seconds: float


_NO_PAUSE = _Pause(0.0, 1.0)


class Requeuer:
    """The bare pods of one term."""

    def __init__(
        self,
        effects: Effects,
        store: BareStore,
        *,
        policy: PolicySource,
        announcer: Announcer,
        metrics: Metrics,
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
        self._granted: dict[str, tuple[float, bool]] = {}
        self._finished: set[str] = set()
        self._poked: set[str] = set()
        self._pauses: dict[str, _Pause] = {}
        self._changed = asyncio.Event()

    async def preserve(self, pod: Pod, state: Eviction) -> None:
        """Store what will replace a bare pod that goes now, where its Namespace wants that; raises `ApiError`."""
        namespace, uid = pod.metadata.namespace or "", pod.metadata.uid or ""
        if not self._policy.current.recreate_bare_pods or pod.metadata.ownerReferences:
            return
        whole = await self._read_whole(pod)
        if whole is None or not bare_pod.is_recreatable(whole) or not await self._may_create(namespace):
            return
        entry = self._count(pod, state)
        replacement = bare_pod.build_replacement(whole, entry, self._policy.current)
        if why := self._store.refuses(replacement):
            self._announcer.announce(Regarding.pod(pod.metadata), *event_messages.not_requeued(why))
            return
        before = annotations_of(pod.metadata).get(keys.REQUEUED_FROM, "")
        if self._store.places.get(before) == Place(namespace, pod.metadata.name or ""):
            # It was made, and that could not be noted. Without this, the older one would come back, with what it had saved.
            await self._store.remove(before)
        await self._store.put(uid, replacement)

    async def finished(self, uid: str) -> None:
        """Forget the replacement of a victim whose work is done, and that is still there; raises `ApiError`."""
        if uid in self._store.places or not self._store.is_loaded:
            await self._store.remove(uid)

    def ended(self, uid: str, *, has_finished: bool = False) -> None:
        """Take note that a victim is gone, and whether its work was done, or that it stays."""
        if uid not in self._store.places:
            return
        if has_finished:
            self._finished.add(uid)
        self._poked.add(uid)
        self._changed.set()

    async def run(self) -> None:
        """Make replacements until cancelled."""
        await self._load()
        while True:
            for uid in list(self._store.places):
                await self._attend(uid)
            await self._attend_poked()

    async def _attend_poked(self) -> None:
        """Attend to those of which there is news, until it is time to look at all of them again."""
        until = self._clock.monotonic() + self._interval_seconds
        while (left := until - self._clock.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._changed.wait()
            self._changed.clear()
            while self._poked:
                await self._attend(self._poked.pop())

    async def _load(self) -> None:
        while True:
            try:
                return await self._store.load()
            except ApiError as error:
                _log.warning("records of bare pods not read", extra={"error": str(error)})
            await asyncio.sleep(self._interval_seconds)

    async def _attend(self, uid: str) -> None:
        place, pause = self._store.places.get(uid), self._pauses.get(uid, _NO_PAUSE)
        if place is None or self._clock.monotonic() < pause.until:
            return
        try:
            if uid in self._finished:
                await self._store.remove(uid)
            else:
                await self._bring_back(uid, place)
        except msgspec.MsgspecError as error:
            # One that cannot be read must not keep the others from being made.
            self._postpone(uid, place, ApiError(0, "Unreadable", str(error)))
        except ApiError as error:
            self._postpone(uid, place, error)
        if uid not in self._store.places:
            self._finished.discard(uid)
            self._pauses.pop(uid, None)

    def _postpone(self, uid: str, place: Place, error: ApiError) -> None:
        pause = self._pauses.get(uid, _NO_PAUSE)
        seconds = min(_LONGEST_PAUSE_SECONDS, 2 * pause.seconds)
        self._pauses[uid] = _Pause(self._clock.monotonic() + seconds, seconds)
        extra = {"pod": f"{place.namespace}/{place.name}", "error": str(error)}
        _log.warning("bare pod not made anew yet", extra=extra)
        if pause is _NO_PAUSE and error.status:
            self._say(uid, place, event_messages.requeue_refused(error.message))

    async def _bring_back(self, uid: str, place: Place) -> None:
        present = await self._look(place)
        if present is not None and present.metadata.uid == uid:
            await self._make_way(present, uid, place)
            return
        if present is None:
            record = await self._store.get(uid)
            if record is not None and not await self._create(record, uid, place):
                return
        elif annotations_of(present.metadata).get(keys.REQUEUED_FROM) != uid:
            self._say(uid, place, event_messages.not_requeued("another pod has taken its name"))
        await self._store.remove(uid)

    async def _make_way(self, present: Pod, uid: str, place: Place) -> None:
        """Forget the replacement of a victim that is still there and is none any more, or have its name freed."""
        if pod_state.is_victim(present.metadata):
            return
        if not pod_state.has_failed_as_told(present):
            # It stays, or has finished. Without this, it would come back once its owner deletes it.
            await self._store.remove(uid)
        elif present.metadata.deletionTimestamp is None:
            await self._discard(uid, place)

    async def _discard(self, uid: str, place: Place) -> None:
        """Delete what is left of a victim that failed by itself: nobody else does, and it has the name."""
        try:
            await self._effects.remove(object_path("pods", place.namespace, place.name), uid)
        except ApiError as error:
            record = await self._store.get(uid)
            if record is None or self._refused(record, error, uid, place):
                await self._store.remove(uid)
            return
        self._poked.add(uid)
        self._changed.set()

    async def _create(self, record: Record, uid: str, place: Place) -> bool:
        """Return whether there is nothing left to do: it was made, or will never be."""
        try:
            made = await self._effects.create(object_path("pods", place.namespace), record.replacement)
        except ApiError as error:
            return self._refused(record, error, uid, place)
        count = record.replacement["metadata"]["annotations"][keys.PREEMPTED_COUNT]
        self._say(made["metadata"]["uid"], place, event_messages.requeued(count))
        self._metrics.requeues.labels(place.namespace, "reprieve").inc()
        return True

    def _refused(self, record: Record, error: ApiError, uid: str, place: Place) -> bool:
        if error.status == _CONFLICT:
            return False  # Somebody has just taken the name, maybe we: the next look says who.
        since = timestamp.parse(record.metadata.creationTimestamp)
        is_late = since is not None and self._clock.now() - since > _REFUSED_FOR
        is_ending = error.status == _FORBIDDEN and any(word == _TERMINATING for word, _ in error.causes)
        if not (error.status in _NEVER or is_ending or is_late):
            raise error
        self._say(uid, place, event_messages.not_requeued(error.message))
        return True

    def _say(self, uid: str, place: Place, told: tuple[str, str]) -> None:
        self._announcer.announce(Regarding("Pod", place.namespace, place.name, uid), *told)

    async def _look(self, place: Place) -> Pod | None:
        return await self._effects.find(object_path("pods", place.namespace, place.name), Pod)

    async def _read_whole(self, pod: Pod) -> dict[str, Any] | None:
        """Return the pod with all its fields, `None` where it is gone."""
        path = object_path("pods", pod.metadata.namespace, pod.metadata.name)
        found = await self._effects.find(path, dict[str, Any])
        return found if found is not None and found["metadata"]["uid"] == pod.metadata.uid else None

    def _count(self, pod: Pod, state: Eviction) -> ledger.Entry:
        before = replacement_annotations.read(annotations_of(pod.metadata))
        if before is not None and state.checkpoint is not None:
            # What the pod was told is older, whenever it says that it has saved: without this, a time that it wrote itself goes with the
            # path that it came from.
            before = replace(before, checkpoint=None)
        known = {} if before is None else {ledger.SHARED_SLOT: before}
        return ledger.record(known, ledger.SHARED_SLOT, state, pod.metadata, self._clock.now())[ledger.SHARED_SLOT]

    async def _may_create(self, namespace: str) -> bool:
        """Return whether the Namespace wants it: whether somebody has bound the right to create pods there to us."""
        now = self._clock.monotonic()
        until, granted = self._granted.get(namespace, (now, False))
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
        if len(self._granted) >= _MAX_GRANTS:
            self._granted.clear()
        self._granted[namespace] = (now + (_GRANT_SECONDS if granted else _DENIAL_SECONDS), granted)
        if not granted:
            _log.info("bare pods are not made anew: no right to create pods", extra={"namespace": namespace})
        return granted
