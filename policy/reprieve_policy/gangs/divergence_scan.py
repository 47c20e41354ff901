"""Which gangs diverge, found by scanning all pods: one record for each gang, none for a pod.

Admission refuses what it sees. This finds what admission could not see (document 003, "priority
divergence"). Batch Jobs are left out: their pods have one template.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from reprieve_policy.facts import Facts, GangTraits
from reprieve_policy.kube.objects import PodView

from . import divergence, membership
from .membership import Gang

T = TypeVar("T")
GangIdentity = tuple[str, str]
"""What identifies a gang in its namespace."""


@dataclass(slots=True)
class DivergenceRecord(Generic[T]):
    """What is known of one gang so far."""

    gang: Gang
    traits: GangTraits
    """The traits of its first pod."""
    differing: set[str] = field(default_factory=set)
    """Names of the traits in which another pod differs from the first."""
    first_differing_pod: T | None = None
    """The first pod that differs."""
    priority_mismatches: int = 0
    """Pods with another priority than the group's, if the API server knows the group."""


class DivergenceScan(Generic[T]):
    """The gangs of one namespace. `T` is the caller's own reference to a pod."""

    def __init__(self, priorities: dict[str, int] | None = None) -> None:
        """Take the priorities of native groups by name, of those that have one."""
        self.gangs: dict[GangIdentity, DivergenceRecord[T]] = {}
        self._priorities = priorities or {}

    def add_pod(self, pod: T, view: PodView, facts: Facts) -> None:
        """Add one live pod."""
        gang = membership.read(view)
        if gang is None or gang.is_batch_job:
            return
        traits = divergence.traits_of(view, gang, facts)
        entry = self.gangs.setdefault(gang.key, DivergenceRecord(gang, traits))
        differing = set(divergence.differences(traits, entry.traits))
        if differing and entry.first_differing_pod is None:
            entry.first_differing_pod = pod
        entry.differing |= differing
        entry.priority_mismatches += gang.is_native and traits.priority != self._priorities.get(
            gang.name, traits.priority
        )


def is_gang_member(view: PodView) -> bool:
    """True if a pod's metadata states that it is in a gang; a native group is in its spec."""
    gang = membership.read(view)
    return gang is not None and not gang.is_batch_job
