"""Every write to a victim, and the reads that count in the same metrics.

Each write is fenced (only the leader writes), conditional (on the uid, mostly also on the
resourceVersion) and repeatable. A conflict means that the decision was made on an old version: it
is raised as `ApiError` 409, and the caller reads again.

A pod that is given without its resourceVersion is written by its uid alone, whatever else of it has
changed. Without this, an owner that writes to it all the time would keep it. Its lists are then
merged, not replaced.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Any, TypeVar

from reprieve_operator.clock import Clock
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy import keys
from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import CheckpointRequest
from reprieve_policy.gangs import gate
from reprieve_policy.kube.conditions import DISRUPTION_TARGET, Condition
from reprieve_policy.kube.objects import VersionedMeta, annotations_of, labels_of
from reprieve_policy.kube.values.timestamp import render
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_runtime.client.api import (
    JSON,
    MERGE_PATCH,
    METADATA_ONLY,
    STRATEGIC_MERGE_PATCH,
    VERSION_ONLY,
    WITHOUT_OBJECT,
    Api,
    ApiError,
    Params,
)
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector_store import HasMetadata

from . import pod_state
from .call_limiter import CallLimiter, CallPriority
from .leader_election import LeaderElection
from .pods import (
    FINALIZERS_REMOVED,
    MAX_ENTRIES,
    PAGE_SIZE,
    VersionedObject,
    VictimPod,
    metadata_after,
)
from .retries import is_overload

DISRUPTION_REASON = "PreemptionByReprieve"
_DISRUPTION_MESSAGE = "Reprieve: soft-evicted after notice"
_UNSCHEDULED_MESSAGE = "Reprieve: its gang was not placed as a whole in time"

Body = dict[str, Any]
R = TypeVar("R")
P = TypeVar("P", bound=HasMetadata)


class Writes:
    """The operator's calls to the API server."""

    def __init__(
        self,
        api: Api,
        call_limiter: CallLimiter,
        leader_election: LeaderElection,
        metrics: OperatorMetrics,
        clock: Clock,
        *,
        is_urgent: Callable[[Eviction], bool] = lambda _: False,
    ) -> None:
        """`is_urgent`: whether a victim's ceiling is near, so that its calls come before others."""
        self._api = api
        self._leader_election = leader_election
        self._metrics = metrics
        self._clock = clock
        self._call_limiter = call_limiter
        self._is_urgent = is_urgent

    def now(self) -> datetime:
        """Return the time that is written."""
        return self._clock.now()

    def priority_of(self, state: Eviction) -> CallPriority:
        """Return the priority of the calls that end a victim."""
        return CallPriority.OVERDUE if self._is_urgent(state) else CallPriority.TERMINATE

    def is_busy(self, namespace: str) -> bool:
        """True in a burst, in which the namespace's writes that can wait should wait."""
        return self._call_limiter.is_busy(namespace)

    async def read_pod(
        self, namespace: str, name: str, uid: str, priority: CallPriority = CallPriority.RECORD
    ) -> VictimPod | None:
        """Return the pod; `None` if it is gone, also if another pod has its name now."""
        return await self.read_pod_as(VictimPod, namespace, name, uid, priority)

    async def read_pod_as(
        self,
        kind: type[P],
        namespace: str,
        name: str,
        uid: str,
        priority: CallPriority = CallPriority.RECORD,
    ) -> P | None:
        """Return what `kind` has of the pod; `None` as in `read_pod`."""
        pod = await self.get(object_path("pods", namespace, name), kind, priority)
        return pod if pod is not None and pod.metadata.uid == uid else None

    async def get(
        self,
        path: str,
        kind: type[R],
        priority: CallPriority = CallPriority.RECORD,
        *,
        max_bytes: int | None = None,
    ) -> R | None:
        """Return an object, `None` if it does not exist.

        Raises `ApiError`; `is_answer_too_large` if it has more than `max_bytes`.
        """
        accept = METADATA_ONLY if kind is VersionedObject else JSON
        namespace = _namespace_of(path)
        try:
            async with self._call_limiter.acquire(priority, namespace):
                call = self._api.get(path, kind, accept=accept, max_bytes=max_bytes)
                found = await self._limited("get", namespace, call)
        except ApiError as error:
            outcome = "ok" if error.is_answer_too_large else str(error.status or "unreachable")
            self._metrics.api_calls.labels("get", outcome).inc()
            if error.is_not_found:
                return None
            raise
        self._metrics.api_calls.labels("get", "ok").inc()
        return found

    async def list_pages(
        self, path: str, kind: type[R], *, params: Params | None = None, metadata_only: bool = False
    ) -> AsyncIterator[Iterable[R]]:
        """Yield a collection in small pages: each object may have 256 KiB of annotations.

        Raises `ApiError`.
        """
        pages = self._api.list_pages(
            path, kind, params=params, metadata_only=metadata_only, limit=PAGE_SIZE
        )
        while True:
            try:
                found, _ = await anext(pages)
            except StopAsyncIteration:
                return
            except ApiError as error:
                self._metrics.api_calls.labels("list", str(error.status or "unreachable")).inc()
                raise
            self._metrics.api_calls.labels("list", "ok").inc()
            yield found

    async def write_state(
        self,
        pod: VictimPod,
        state: Eviction,
        request: CheckpointRequest | None,
        *,
        begins: bool,
        adds_finalizer: bool = False,
    ) -> VictimPod:
        """Write label and state in one call, with the request if the annotation carries it.

        Our finalizer goes on with the same call.
        """
        body = _state_patch(state)
        if request is not None:
            body["metadata"]["annotations"][keys.CHECKPOINT_REQUEST] = contract.render_request(
                request
            )
        if begins:
            # An answer to an earlier request must not count as the answer to this one.
            body["metadata"]["annotations"][keys.CHECKPOINT_ANSWER] = None
        if adds_finalizer and not pod_state.has_cleanup_finalizer(pod.metadata):
            # A merge patch replaces lists; its resourceVersion protects the finalizers of others.
            others = (pod.metadata.finalizers or ()) if pod.metadata.resourceVersion else ()
            body["metadata"]["finalizers"] = [*others, keys.CLEANUP_FINALIZER]
        is_hint = begins or state.phase is Phase.HINTED
        priority = CallPriority.NOTIFY if is_hint else CallPriority.RECORD
        if state.phase is Phase.TERMINATING:
            priority = self.priority_of(state)
        return replace(pod, metadata=await self._patch_pod(pod.metadata, body, priority))

    async def write_finished(
        self, pod: VictimPod, state: Eviction, *, has_room: bool = True
    ) -> VictimPod:
        """Write the last state of a pod that ended by itself, and remove our finalizer.

        Without room for the state, remove our label instead.
        """
        body = _state_patch(state) if has_room else _state_removal_patch()
        _drop_cleanup_finalizer(pod.metadata, body)
        return replace(pod, metadata=await self._patch_pod(pod.metadata, body))

    async def write_cancelled(
        self, pod: VictimPod, state: Eviction, *, has_room: bool = True
    ) -> VictimPod:
        """Remove every mark and our finalizer of a pod that stays.

        The state is kept as a record if there is room. A workload that reads the request in the
        annotation learns there that it is cancelled.
        """
        if pod_state.has_disruption_target(pod):
            pod = await self._write_condition(
                pod, {}, "False", "Reprieve: the soft eviction was cancelled"
            )
        body = _state_patch(state) if has_room else _state_removal_patch()
        body["metadata"]["labels"] = {keys.SOFT_EVICTION: None}
        if keys.KOORDINATOR_SOFT_EVICTION in labels_of(pod.metadata):
            body["metadata"]["labels"][keys.KOORDINATOR_SOFT_EVICTION] = None
        if keys.KOORDINATOR_SOFT_EVICTION in annotations_of(pod.metadata):
            body["metadata"]["annotations"][keys.KOORDINATOR_SOFT_EVICTION] = None
        if keys.PREEMPTOR in annotations_of(pod.metadata):
            # Without this, a mark that the owner sets later would be attributed to that preemptor.
            body["metadata"]["annotations"][keys.PREEMPTOR] = None
        if keys.CHECKPOINT_REQUEST in annotations_of(pod.metadata):
            body["metadata"]["annotations"][keys.CHECKPOINT_REQUEST] = contract.render_cancelled(
                state.eviction_id
            )
        _drop_cleanup_finalizer(pod.metadata, body)
        return replace(pod, metadata=await self._patch_pod(pod.metadata, body))

    async def write_disruption_target(
        self, pod: VictimPod, state: Eviction | None, *, adds_finalizer: bool = False
    ) -> VictimPod:
        """Write the state, if any, and the condition by which Jobs know a disruption."""
        metadata: Body = {} if state is None else _state_patch(state)["metadata"]
        if adds_finalizer and not pod_state.has_cleanup_finalizer(pod.metadata):
            # A strategic merge patch adds to the list.
            metadata["finalizers"] = [keys.CLEANUP_FINALIZER]
        priority = CallPriority.TERMINATE if state is None else self.priority_of(state)
        return await self._write_condition(pod, metadata, "True", _DISRUPTION_MESSAGE, priority)

    async def delete_pod(self, pod: VictimPod, state: Eviction) -> bool:
        """Delete exactly this pod with the chosen grace period; `False` if it is gone.

        The precondition on the version refuses one of two calls, the first of which was given up
        and arrives late. Without this, a slow API server would delete the pod twice.
        """
        path, options = (
            object_path("pods", pod.metadata.namespace, pod.metadata.name),
            _delete_options(pod, state),
        )
        options["preconditions"] = _preconditions(pod.metadata)
        try:
            await self._call(
                "delete", path, lambda: self._api.delete(path, options), self.priority_of(state)
            )
        except ApiError as error:
            if not error.is_not_found:
                raise
            return False
        return True

    async def evict_pod(self, pod: VictimPod, state: Eviction) -> None:
        """Delete exactly this pod if its disruption budget allows it.

        The API server sets the condition `DisruptionTarget`. Raises `ApiError` 429 if the budget
        allows no disruption now.

        Not conditional on the version: the API server counts the pod against its budget before it
        compares the version. Without this, a conflict, such as with the kubelet's next status,
        would use up the budget for two minutes.
        """
        path = object_path("pods", pod.metadata.namespace, pod.metadata.name, "eviction")
        document = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
            "deleteOptions": _delete_options(pod, state),
        }
        await self._call(
            "evict",
            path,
            lambda: self._api.post_subresource(path, document),
            self.priority_of(state),
        )

    async def remove_finalizer(self, metadata: VersionedMeta) -> VersionedMeta:
        """Remove our finalizer."""
        body: Body = {"metadata": {}}
        _drop_cleanup_finalizer(metadata, body)
        return await self._patch_pod(metadata, body)

    async def add_label(self, metadata: VersionedMeta) -> None:
        """Add our label to a pod with a mark in another dialect; the watch then sees the pod."""
        body: Body = {"metadata": {"labels": {keys.SOFT_EVICTION: mark.MARKED}}}
        await self._patch_pod(metadata, body, CallPriority.NOTIFY)

    async def mark(self, metadata: VersionedMeta, text: str, preemptor_uid: str) -> None:
        """Mark a pod for a preemptor: `text` is the mark in Koordinator's annotation."""
        annotations = {keys.KOORDINATOR_SOFT_EVICTION: text, keys.PREEMPTOR: preemptor_uid}
        body: Body = {
            "metadata": {"labels": {keys.SOFT_EVICTION: mark.MARKED}, "annotations": annotations}
        }
        await self._patch_pod(metadata, body, CallPriority.NOTIFY)

    async def remove_label(self, metadata: VersionedMeta) -> None:
        """Remove our label, the preemptor's uid, and a state that cannot be read."""
        body: Body = {
            "metadata": {
                "labels": {keys.SOFT_EVICTION: None},
                "annotations": {keys.PREEMPTOR: None},
            }
        }
        if pod_state.state_of(metadata) is None:
            body["metadata"]["annotations"][keys.EVICTION] = None
        await self._patch_pod(metadata, body)

    async def remove_gate(self, metadata: VersionedMeta, other_gates: Sequence[str] | None) -> None:
        """Remove our scheduling gate, its label and its time, and keep the gates of others.

        `None`: the gate is gone already.
        """
        body = _gate_patch(None, None)
        if other_gates is not None:
            _require_few(other_gates, "scheduling gates")
            body["spec"] = _gates(other_gates)
        await self._patch_pod(metadata, body)

    async def release_from_gate(
        self, metadata: VersionedMeta, other_gates: Sequence[str], now: datetime
    ) -> None:
        """Remove our scheduling gate, and record that the pod's gang is not placed yet."""
        _require_few(other_gates, "scheduling gates")
        body = _gate_patch(gate.RELEASED, render(now)) | {"spec": _gates(other_gates)}
        await self._patch_pod(metadata, body)

    async def request_eviction(self, metadata: VersionedMeta) -> None:
        """Mark a pod with our own label, as a user does who may delete it."""
        body: Body = {"metadata": {"labels": {keys.SOFT_EVICTION: mark.REQUESTED}}}
        await self._patch_pod(metadata, body, CallPriority.NOTIFY)

    async def delete_unscheduled(self, metadata: VersionedMeta) -> None:
        """Delete a pod that has no node, with the condition by which Jobs know a disruption.

        A pod that was bound meanwhile has another version, and is not deleted.
        """
        pod = await self._write_condition(
            VictimPod(metadata=metadata), {}, "True", _UNSCHEDULED_MESSAGE
        )
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": metadata.uid, "resourceVersion": pod.metadata.resourceVersion},
        }
        path = object_path("pods", metadata.namespace, metadata.name)
        await self._call("delete", path, lambda: self._api.delete(path, options))

    async def patch_owner(
        self,
        path: str,
        metadata: VersionedMeta,
        changes: Mapping[str, object],
        priority: CallPriority = CallPriority.TERMINATE,
    ) -> None:
        """Change the metadata of the controller that replaces a victim."""
        body = {
            "metadata": {
                **changes,
                "uid": metadata.uid,
                "resourceVersion": metadata.resourceVersion,
            }
        }
        await self._patch(path, body, MERGE_PATCH, priority)

    async def patch_job(
        self,
        path: str,
        metadata: VersionedMeta,
        changes: Mapping[str, object],
        *,
        suspend: bool | None,
    ) -> None:
        """Suspend a Job or resume it (`None`: neither), and change its metadata in one call."""
        body: Body = {
            "metadata": {
                **changes,
                "uid": metadata.uid,
                "resourceVersion": metadata.resourceVersion,
            }
        }
        if suspend is not None:
            body["spec"] = {"suspend": suspend}
        await self._patch(path, body, MERGE_PATCH)

    async def create(self, path: str, document: Mapping[str, object]) -> Body:
        """Create an object and return it."""
        return await self._call("create", path, lambda: self._api.post(path, document, Body))

    async def delete_object(self, path: str, uid: str | None = None) -> None:
        """Delete an object of ours, or, by its uid, the rest of a pod; it may be gone already."""
        options = (
            {}
            if uid is None
            else {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        )
        try:
            await self._call("delete", path, lambda: self._api.delete(path, options))
        except ApiError as error:
            if not error.is_not_found:
                raise

    async def write_conditions(
        self, path: str, metadata: VersionedMeta, conditions: Sequence[Mapping[str, object]]
    ) -> None:
        """Replace the conditions of an object, unless it has changed meanwhile."""
        precondition = {"uid": metadata.uid, "resourceVersion": metadata.resourceVersion}
        body = {"metadata": precondition, "status": {"conditions": conditions}}
        await self._patch(path, body, MERGE_PATCH)

    async def _patch_pod(
        self,
        metadata: VersionedMeta,
        body: Body,
        priority: CallPriority = CallPriority.TERMINATE,
        *,
        subresource: str = "",
    ) -> VersionedMeta:
        """Change a pod, unless it has changed meanwhile; return its metadata as they are then.

        A pod without a version has none after that, either: what else of it has changed is unknown.
        """
        _require_few(metadata.finalizers or (), "finalizers")
        changes: Body = dict(body["metadata"])
        body["metadata"] |= _preconditions(metadata)
        path = object_path("pods", metadata.namespace, metadata.name, subresource)
        # Only a strategic merge patch adds to a list, such as that of the conditions.
        merges_lists = bool(subresource) or not metadata.resourceVersion
        kind = STRATEGIC_MERGE_PATCH if merges_lists else MERGE_PATCH
        version = await self._patch(path, body, kind, priority)
        # Because of the precondition, nothing else has changed. Where an admission webhook changes
        # more, the watch shows that.
        known = version if metadata.resourceVersion else ""
        return metadata_after(metadata, changes, known, adds_to_lists=merges_lists)

    async def _patch(
        self,
        path: str,
        body: Body,
        content_type: str,
        priority: CallPriority = CallPriority.TERMINATE,
    ) -> str:
        """Change an object; return its new version."""

        async def patch() -> VersionedObject:
            return await self._api.patch(
                path,
                body,
                VersionedObject,
                content_type=content_type,
                params=WITHOUT_OBJECT,
                accept=VERSION_ONLY,
            )

        return (await self._call("patch", path, patch, priority)).metadata.resourceVersion

    async def _write_condition(
        self,
        pod: VictimPod,
        metadata: Body,
        status: str,
        message: str,
        priority: CallPriority = CallPriority.TERMINATE,
    ) -> VictimPod:
        condition = {
            "type": DISRUPTION_TARGET,
            "status": status,
            "reason": DISRUPTION_REASON,
            "message": message,
            "lastTransitionTime": render(self._clock.now().replace(microsecond=0)),
        }
        body = {"metadata": metadata, "status": {"conditions": [condition]}}
        written = await self._patch_pod(pod.metadata, body, priority, subresource="status")
        others = (
            condition
            for condition in pod.status.conditions or ()
            if condition.type != DISRUPTION_TARGET
        )
        # Without this, it would be written again until the watch shows it.
        conditions = (*others, Condition(type=DISRUPTION_TARGET, status=status))
        return replace(pod, metadata=written, status=replace(pod.status, conditions=conditions))

    async def _limited(self, verb: str, namespace: str, call: Awaitable[R]) -> R:
        """Make a call that holds a slot; the next of its namespace have fewer if it is slow."""
        try:
            result = await call
        except ApiError as error:
            if is_overload(error) and not (verb == "evict" and error.status):
                # An eviction that a disruption budget holds is refused with 429, too.
                self._call_limiter.note_overload(namespace)
            raise
        self._call_limiter.note_success(namespace)
        return result

    async def _call(
        self,
        verb: str,
        path: str,
        call: Callable[[], Awaitable[R]],
        priority: CallPriority = CallPriority.TERMINATE,
    ) -> R:
        """Make one write if this replica leads, and count its outcome."""
        namespace = _namespace_of(path)
        try:
            async with self._call_limiter.acquire(priority, namespace):
                # A call in progress is given up when the lease ends: the next leader may write.
                try:
                    async with asyncio.timeout(self._leader_election.require_leadership()):
                        result = await self._limited(verb, namespace, call())
                except TimeoutError:
                    self._call_limiter.note_overload(namespace)
                    raise
        except TimeoutError as error:
            self._metrics.api_calls.labels(verb, "unreachable").inc()
            raise ApiError(0, "LeaseOver", "no answer before the lease could have ended") from error
        except ApiError as error:
            self._metrics.api_calls.labels(verb, str(error.status or "unreachable")).inc()
            raise
        self._metrics.api_calls.labels(verb, "ok").inc()
        return result


def _namespace_of(path: str) -> str:
    return path.partition("/namespaces/")[2].partition("/")[0]


def _delete_options(pod: VictimPod, state: Eviction) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": state.grace_seconds,
        "preconditions": {"uid": pod.metadata.uid},
    }


