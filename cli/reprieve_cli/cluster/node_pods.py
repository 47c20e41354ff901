"""Who is on a node, and who would have to go with them: read of a cluster, however many pods it has elsewhere."""

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from reprieve_policy.gangs import disruption, membership
from reprieve_policy.gangs.disruption import Mode
from reprieve_policy.preemption.reclaim import Lodger
from reprieve_runtime.client.api import Api, PartialObject
from reprieve_runtime.client.paths import object_path

from . import victims
from .pods import PodContext, Timed

_Gang = tuple[str, str]
"""Namespace and identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """A pod on the node, and the others of its gang where that goes as a whole."""

    pod: Timed
    lodger: Lodger
    gang: str = ""
    others: Sequence[Lodger] = ()


async def read_parties(api: Api, context: PodContext, node: str, now: datetime) -> list[Party]:
    """Return all that have room on a node; raises `ApiError`."""
    pods = [pod async for pod in living(api, None, {"fieldSelector": f"spec.nodeName={node}"})]
    gangs = [await _gang_of(context, pod) for pod in pods]
    members = await _members(api, context, {found for found in gangs if found is not None}, now)
    parties = []
    for pod, found in zip(pods, gangs, strict=True):
        others = [other for other in members[found] if other.metadata.uid != pod.metadata.uid] if found else ()
        lodger = await _lodger(context, pod, now)
        parties.append(Party(pod=pod, lodger=lodger, gang=found[1] if found else "", others=others))
    return parties


async def _members(api: Api, context: PodContext, gangs: set[_Gang], now: datetime) -> Mapping[_Gang, Sequence[Lodger]]:
    """Return the pods of some gangs, wherever they run: not every dialect has a label to select them by."""
    found = defaultdict[_Gang, list[Lodger]](list)
    for namespace in {namespace for namespace, _ in gangs}:
        async for pod in living(api, namespace, {}):
            its_gang = await _gang_of(context, pod)
            if its_gang in gangs:
                found[its_gang].append(await _lodger(context, pod, now))
    return found


async def living(api: Api, namespace: str | None, params: Mapping[str, str]) -> AsyncIterator[Timed]:
    """Yield the pods that have not ended; raises `ApiError`."""
    async for page, _ in api.pages(object_path("pods", namespace), Timed, params=params):
        for pod in page:
            if not pod.has_ended:
                yield pod


async def _gang_of(context: PodContext, pod: Timed) -> _Gang | None:
    """Return the gang that the pod goes with as a whole."""
    found = membership.read(pod.view)
    if found is None or await context.mode_of(pod, found) is not Mode.ALL:
        return None
    return pod.metadata.namespace or "", disruption.identity_of(found)


async def _lodger(context: PodContext, pod: Timed, now: datetime) -> Lodger:
    victim = victims.read(PartialObject(metadata=pod.metadata))
    is_victim = victim.state is not None and not victim.is_over
    return Lodger(
        metadata=pod.metadata,
        view=pod.view,
        walltime=await context.walltime_of(pod, now),
        is_going=is_victim or pod.metadata.deletionTimestamp is not None,
    )
