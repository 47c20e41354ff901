"""Who makes a victim's replacement, and whose metadata holds what that inherits: something that outlives the victim.

A pod's own controller, unless that is made anew as a part of something larger: a JobSet restarts by deleting its Jobs, a
LeaderWorkerSet by deleting a leader pod, which takes the StatefulSet of its workers along. A Deployment is not in the
table: it replaces a ReplicaSet only by another version. A DaemonSet's pod comes back on its own node, where it was.
"""

from collections.abc import Mapping
from typing import NamedTuple

from .objects import OwnerReference

CORE = ""
MAX_OWNER_DEPTH = 3
"""From a LeaderWorkerSet's worker: its StatefulSet, the leader pod, the StatefulSet of the leaders."""


class LedgerKind(NamedTuple):
    """A kind whose metadata holds a ledger: its API group, and the resource under which it is served."""

    group: str
    resource: str
    is_composite: bool = False
    """It makes controllers, and makes them anew; of another project, so it may not be installed."""


LEDGER_KINDS: Mapping[str, LedgerKind] = {
    "Job": LedgerKind("batch", "jobs"),
    "StatefulSet": LedgerKind("apps", "statefulsets"),
    "ReplicaSet": LedgerKind("apps", "replicasets"),
    "JobSet": LedgerKind("jobset.x-k8s.io", "jobsets", is_composite=True),
    "LeaderWorkerSet": LedgerKind(
        "leaderworkerset.x-k8s.io", "leaderworkersets", is_composite=True
    ),
}
"""By kind; no two groups' kinds in it share a name."""


class NestedKind(NamedTuple):
    """A kind that may be a part of something: its API group and resource, and the kinds that its controller may be."""

    group: str
    resource: str
    parents: tuple[str, ...]


_NESTED_KINDS: Mapping[str, NestedKind] = {
    "Job": NestedKind("batch", "jobs", ("JobSet",)),
    "StatefulSet": NestedKind("apps", "statefulsets", ("LeaderWorkerSet", "Pod")),
    "Pod": NestedKind(CORE, "pods", ("StatefulSet",)),
}


def ledger_kind_of(reference: OwnerReference | None) -> LedgerKind | None:
    """Return the row of a controller that holds a ledger; `None` for any other, also for a namesake of another group."""
    row = LEDGER_KINDS.get(reference.kind) if reference is not None else None
    return (
        row
        if row is not None and reference is not None and _group(reference) == row.group
        else None
    )


def nested_kind_of(reference: OwnerReference) -> NestedKind | None:
    """Return the row of an object that may be a part of something: who its controller is has to be looked at."""
    row = _NESTED_KINDS.get(reference.kind)
    return row if row is not None and _group(reference) == row.group else None


def is_made_by(reference: OwnerReference, controller: OwnerReference) -> bool:
    """True where objects like the one that `reference` names are made by ones like `controller`."""
    row, known = nested_kind_of(reference), nested_kind_of(controller) or ledger_kind_of(controller)
    return row is not None and known is not None and controller.kind in row.parents


def _group(reference: OwnerReference) -> str:
    group, slash, _ = reference.apiVersion.rpartition("/")
    return group if slash else CORE