def _preconditions(metadata: VersionedMeta) -> Body:
    version = {"resourceVersion": metadata.resourceVersion} if metadata.resourceVersion else {}
    return {"uid": metadata.uid, **version}


def _state_patch(state: Eviction) -> Body:
    annotations: Body = {keys.EVICTION: eviction.render(state)}
    if state.checkpoint is not None:
        annotations[keys.LAST_CHECKPOINT_AT] = render(state.checkpoint.saved_at)
    return {
        "metadata": {"labels": {keys.SOFT_EVICTION: state.phase.value}, "annotations": annotations}
    }


def _gate_patch(label: str | None, released_at: str | None) -> Body:
    return {
        "metadata": {
            "labels": {keys.GANG_GATE_LABEL: label},
            "annotations": {keys.GANG_RELEASED_AT: released_at},
        }
    }


def _require_few(entries: Sequence[str], what: str) -> None:
    """Raise an `ApiError` if not all may be kept: a list without the others would remove these."""
    if len(entries) > MAX_ENTRIES:
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        raise ApiError(status, "TooManyEntries", f"more than {MAX_ENTRIES} {what}")


def _gates(names: Sequence[str]) -> Body:
    # A merge patch replaces lists; its resourceVersion protects the gates of others.
    return {"schedulingGates": [{"name": name} for name in names]}


def _state_removal_patch() -> Body:
    return {
        "metadata": {"labels": {keys.SOFT_EVICTION: None}, "annotations": {keys.EVICTION: None}}
    }


def _drop_cleanup_finalizer(metadata: VersionedMeta, body: Body) -> None:
    if not pod_state.has_cleanup_finalizer(metadata):
        return
    if not metadata.resourceVersion:
        body["metadata"][FINALIZERS_REMOVED] = [keys.CLEANUP_FINALIZER]
    else:
        # A merge patch replaces lists; its resourceVersion protects the finalizers of others.
        body["metadata"]["finalizers"] = list(metadata.finalizers or ())
        body["metadata"]["finalizers"].remove(keys.CLEANUP_FINALIZER)
