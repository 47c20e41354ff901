"""The steps of victims, as the operator's Events have them: what was asked, what was answered."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus

from reprieve_policy.kube.pod_events import SELECTOR, PodEvent
from reprieve_policy.kube.values import timestamp
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

_LOG = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_FORBIDDEN = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_PARAMS = {"fieldSelector": SELECTOR}


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimStep:
    """One Event of the operator about a pod."""

    at: datetime
    namespace: str
    name: str
    uid: str
    reason: str
    note: str


async def list_steps(api: Api, namespace: str | None) -> Mapping[str, Sequence[VictimStep]]:
    """Return the steps that the API server has, by the pod's uid, oldest first.

    Raises `ApiError`.
    """
    steps, _ = await _list(api, namespace)
    return steps


async def follow(
    api: Api, namespace: str | None, known: Mapping[str, Sequence[VictimStep]]
) -> AsyncIterator[VictimStep]:
    """Yield each step that is not known, without an end.

    Retries if the API server becomes unreachable. Raises `ApiError` if it forbids the request.
    """
    seen = {_key_of(step) for steps in known.values() for step in steps}
    while True:
        try:
            listed, version = await _list(api, namespace)
            every = [step for steps in listed.values() for step in steps]
            for step in sorted(every, key=lambda each: each.at):
                if _key_of(step) not in seen:
                    yield step
            # Without those that the API server no longer has.
            seen = {_key_of(step) for step in every}
            async for event in api.watch(
                object_path("events", namespace), PodEvent, resource_version=version, params=_PARAMS
            ):
                made = _step_of(event.object) if event.type == "ADDED" else None
                if made is not None and _key_of(made) not in seen:
                    seen.add(_key_of(made))
                    yield made
        except ApiError as error:
            if error.status in _FORBIDDEN:
                raise
            _LOG.debug("watch of Events interrupted; listing again", extra={"error": str(error)})
            if error.status != HTTPStatus.GONE:
                await asyncio.sleep(_RETRY_SECONDS)


async def _list(api: Api, namespace: str | None) -> tuple[dict[str, list[VictimStep]], str]:
    found: dict[str, list[VictimStep]] = defaultdict(list)
    version = ""
    pages = api.list_pages(object_path("events", namespace), PodEvent, params=_PARAMS)
    async for events, page_version in pages:
        version = page_version
        for step in filter(None, map(_step_of, events)):
            found[step.uid].append(step)
    for steps in found.values():
        steps.sort(key=lambda each: each.at)
    return found, version


def _step_of(event: PodEvent) -> VictimStep | None:
    at, pod = timestamp.parse(event.eventTime), event.regarding
    if at is None or not pod.uid:
        return None
    return VictimStep(
        at=at,
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        reason=event.reason,
        note=event.note,
    )


def _key_of(step: VictimStep) -> tuple[str, datetime, str]:
    return step.uid, step.at, step.reason
