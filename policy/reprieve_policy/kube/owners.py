"""Who makes a victim's replacement, and whose metadata holds what that inherits: something that outlives the victim.

A pod's own controller, unless that is made anew as a part of something larger: a JobSet restarts by deleting its Jobs, a
LeaderWorkerSet by deleting a leader pod, which takes the StatefulSet of its workers along. A Deployment is not in the
table: it replaces a ReplicaSet only by another version. A DaemonSet's pod comes back on its own node, where it was.
"""

from collections.abc import Mapping
from typing import NamedTuple

from .objects import OwnerReference

CORE = ""
MOST_LINKS = 3
"""From a LeaderWorkerSet's worker: its StatefulSet, the leader pod, the StatefulSet of the leaders."""


class Owner(NamedTuple):
    """A kind whose metadata holds a ledger: its API group, and the resource under which it is served."""

    group: str
    resource: str
    is_whole: bool = False
    """It makes controllers, and makes them anew; of another project, so it may not be installed."""


OWNERS: Mapping[str, Owner] = {
    "Job": Owner("batch", "jobs"),
    "StatefulSet": Owner("apps", "statefulsets"),
    "ReplicaSet": Owner("apps", "replicasets"),
    "JobSet": Owner("jobset.x-k8s.io", "jobsets", is_whole=True),
    "LeaderWorkerSet": Owner("leaderworkerset.x-k8s.io", "leaderworkersets", is_whole=True),
}
"""By kind; no two groups' kinds in it share a name."""


class Link(NamedTuple):
    """A kind that may be a part of something: its API group and resource, and the kinds that its controller may be."""

    group: str
    resource: str
    parents: tuple[str, ...]


_LINKS: Mapping[str, Link] = {
    "Job": Link("batch", "jobs", ("JobSet",)),
    "StatefulSet": Link("apps", "statefulsets", ("LeaderWorkerSet", "Pod")),
    "Pod": Link(CORE, "pods", ("StatefulSet",)),
}


def owner_of(reference: OwnerReference | None) -> Owner | None:
    """Return the row of a controller that holds a ledger; `None` for any other, also for a namesake of another group."""
    row = OWNERS.get(reference.kind) if reference is not None else None
    return row if row is not None and reference is not None and _group(reference) == row.group else None


def link_of(reference: OwnerReference) -> Link | None:
    """Return the row of an object that may be a part of something: who its controller is has to be looked at."""
    row = _LINKS.get(reference.kind)
    return row if row is not None and _group(reference) == row.group else None


def is_made_by(reference: OwnerReference, controller: OwnerReference) -> bool:
    """True where objects like the one that `reference` names are made by ones like `controller`."""
    row, known = link_of(reference), link_of(controller) or owner_of(controller)
    return row is not None and known is not None and controller.kind in row.parents


def _group(reference: OwnerReference) -> str:
    group, slash, _ = reference.apiVersion.rpartition("/")
    return group if slash else CORE
