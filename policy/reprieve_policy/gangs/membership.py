"""Which gang a pod is in: one reader of every dialect in `gang_dialects`. Names hold within a namespace."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from reprieve_policy.config.annotation_values import WholeNumber
from reprieve_policy.kube.objects import PodView
from reprieve_policy.verdict import Violation

from .dialects import DIALECTS, GANG_FIELDS, JOB, NATIVE, GangDialect, GangField, fields_of

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?")
"""What can name a group. The API server checks labels; an annotation may hold a quarter of a megabyte of anything."""
SIZE = WholeNumber(1, 2**31 - 1)
"""Upstream reads it as an int32."""


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
    def is_batch_job(self) -> bool:
        """True for a batch Job's: its pods agree by themselves."""
        return self.dialect == JOB

    @property
    def is_native(self) -> bool:
        """True where the API server knows the group as an object."""
        return self.dialect == NATIVE


_LABELS = frozenset(place.key for place in GANG_FIELDS if place.holder == "labels")
_ANNOTATIONS = frozenset(place.key for place in GANG_FIELDS if place.holder == "annotations")


class GangName(NamedTuple):
    """One name that a pod gives its gang."""

    dialect: GangDialect
    name: str
    path: str


class GangSize(NamedTuple):
    """One size that a pod gives its gang, or why it cannot be read."""

    path: str
    value: int | Violation


def read(view: PodView) -> Gang | None:
    """Return the gang of the pod or of the template's pods; what cannot be read counts as unsaid."""
    first = next(gang_names(view), None)
    if first is None:
        return None
    dialect = first.dialect
    return Gang(
        dialect=dialect.id,
        name=first.name,
        is_declared=dialect.is_declared and not is_generated(dialect, view),
        min_available=_first_readable(min_available_values(view)),
        size=_first_readable(gang_sizes(view)),
        selector=_selector(dialect, view),
    )


def is_generated(dialect: GangDialect, view: PodView) -> bool:
    """True where a controller gave the pod its name in this dialect."""
    return dialect.is_generated_with is not None and bool(dialect.is_generated_with.read(view))


def mentions_gang(view: PodView) -> bool:
    """True where a gang may be said. Most pods say none: this answers in less time than the table would take."""
    return not (
        _LABELS.isdisjoint(view.labels)
        and _ANNOTATIONS.isdisjoint(view.annotations)
        and view.spec.schedulingGroup is None
    )


def dialects_in(view: PodView) -> tuple[GangDialect, ...]:
    """Return the dialects of which the pod says anything, in the order of the table."""
    if not mentions_gang(view):
        return ()
    said = (_LABELS.intersection(view.labels), _ANNOTATIONS.intersection(view.annotations))
    return _dialects_with(*said, "" if view.spec.schedulingGroup is None else NATIVE)


@lru_cache(maxsize=512)
def _dialects_with(
    labels: frozenset[str], annotations: frozenset[str], spec: str
) -> tuple[GangDialect, ...]:
    """Remembered: of all sets of keys only a few occur, and the table has a dozen rows."""
    said = {"labels": labels, "annotations": annotations}
    return tuple(
        dialect
        for dialect in DIALECTS
        if (
            dialect.id == spec
            or any(place.key in said.get(place.holder, ()) for place in fields_of(dialect))
        )
    )


def gang_names(view: PodView) -> Iterator[GangName]:
    """Yield every readable name, the one that counts first."""
    for dialect in dialects_in(view):
        parts = [place.read(view) for place in (dialect.name, dialect.index) if place is not None]
        # Without its index, a LeaderWorkerSet's pod would be in all of its groups.
        if all(is_name(part) for part in parts):
            yield GangName(dialect, "-".join(parts), dialect.name.path(view.prefix))


def is_name(text: str) -> bool:
    """True where `text` can name a group."""
    return _NAME.fullmatch(text) is not None


def min_available_values(view: PodView) -> Iterator[GangSize]:
    """Yield how many pods must be there before any starts, as often as it is said."""
    return _numbers(view, (dialect.minimum for dialect in dialects_in(view)))


def gang_sizes(view: PodView) -> Iterator[GangSize]:
    """Yield how many pods the gang has in all, as often as it is said."""
    first = next(gang_names(view), None)
    is_declared = first is not None and first.dialect.is_declared
    # A declared gang may be larger than what one controller makes of it: its size is not the gang's.
    counts = (dialect for dialect in dialects_in(view) if dialect.is_declared or not is_declared)
    return _numbers(view, (dialect.size for dialect in counts))


def _numbers(view: PodView, places: Iterable[GangField | None]) -> Iterator[GangSize]:
    for place in places:
        text = "" if place is None else place.read(view)
        if place is not None and text:
            path = place.path(view.prefix)
            yield GangSize(path, SIZE.parse(text, path))


def _first_readable(found: Iterable[GangSize]) -> int | None:
    return next((number.value for number in found if isinstance(number.value, int)), None)


def _selector(dialect: GangDialect, view: PodView) -> str | None:
    places = [place for place in (dialect.name, dialect.index) if place is not None]
    if any(place.holder != "labels" for place in places):
        return None
    return ",".join(f"{place.key}={place.read(view)}" for place in places)
