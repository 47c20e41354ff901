"""Reads the Events of earlier leaders, so that the page `/ui` shows their steps after a failover.

Nothing is stored for this: the API server keeps Events for an hour, unless it is configured
otherwise. A user who may write Events may write some that look like ours. So no total is counted
from them, and the page says which steps are from Events.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping

from reprieve_policy.kube.names import is_object_name
from reprieve_policy.kube.pod_events import SELECTOR, PodEvent
from reprieve_policy.kube.values import timestamp
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

from .cluster.event_recorder import REASONS
from .history import MAX_NOTE, History, PastStep, PastSteps, Step, is_of_victim

_log = logging.getLogger(__name__)

_MAX_EVENTS = 20_000
"""Events that are read: a few seconds of one list, in pages."""
_MAX_OF_NAMESPACE = 2_000
"""The newest of each Namespace. Without this, one that writes many could push out all others."""
_MAX_UID = 64
"""Characters of a uid; the API server's own have 36."""


async def read_past_steps(api: Api, history: History) -> None:
    """Add the steps of earlier leaders to the history, once: a list that fails is not repeated."""
    by_namespace: Mapping[str, list[PastStep]] = defaultdict(list)
    known, count = PastSteps.READ, 0
    pages = api.list_pages(
        object_path("events"),
        PodEvent,
        params={"fieldSelector": SELECTOR},
    )
    try:
        async for events, _ in pages:
            for event in events:
                count += 1
                if (step := _step_in(event)) is not None:
                    by_namespace[step.namespace].append(step)
            if count >= _MAX_EVENTS:
                known = PastSteps.PARTLY
                break
    except ApiError as error:
        # What was read until then counts. Without this, a cluster with very many Events would list
        # them again and again.
        known = PastSteps.FORBIDDEN if error.is_forbidden else PastSteps.PARTLY
        _log.info("could not read earlier Events for the page /ui", extra={"error": str(error)})
    newest = [step for steps in by_namespace.values() for step in _newest(steps)]
    history.add_past(newest, known)


def _step_in(event: PodEvent) -> PastStep | None:
    """Return the step of a victim that the Event tells of, if it tells of one."""
    at, pod = timestamp.parse(event.eventTime), event.regarding
    # A user who may write Events could write a megabyte as a name or uid.
    is_named = is_object_name(pod.name) and 0 < len(pod.uid) <= _MAX_UID
    is_named = is_named and pod.namespace == event.metadata.namespace
    if at is None or not is_named or event.reason not in REASONS or not is_of_victim(event.reason):
        return None
    step = Step(at, event.reason, event.note[:MAX_NOTE], is_from_event=True)
    return PastStep(pod.namespace, pod.name, pod.uid, step)


def _newest(steps: list[PastStep]) -> list[PastStep]:
    return sorted(steps, key=lambda each: each.step.at)[-_MAX_OF_NAMESPACE:]
