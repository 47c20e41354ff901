"""Reads the pod of an event of kopf into the terms of `reprieve_policy`. No I/O."""

from collections.abc import Iterable, Mapping
from typing import Any

from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.cleanup import CleanedPod
from reprieve_policy.lifecycle.eviction import Eviction

Body = Mapping[str, Any]

_ENDED = ("Succeeded", "Failed")


def read(body: Body, finalizer: str) -> CleanedPod:
    """Return the pod as the cleaner with this finalizer sees it."""
    metadata = body.get("metadata", {})
    plan = checkpoint_plan.read_leniently(_annotations(body), PolicySettings())
    return CleanedPod(
        has_finalizer=finalizer in (metadata.get("finalizers") or ()),
        names_cleaner=finalizer in plan.cleaners_before,
        is_being_deleted=metadata.get("deletionTimestamp") is not None,
        has_ended=metadata.get("deletionGracePeriodSeconds") == 0 or have_containers_ended(body),
        eviction=eviction_of(body),
    )


def eviction_of(body: Body) -> Eviction | None:
    """Return the state of the pod's eviction; `None` if Reprieve does not evict it."""
    text = _annotations(body).get(keys.EVICTION)
    return None if text is None else eviction.parse(text)


def have_containers_ended(body: Body) -> bool:
    """True if no container runs or will run: all have ended, or the pod never got a node.

    A native sidecar (an init container that is restarted always) ends after the other containers.
    """
    status = body.get("status") or {}
    phase = status.get("phase")
    if phase in _ENDED or (phase == "Pending" and not body.get("spec", {}).get("nodeName")):
        return True
    states = _states(status, "containerStatuses")
    have_main_ended = bool(states) and all("terminated" in state for state in states)
    others = _states(status, "initContainerStatuses", "ephemeralContainerStatuses")
    return have_main_ended and not any("running" in state for state in others)


def _states(status: Body, *fields: str) -> list[Body]:
    found: Iterable[Body] = (each for name in fields for each in status.get(name) or ())
    return [container.get("state") or {} for container in found]


def _annotations(body: Body) -> Mapping[str, str]:
    return body.get("metadata", {}).get("annotations") or {}
