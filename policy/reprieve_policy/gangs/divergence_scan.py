"""Which gangs do not agree, told from all pods one after another: one record a gang, and none of a pod.

Admission refuses what it sees; this finds what it could not see (document 003, "priority divergence"). Batch Jobs are
left out: their pods are all of one template.
"""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from reprieve_policy.facts import Facts
from reprieve_policy.kube.objects import PodView
from reprieve_policy.traits import GangTraits

from . import divergence, membership
from .membership import Gang

T = TypeVar("T")
GangIdentity = tuple[str, str]
"""What tells a gang from the others of its namespace."""


@dataclass(slots=True)
class DivergenceRecord(Generic[T]):
    """What is known of one gang so far."""

    gang: Gang
    traits: GangTraits
    """Of the first of its pods."""
    differing: set[str] = field(default_factory=set)
    """Names of the traits in which another pod differs from the first."""
    first_differing_pod: T | None = None
    """The first pod that differs."""
    priority_mismatches: int = 0
    """Pods of another priority than the group's, where the API server knows the group."""


class DivergenceScan(Generic[T]):
    """The gangs of one namespace. `T` is whatever tells the caller which pod it was."""

    def __init__(self, priorities: dict[str, int] | None = None) -> None:
        """Take the priorities of native groups by name, as far as they have one."""
        self.gangs: dict[GangIdentity, DivergenceRecord[T]] = {}
        self._priorities = priorities or {}

    def add_pod(self, pod: T, view: PodView, facts: Facts) -> None:
        """Take in one living pod."""
        found = membership.read(view)
        if found is None or found.is_batch_job:
            return
        traits = divergence.traits_of(view, found, facts)
        entry = self.gangs.setdefault(found.key, DivergenceRecord(found, traits))
        differing = set(divergence.differences(traits, entry.traits))
        if differing and entry.first_differing_pod is None:
            entry.first_differing_pod = pod
        entry.differing |= differing
        entry.priority_mismatches += found.is_native and traits.priority != self._priorities.get(
            found.name, traits.priority
        )


def is_gang_member(view: PodView) -> bool:
    """True where the metadata of a pod says that it is in a gang; a native group stands in its spec."""
    found = membership.read(view)
    return found is not None and not found.is_batch_job
