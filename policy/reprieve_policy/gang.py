"""Which gang a pod is in: one reader of every dialect, as a table.

| dialect | upstream |
|---|---|
| native | `spec.schedulingGroup` (KEP-4671, k8s.io/api core/v1, 1.36 and later) |
| pod-group | scheduler-plugins `apis/scheduling/v1alpha1`, `PodGroupLabel` |
| koordinator-pod-group | Koordinator and document 000; in scheduler-plugins until v0.23 |
| koordinator | Koordinator `apis/extension/coscheduling.go`, `AnnotationGangPrefix` |
| volcano | volcano.sh/apis `scheduling/v1beta1/labels.go`; the older key wins there too |
| lightweight, draft | scheduler-plugins' lightweight coscheduling, deprecated there; document 004's own keys |
| kueue | kueue `pkg/controller/jobs/pod/constants` |
| jobset, leader-worker-set, job | the labels that these controllers write |

A *declared* name is somebody's choice for a scheduler; all declared names of a pod mean one group. Membership is what a
controller wrote of its own pods: a JobSet whose pods declare a group is that group, not a second gang.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from . import keys
from .objects import PodView
from .value import WholeNumber
from .verdict import Violation, annotation_path, label_path

NATIVE, JOB = "native", "job"
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?")
"""What can name a group. The API server checks labels; an annotation may hold a quarter of a megabyte of anything."""
SIZE = WholeNumber(1, 2**31 - 1)
"""Upstream reads it as an int32."""


class Place(NamedTuple):
    """Where something is said of a gang."""

    holder: Literal["labels", "annotations", "spec"]
    key: str

    def read(self, view: PodView) -> str:
        """Return what is said; empty where nothing is, as upstream reads an empty name too."""
        if self.holder == "labels":
            return view.labels.get(self.key, "")
        if self.holder == "annotations":
            return view.annotations.get(self.key, "")
        group = view.spec.schedulingGroup
        return "" if group is None or group.podGroupName is None else group.podGroupName

    def path(self, prefix: str) -> str:
        """Return the place as a message names it."""
        if self.holder == "labels":
            return label_path(prefix, self.key)
        return annotation_path(prefix, self.key) if self.holder == "annotations" else f"{prefix}spec.{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One way to say which gang a pod is in."""

    id: str
    name: Place
    minimum: Place | None = None
    """How many pods must be there before any starts."""
    size: Place | None = None
    """How many pods the gang has in all."""
    index: Place | None = None
    """Says which of several gangs of that name."""
    is_declared: bool = True
    is_generated_with: Place | None = None
    """Where this says something, a controller wrote the name, and the pod may declare another."""
    may_be_generated: bool = False
    """On a pod that has a controller, one may have written the name: Volcano's and the Job controller do."""
    instead: str = ""
    """The key to use in place of this old one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """The gang of one pod. Names hold within a namespace."""

    dialect: str
    name: str
    is_declared: bool
    min_available: int | None = None
    size: int | None = None
    selector: str | None = None
    """A label selector of its members; `None` where no label tells."""

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from the other gangs of its namespace: declared names are of one kind, whatever the dialect."""
        return ("" if self.is_declared else self.dialect, self.name)

    @property
    def is_native(self) -> bool:
        """True where the API server knows the group as an object."""
        return self.dialect == NATIVE


def _label(key: str) -> Place:
    return Place("labels", key)


def _annotation(key: str) -> Place:
    return Place("annotations", key)


