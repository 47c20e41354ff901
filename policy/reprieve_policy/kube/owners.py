"""Which owner creates a victim's replacement and holds the ledger that it inherits.

The ledger must be on an object that outlives the victim. That is the pod's own controller, unless a
larger workload deletes and creates that controller too: a JobSet restarts by deleting its Jobs, a
LeaderWorkerSet by deleting a leader pod, and with it the StatefulSet of its workers. Deployments
are not in the table: a Deployment replaces a ReplicaSet only for another version. A DaemonSet's pod
comes back on its own node.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from .objects import OwnerReference, group_of

CORE = ""
_LONGEST_TEXTS = (("apiVersion", 253 + len("/") + 63), ("kind", 63), ("name", 253), ("uid", 128))
"""Of a reference that names an object. The API server accepts any, and programs keep references."""
MAX_OWNER_DEPTH = 3
"""Steps from the worker of a LeaderWorkerSet: its StatefulSet, the leader pod, the StatefulSet of
the leaders."""


class LedgerKind(NamedTuple):
    """A kind whose metadata can hold a ledger: its API group and its resource."""

    group: str
    resource: str
    is_composite: bool = False
    """It creates controllers and replaces them. It belongs to another project and may be absent."""


LEDGER_KINDS: Mapping[str, LedgerKind] = {
    "Job": LedgerKind("batch", "jobs"),
    "StatefulSet": LedgerKind("apps", "statefulsets"),
    "ReplicaSet": LedgerKind("apps", "replicasets"),
    "JobSet": LedgerKind("jobset.x-k8s.io", "jobsets", is_composite=True),
    "LeaderWorkerSet": LedgerKind(
        "leaderworkerset.x-k8s.io", "leaderworkersets", is_composite=True
    ),
}
"""By kind. No two kinds in it share a name."""


class NestedKind(NamedTuple):
    """A kind that may be part of a larger workload, and the kinds that may control it."""

    group: str
    resource: str
    parents: tuple[str, ...]


_NESTED_KINDS: Mapping[str, NestedKind] = {
    "Job": NestedKind("batch", "jobs", ("JobSet",)),
    "StatefulSet": NestedKind("apps", "statefulsets", ("LeaderWorkerSet", "Pod")),
    "Pod": NestedKind(CORE, "pods", ("StatefulSet",)),
}


def ledger_kind_of(reference: OwnerReference | None) -> LedgerKind | None:
    """Return the row of a controller that holds a ledger, `None` for every other controller.

    A kind of the same name in another group is such another, and so is what can name no object.
    """
    row = LEDGER_KINDS.get(reference.kind) if reference is not None else None
    return (
        row
        if row is not None and reference is not None and _names_one_of(row.group, reference)
        else None
    )


def nested_kind_of(reference: OwnerReference) -> NestedKind | None:
    """Return the row of an object that may be part of a larger workload.

    The caller must look up the controller of such an object.
    """
    row = _NESTED_KINDS.get(reference.kind)
    return row if row is not None and _names_one_of(row.group, reference) else None


def _names_one_of(group: str, reference: OwnerReference) -> bool:
    """True if an object of this API group can be what the reference names."""
    return group_of(reference.apiVersion) == group and clip(reference) is reference


def clip(reference: OwnerReference) -> OwnerReference:
    """Return a reference that can be kept: the same, or one that still names no object."""
    long = {
        field: text[: length + 1]
        for field, length in _LONGEST_TEXTS
        if len(text := getattr(reference, field)) > length
    }
    return replace(reference, **long) if long else reference


def is_made_by(reference: OwnerReference, controller: OwnerReference) -> bool:
    """True if objects like the one that `reference` names are created by ones like `controller`."""
    row, known = nested_kind_of(reference), nested_kind_of(controller) or ledger_kind_of(controller)
    return row is not None and known is not None and controller.kind in row.parents
