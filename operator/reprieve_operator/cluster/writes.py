"""Every write to a victim. Each is fenced (only the leader), conditional (uid, mostly resourceVersion) and repeatable.

A conflict says that what was decided on is no longer so: it comes out as `ApiError` 409, and the caller looks again.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from reprieve_operator.clock import Clock
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy import keys
from reprieve_policy.checkpointing import contract
from reprieve_policy.checkpointing.contract import CheckpointRequest
from reprieve_policy.kube.objects import annotations_of, labels_of
from reprieve_policy.kube.timestamp import render
from reprieve_policy.lifecycle import eviction, mark
from reprieve_policy.lifecycle.eviction import Eviction
from reprieve_runtime.client.api import (
    MERGE_PATCH,
    METADATA_ONLY,
    STRATEGIC_MERGE_PATCH,
    Api,
    ApiError,
    Params,
)
from reprieve_runtime.client.paths import object_path

from . import pod_state
from .call_limiter import CallLimiter, CallPriority
from .leader_election import LeaderElection
from .pods import Condition, VersionedMeta, VersionedObject, VictimPod

DISRUPTION_REASON = "PreemptionByReprieve"
_DISRUPTION_MESSAGE = "Reprieve: soft-evicted after notice"
_NOT_FOUND = 404
_PAGE = 50
"""Objects asked for at once: a page is in memory whole."""

Body = dict[str, Any]
R = TypeVar("R")


class Writes:
    """What the operator does to the cluster."""

    def __init__(
        self,
        api: Api,
        call_limiter: CallLimiter,
        leader_election: LeaderElection,
        metrics: OperatorMetrics,
        clock: Clock,
    ) -> None:
        self._api = api
        self._leader_election = leader_election
        self._metrics = metrics
        self._clock = clock
        self._call_limiter = call_limiter

    @property
    def is_busy(self) -> bool:
        """True in a burst, in which a write that can be left out is better left out."""
        return self._call_limiter.is_busy

    async def read_pod(
        self, namespace: str, name: str, uid: str, priority: CallPriority = CallPriority.RECORD
    ) -> VictimPod | None:
        """Return the pod, `None` where it is gone or another of the same name has taken its place."""
        pod = await self.get(object_path("pods", namespace, name), VictimPod, priority)
        return pod if pod is not None and pod.metadata.uid == uid else None

    async def get(
        self, path: str, kind: type[R], priority: CallPriority = CallPriority.RECORD
    ) -> R | None:
        """Return any object, `None` where it is not there."""
        try:
            async with self._call_limiter.acquire(priority, _namespace_of(path)):
                found = await self._api.get(path, kind)
        except ApiError as error:
            self._metrics.api_calls.labels("get", str(error.status or "unreachable")).inc()
            if error.status == _NOT_FOUND:
                return None
            raise
        self._metrics.api_calls.labels("get", "ok").inc()
        return found

    async def list_pages(
        self, path: str, kind: type[R], *, params: Params | None = None, metadata_only: bool = False
    ) -> AsyncIterator[list[R]]:
        """Yield a collection in small pages: each object may bring 256 KiB of annotations. Raises `ApiError`."""
        pages = self._api.list_pages(
            path, kind, params=params, metadata_only=metadata_only, limit=_PAGE
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
        hold: bool = False,
    ) -> VictimPod:
        """Write label and state in one step, with the request where an annotation carries it."""
        body = _state_patch(state)
        if request is not None:
            body["metadata"]["annotations"][keys.CHECKPOINT_REQUEST] = contract.render_request(
                request
            )
        if begins:
            # An answer to an earlier request must not pass for one to this.
            body["metadata"]["annotations"][keys.CHECKPOINT_ANSWER] = None
            if hold and not pod_state.has_cleanup_finalizer(pod.metadata):
                body["metadata"]["finalizers"] = [
                    *(pod.metadata.finalizers or ()),
                    keys.CLEANUP_FINALIZER,
                ]
        urgency = CallPriority.NOTIFY if begins else CallPriority.RECORD
        return replace(pod, metadata=await self._patch_pod(pod.metadata, body, urgency))

    async def write_finished(
        self, pod: VictimPod, state: Eviction, *, has_room: bool = True
    ) -> VictimPod:
        """Write the last state of a pod that ended by itself, or, without room, take our label away; let go of it."""
        body = _state_patch(state) if has_room else _state_removal_patch()
        _drop_cleanup_finalizer(pod.metadata, body)
        return replace(pod, metadata=await self._patch_pod(pod.metadata, body))

    async def write_cancelled(
        self, pod: VictimPod, state: Eviction, *, has_room: bool = True
    ) -> VictimPod:
        """Take every mark away, keep the state as a record where there is room, tell a workload that reads it, let go."""
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
            # Without this, a mark that its owner sets later would be that preemptor's.
            body["metadata"]["annotations"][keys.PREEMPTOR] = None
        if keys.EVICTION_REQUEST in annotations_of(pod.metadata):
            body["metadata"]["annotations"][keys.EVICTION_REQUEST] = None
        if keys.CHECKPOINT_REQUEST in annotations_of(pod.metadata):
            body["metadata"]["annotations"][keys.CHECKPOINT_REQUEST] = contract.render_cancelled(
                state.eviction_id
            )
        _drop_cleanup_finalizer(pod.metadata, body)
        return replace(pod, metadata=await self._patch_pod(pod.metadata, body))

    async def write_disruption_target(self, pod: VictimPod, state: Eviction | None) -> VictimPod:
        """Write the state, where there is room for one, and the condition that Jobs read as "not the pod's fault"."""
        metadata = {} if state is None else _state_patch(state)["metadata"]
        return await self._write_condition(pod, metadata, "True", _DISRUPTION_MESSAGE)

    async def delete_pod(self, pod: VictimPod, state: Eviction) -> bool:
        """Delete this very pod with the grace that was chosen; `False` where it is gone.

        At this very version: of two calls, the first of which was given up and lands late, one is refused. Without this, a slow
        API server would have the pod deleted twice.
        """
        path, options = (
            object_path("pods", pod.metadata.namespace, pod.metadata.name),
            _delete_options(pod, state),
        )
        options["preconditions"]["resourceVersion"] = pod.metadata.resourceVersion
        try:
            await self._call("delete", path, lambda: self._api.delete(path, options))
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            return False
        return True

    async def evict_pod(self, pod: VictimPod, state: Eviction) -> None:
        """Delete this very pod as far as its disruption budget allows; the API server announces the disruption.

        Raises `ApiError` 429 where the budget allows none now.
        """
        path = object_path("pods", pod.metadata.namespace, pod.metadata.name, "eviction")
        document = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
            "deleteOptions": _delete_options(pod, state),
        }
        await self._call("evict", path, lambda: self._api.post_subresource(path, document))

    async def remove_finalizer(self, metadata: VersionedMeta) -> VersionedMeta:
        """Remove our finalizer; the object may go as far as we are concerned."""
        body: Body = {"metadata": {}}
        _drop_cleanup_finalizer(metadata, body)
        return await self._patch_pod(metadata, body)

    async def add_label(
        self, metadata: VersionedMeta, request: str | None = None, label: str = mark.MARKED
    ) -> None:
        """Give a mark in another dialect our label; `request`: with that, a native Eviction's. The watch takes it from there."""
        body: Body = {"metadata": {"labels": {keys.SOFT_EVICTION: label}}}
        if request is not None:
            body["metadata"]["annotations"] = {keys.EVICTION_REQUEST: request}
        await self._patch_pod(metadata, body, CallPriority.NOTIFY)

    async def remove_eviction_request(self, metadata: VersionedMeta) -> None:
        """Take a native Eviction's mark away; the pod's keeper does the rest."""
        await self._patch_pod(
            metadata, {"metadata": {"annotations": {keys.EVICTION_REQUEST: None}}}
        )

    async def remove_label(self, metadata: VersionedMeta) -> None:
        """Take our label away, for whom the pod was to go, and a state that cannot be read."""
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
        """Take our gate and its label from a pod, and leave the gates of others; `None`: the gate is gone already."""
        body: Body = {"metadata": {"labels": {keys.GANG_GATE_LABEL: None}}}
        if other_gates is not None:
            # A merge patch replaces lists; the resourceVersion in it keeps others' gates safe.
            body["spec"] = {"schedulingGates": [{"name": name} for name in other_gates]}
        await self._patch_pod(metadata, body)

    async def patch_owner(
        self, path: str, metadata: VersionedMeta, changes: Mapping[str, object]
    ) -> None:
        """Change the metadata of the controller that will replace a victim."""
        body = {
            "metadata": {
                **changes,
                "uid": metadata.uid,
                "resourceVersion": metadata.resourceVersion,
            }
        }
        await self._call(
            "patch", path, lambda: self._api.patch(path, body, dict, content_type=MERGE_PATCH)
        )

    async def patch_job(
        self,
        path: str,
        metadata: VersionedMeta,
        changes: Mapping[str, object],
        *,
        suspend: bool | None,
    ) -> None:
        """Suspend a Job or resume it (`None`: neither), and write in the same step what is kept on it."""
        body: Body = {
            "metadata": {
                **changes,
                "uid": metadata.uid,
                "resourceVersion": metadata.resourceVersion,
            }
        }
        if suspend is not None:
            body["spec"] = {"suspend": suspend}
        await self._call(
            "patch", path, lambda: self._api.patch(path, body, dict, content_type=MERGE_PATCH)
        )

    async def create(self, path: str, document: Mapping[str, object]) -> Body:
        """Create an object and return it."""
        return await self._call("create", path, lambda: self._api.post(path, document, Body))

    async def delete_object(self, path: str, uid: str | None = None) -> None:
        """Delete an object of our own, or, by its uid, what is left of a pod; that it is gone already is as good."""
        options = (
            {}
            if uid is None
            else {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        )
        try:
            await self._call("delete", path, lambda: self._api.delete(path, options))
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise

    async def write_conditions(
        self, path: str, metadata: VersionedMeta, conditions: list[Body]
    ) -> None:
        """Replace the conditions of an object that nobody has changed meanwhile."""
        precondition = {"uid": metadata.uid, "resourceVersion": metadata.resourceVersion}
        body = {"metadata": precondition, "status": {"conditions": conditions}}
        await self._call(
            "patch", path, lambda: self._api.patch(path, body, dict, content_type=MERGE_PATCH)
        )

    async def write_responder_status(
        self, path: str, metadata: VersionedMeta, responder_status: Body, kind: type[R]
    ) -> R:
        """Write what a responder says into the status of a native Eviction; other responders' parts stay."""
        precondition = {"uid": metadata.uid, "resourceVersion": metadata.resourceVersion}
        body = {"metadata": precondition, "status": {"responders": [responder_status]}}

        async def patch() -> R:
            return await self._api.patch(path, body, kind, content_type=STRATEGIC_MERGE_PATCH)

        return await self._call("patch", path, patch, CallPriority.RECORD)

    async def _patch_pod(
        self,
        metadata: VersionedMeta,
        body: Body,
        priority: CallPriority = CallPriority.TERMINATE,
        *,
        subresource: str = "",
    ) -> VersionedMeta:
        """Change a pod that nobody has changed meanwhile. All but the metadata is then as it was: it is not asked for."""
        body["metadata"] |= {"uid": metadata.uid, "resourceVersion": metadata.resourceVersion}
        path = object_path("pods", metadata.namespace, metadata.name, subresource)
        # Only a strategic merge adds to a list of conditions.
        kind = STRATEGIC_MERGE_PATCH if subresource else MERGE_PATCH

        async def patch() -> VersionedObject:
            return await self._api.patch(
                path, body, VersionedObject, content_type=kind, accept=METADATA_ONLY
            )

        return (await self._call("patch", path, patch, priority)).metadata

    async def _write_condition(
        self, pod: VictimPod, metadata: Body, status: str, message: str
    ) -> VictimPod:
        condition = {
            "type": pod_state.DISRUPTION_TARGET,
            "status": status,
            "reason": DISRUPTION_REASON,
            "message": message,
            "lastTransitionTime": render(self._clock.now().replace(microsecond=0)),
        }
        body = {"metadata": metadata, "status": {"conditions": [condition]}}
        written = await self._patch_pod(pod.metadata, body, subresource="status")
        others = (
            one for one in pod.status.conditions or () if one.type != pod_state.DISRUPTION_TARGET
        )
        # Without this, it would be written again until the watch tells of it.
        conditions = (*others, Condition(type=pod_state.DISRUPTION_TARGET, status=status))
        return replace(pod, metadata=written, status=replace(pod.status, conditions=conditions))

    async def _call(
        self,
        verb: str,
        path: str,
        call: Callable[[], Awaitable[R]],
        priority: CallPriority = CallPriority.TERMINATE,
    ) -> R:
        """Make one write, if this replica may, and count what came of it."""
        try:
            async with self._call_limiter.acquire(priority, _namespace_of(path)):
                # A call under way as the lease ends is given up: the next leader may be writing already.
                async with asyncio.timeout(self._leader_election.require_leadership()):
                    result = await call()
        except TimeoutError as error:
            self._metrics.api_calls.labels(verb, "unreachable").inc()
            raise ApiError(
                0, "LeaseOver", "not answered for as long as the lease was certain"
            ) from error
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


def _state_patch(state: Eviction) -> Body:
    annotations: Body = {keys.EVICTION: eviction.render(state)}
    if state.checkpoint is not None:
        annotations[keys.LAST_CHECKPOINT_AT] = render(state.checkpoint.saved_at)
    return {
        "metadata": {"labels": {keys.SOFT_EVICTION: state.phase.value}, "annotations": annotations}
    }


def _state_removal_patch() -> Body:
    return {
        "metadata": {"labels": {keys.SOFT_EVICTION: None}, "annotations": {keys.EVICTION: None}}
    }


def _drop_cleanup_finalizer(metadata: VersionedMeta, body: Body) -> None:
    if pod_state.has_cleanup_finalizer(metadata):
        # A merge patch replaces lists; the resourceVersion in it keeps others' finalizers safe.
        body["metadata"]["finalizers"] = list(metadata.finalizers or ())
        body["metadata"]["finalizers"].remove(keys.CLEANUP_FINALIZER)