DIALECTS: tuple[Dialect, ...] = (
    Dialect(id=NATIVE, name=Place("spec", "schedulingGroup.podGroupName"), may_be_generated=True),
    Dialect(id="pod-group", name=_label(keys.POD_GROUP)),
    Dialect(id="koordinator-pod-group", name=_label(keys.KOORDINATOR_POD_GROUP)),
    Dialect(
        id="koordinator",
        name=_annotation(keys.KOORDINATOR_GANG),
        minimum=_annotation(keys.KOORDINATOR_MIN_AVAILABLE),
        size=_annotation(keys.KOORDINATOR_TOTAL),
    ),
    Dialect(id="volcano", name=_annotation(keys.VOLCANO_GROUP), may_be_generated=True),
    Dialect(id="volcano", name=_annotation(keys.VOLCANO_OWN_GROUP), may_be_generated=True),
    Dialect(
        id="lightweight",
        name=_label(keys.OLD_POD_GROUP),
        minimum=_label(keys.OLD_MIN_AVAILABLE),
        instead=keys.POD_GROUP,
    ),
    Dialect(
        id="draft",
        name=_label(keys.DRAFT_POD_GROUP),
        minimum=_label(keys.DRAFT_MIN_AVAILABLE),
        instead=keys.POD_GROUP,
    ),
    Dialect(
        id="kueue",
        name=_label(keys.KUEUE_GROUP),
        size=_annotation(keys.KUEUE_TOTAL),
        is_generated_with=_annotation(keys.KUEUE_PARENT),
    ),
    Dialect(id="jobset", name=_label(keys.JOBSET), is_declared=False),
    Dialect(
        id="leader-worker-set",
        name=_label(keys.LEADER_WORKER_SET),
        size=_annotation(keys.LEADER_WORKER_SIZE),
        index=_label(keys.LEADER_WORKER_GROUP),
        is_declared=False,
    ),
    Dialect(id=JOB, name=_label(keys.JOB), is_declared=False),
)
"""The first that says is the gang's dialect: declared ones, then membership with the outermost controller first."""

PLACES: frozenset[Place] = frozenset(
    place
    for dialect in DIALECTS
    for place in (dialect.name, dialect.minimum, dialect.size, dialect.index)
    if place is not None
)
"""Everywhere that something is said of a gang."""
_LABELS = frozenset(place.key for place in PLACES if place.holder == "labels")
_ANNOTATIONS = frozenset(place.key for place in PLACES if place.holder == "annotations")


class Said(NamedTuple):
    """One name that a pod gives its gang."""

    dialect: Dialect
    name: str
    path: str


class Number(NamedTuple):
    """One size that a pod gives its gang, or why it cannot be read."""

    path: str
    value: int | Violation


def read(view: PodView) -> Gang | None:
    """Return the gang of the pod or of the template's pods; what cannot be read counts as unsaid."""
    first = next(names(view), None)
    if first is None:
        return None
    dialect = first.dialect
    return Gang(
        dialect=dialect.id,
        name=first.name,
        is_declared=dialect.is_declared,
        min_available=_first_readable(minimums(view)),
        size=_first_readable(sizes(view)),
        selector=_selector(dialect, view),
    )


def says_anything(view: PodView) -> bool:
    """True where a gang may be said. Most pods say none: this answers in less time than the table would take."""
    return not (
        _LABELS.isdisjoint(view.labels)
        and _ANNOTATIONS.isdisjoint(view.annotations)
        and view.spec.schedulingGroup is None
    )


def names(view: PodView) -> Iterator[Said]:
    """Yield every readable name, the one that counts first."""
    if not says_anything(view):
        return
    for dialect in DIALECTS:
        parts = [place.read(view) for place in (dialect.name, dialect.index) if place is not None]
        # Without its index, a LeaderWorkerSet's pod would be in all of its groups.
        if all(is_name(part) for part in parts):
            yield Said(dialect, "-".join(parts), dialect.name.path(view.prefix))


def is_name(text: str) -> bool:
    """True where `text` can name a group."""
    return _NAME.fullmatch(text) is not None


def minimums(view: PodView) -> Iterator[Number]:
    """Yield how many pods must be there before any starts, as often as it is said."""
    return _numbers(view, (dialect.minimum for dialect in DIALECTS))


def sizes(view: PodView) -> Iterator[Number]:
    """Yield how many pods the gang has in all, as often as it is said."""
    first = next(names(view), None)
    # A declared gang may be larger than what one controller makes of it: its size is not the gang's.
    counts = [dialect for dialect in DIALECTS if dialect.is_declared or first is None or not first.dialect.is_declared]
    return _numbers(view, (dialect.size for dialect in counts))


def _numbers(view: PodView, places: Iterable[Place | None]) -> Iterator[Number]:
    for place in places:
        text = "" if place is None else place.read(view)
        if place is not None and text:
            path = place.path(view.prefix)
            yield Number(path, SIZE.parse(text, path))


def _first_readable(found: Iterable[Number]) -> int | None:
    return next((number.value for number in found if isinstance(number.value, int)), None)


def _selector(dialect: Dialect, view: PodView) -> str | None:
    places = [place for place in (dialect.name, dialect.index) if place is not None]
    if any(place.holder != "labels" for place in places):
        return None
    return ",".join(f"{place.key}={place.read(view)}" for place in places)
