"""On which objects each key with our prefix is read, and whether as a label or an annotation.

A test compares this table with `keys`. What the values mean is not here but in the rules.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan

Part = Literal["labels", "annotations"]


class Place(NamedTuple):
    """Objects of one sort, and the keys of ours that are read there."""

    name: str
    labels: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()

    def keys_in(self, part: Part) -> frozenset[str]:
        """Return the keys that are read in this part of the metadata."""
        return self.labels if part == "labels" else self.annotations


PODS = Place(
    "pods and templates",
    labels=frozenset({keys.PREEMPTION_CLASS, keys.SOFT_EVICTION, keys.GANG_GATE_LABEL}),
    annotations=frozenset(
        {
            *checkpoint_plan.KEYS,
            keys.AGENT,
            keys.PREEMPTION_PRIORITY_CLASS,
            keys.DISRUPTION_MODE,
            # What Reprieve or the workload writes to pods.
            keys.CHECKPOINT_REQUEST,
            keys.CHECKPOINT_ANSWER,
            keys.EVICTION,
            keys.EVICTION_REQUEST,
            keys.PREEMPTOR,
            keys.REFUSED_SINCE,
            keys.PREEMPTED_COUNT,
            keys.FIRST_SUBMITTED_AT,
            keys.RESUME_FROM_CHECKPOINT,
            keys.LAST_CHECKPOINT_AT,
            keys.LAST_CHECKPOINT_TOOK,
            keys.REQUEUED_FROM,
            keys.MIN_MEMBER,
            keys.GANG_RELEASED_AT,
        }
    ),
)
OWNERS = Place(
    "workloads",
    labels=frozenset({keys.LEDGER, keys.SUSPENDED}),
    # The rule `disruption-mode` accepts its annotation on JobSets and other objects of gangs, and
    # refuses it elsewhere.
    annotations=frozenset(
        {keys.LEDGER, keys.SUSPENDED, keys.LAST_CHECKPOINT_AT, keys.DISRUPTION_MODE}
    ),
)
"""The metadata of what makes pods, which its pods do not get."""
GROUPS = Place(
    "native PodGroups and Workloads",
    annotations=frozenset({keys.PREEMPTION_PRIORITY_CLASS, keys.DISRUPTION_MODE}),
)
PRIORITY_CLASSES = Place(
    "PriorityClasses",
    annotations=frozenset({keys.PREEMPTION_PRIORITY_CLASS, keys.DEFAULT_PREEMPTION_CLASS}),
)
NAMESPACES = Place(
    "Namespaces",
    labels=frozenset({keys.ENFORCEMENT}),
    annotations=frozenset(
        {
            keys.WORKLOAD_TYPE,
            keys.ALLOWED_PREEMPTION_CLASSES,
            keys.DEFAULT_PREEMPTION_CLASS,
            keys.ENFORCEMENT,
        }
    ),
)
QUOTAS = Place("ElasticQuotas")
_NODES = Place("Nodes", labels=frozenset({keys.HOME_NAMESPACE}))
_RECORDS = Place(
    "ControllerRevisions",
    labels=frozenset({keys.BARE_POD}),
    annotations=frozenset({keys.BARE_POD}),
)

PLACES = (PODS, PRIORITY_CLASSES, NAMESPACES, GROUPS, _NODES, _RECORDS, OWNERS)
"""The places with keys. Of a key with several, a message names the first ones first."""

OF_KIND = {
    "Workload": GROUPS,
    "PodGroup": GROUPS,
    "PriorityClass": PRIORITY_CLASSES,
    "Namespace": NAMESPACES,
    "ElasticQuota": QUOTAS,
}
"""The place of an object's own metadata, by kind. Every other kind is a pod or makes pods."""

_NEITHER = {keys.CLEANUP_FINALIZER: "a finalizer", keys.GANG_GATE: "a scheduling gate"}
_NOUNS: dict[Part, str] = {"labels": "a label", "annotations": "an annotation"}


def describe(key: str, here: Place) -> str:
    """Return where `key`, which is one of ours, is read: `a label of Nodes`.

    Empty for a key that Reprieve does not know.
    """
    if key in _NEITHER:
        return _NEITHER[key]
    for part, noun in _NOUNS.items():
        if key in here.keys_in(part):
            return noun
    for part, noun in _NOUNS.items():
        if places := " and ".join(place.name for place in _places_of(key, part)):
            return f"{noun} of {places}"
    return ""


def _places_of(key: str, part: Part) -> Iterator[Place]:
    # What Reprieve writes to workloads is meant for no user, unless it is read nowhere else.
    found = [place for place in PLACES if key in place.keys_in(part)]
    yield from (place for place in found if place is not OWNERS or len(found) == 1)
