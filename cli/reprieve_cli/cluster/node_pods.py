"""Reads the pods of a node, and the members of their gangs on other nodes."""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from reprieve_policy.gangs import disruption, membership
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.kube.pods import Pod, has_ended
from reprieve_policy.preemption.reclaim import NodePod
from reprieve_runtime.client.api import Api, PartialObjectMetadata
from reprieve_runtime.client.paths import object_path

from . import victims
from .pods import PodContext

_Gang = tuple[str, str]
"""Namespace and identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimCandidate:
    """A pod on the node; if its gang is evicted as a unit, also the other members."""

    pod: Pod
    node_pod: NodePod
    gang: str = ""
    other_members: Sequence[NodePod] = ()


async def read_candidates(
    api: Api, context: PodContext, node: str, now: datetime
) -> list[ReclaimCandidate]:
    """Return all active pods of a node; raises `ApiError`."""
    pods = [
        pod async for pod in list_active_pods(api, None, {"fieldSelector": f"spec.nodeName={node}"})
    ]
    gangs = [await _gang_of(context, pod) for pod in pods]
    members = await _members(api, context, {found for found in gangs if found is not None}, now)
    candidates = []
    for pod, found in zip(pods, gangs, strict=True):
        others = (
            [other for other in members[found] if other.metadata.uid != pod.metadata.uid]
            if found
            else ()
        )
        candidates.append(
            ReclaimCandidate(
                pod=pod,
                node_pod=await _node_pod(context, pod, now),
                gang=found[1] if found else "",
                other_members=others,
            )
        )
    return candidates


async def _members(
    api: Api, context: PodContext, gangs: set[_Gang], now: datetime
) -> Mapping[_Gang, Sequence[NodePod]]:
    """Return the pods of the gangs on all nodes.

    Reads all pods of their namespaces: not every dialect has a label to select a gang by.
    """
    members = defaultdict[_Gang, list[NodePod]](list)
    for namespace in {namespace for namespace, _ in gangs}:
        async for pod in list_active_pods(api, namespace, {}):
            gang = await _gang_of(context, pod)
            if gang in gangs:
                members[gang].append(await _node_pod(context, pod, now))
    return members


async def list_active_pods(
    api: Api, namespace: str | None, params: Mapping[str, str]
) -> AsyncIterator[Pod]:
    """Yield the pods that have not ended; raises `ApiError`."""
    async for page, _ in api.list_pages(object_path("pods", namespace), Pod, params=params):
        for pod in page:
            if not has_ended(pod):
                yield pod


async def _gang_of(context: PodContext, pod: Pod) -> _Gang | None:
    """Return the pod's gang if it is evicted as a unit, else `None`."""
    found = membership.read(pod.view)
    if found is None or await context.mode_of(pod, found) is not DisruptionMode.ALL:
        return None
    return pod.metadata.namespace or "", disruption.identity_of(found)


async def _node_pod(context: PodContext, pod: Pod, now: datetime) -> NodePod:
    victim = victims.read(PartialObjectMetadata(metadata=pod.metadata))
    is_victim = victim.state is not None and not victim.is_finished
    return NodePod(
        metadata=pod.metadata,
        view=pod.view,
        walltime=await context.walltime_of(pod, now),
        is_leaving=is_victim or pod.metadata.deletionTimestamp is not None,
    )
