"""Which gang a pod is in: one reader for all `dialects`. Names hold within a namespace."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from reprieve_policy.config.annotation_values import WholeNumber
from reprieve_policy.keys import MIN_MEMBER
from reprieve_policy.kube.objects import PodView
from reprieve_policy.verdict import Violation

from .dialects import DIALECTS, GANG_FIELDS, JOB, NATIVE, GangDialect, GangField, fields_of

_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?")
"""A valid group name. The API server checks labels, but an annotation may hold a quarter of a
megabyte of anything."""
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
    min_member: int | None = None
    """How many pods its PodGroup needs, of a gang that is evicted pod by pod; Reprieve writes it to
    the pods."""
    selector: str | None = None
    """A label selector of its members; `None`: no label identifies them."""

    @property
    def key(self) -> tuple[str, str]:
        """What identifies it in its namespace; all declared names are of one kind."""
        return ("" if self.is_declared else self.dialect, self.name)

    @property
    def is_batch_job(self) -> bool:
        """True for a batch Job's gang, whose pods have one template and cannot diverge."""
        return self.dialect == JOB

    @property
    def is_native(self) -> bool:
        """True if the API server knows the group as an object."""
        return self.dialect == NATIVE


_LABELS = frozenset(place.key for place in GANG_FIELDS if place.holder == "labels")
_ANNOTATIONS = frozenset(place.key for place in GANG_FIELDS if place.holder == "annotations")


class GangName(NamedTuple):
    """One name that a pod states for its gang."""

    dialect: GangDialect
    name: str
    path: str


class GangSize(NamedTuple):
    """One size that a pod states for its gang, or why it cannot be read."""

    path: str
    value: int | Violation


def read(view: PodView) -> Gang | None:
    """Return the gang of the pod or of the template's pods; unreadable values count as absent."""
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
        min_member=_min_member(view),
        selector=_selector(dialect, view),
    )


def is_generated(dialect: GangDialect, view: PodView) -> bool:
    """True if a controller wrote the pod's gang name in this dialect."""
    return dialect.is_generated_with is not None and bool(dialect.is_generated_with.read(view))


def mentions_gang(view: PodView) -> bool:
    """True if the pod may state a gang.

    Most pods state none. For those this is faster than a walk through the table.
    """
    return not (
        _LABELS.isdisjoint(view.labels)
        and _ANNOTATIONS.isdisjoint(view.annotations)
        and view.spec.schedulingGroup is None
    )


def dialects_in(view: PodView) -> tuple[GangDialect, ...]:
    """Return the dialects in which the pod states anything, in the order of the table."""
    if not mentions_gang(view):
        return ()
    present = (_LABELS.intersection(view.labels), _ANNOTATIONS.intersection(view.annotations))
    return _dialects_with(*present, "" if view.spec.schedulingGroup is None else NATIVE)


@lru_cache(maxsize=512)
def _dialects_with(
    labels: frozenset[str], annotations: frozenset[str], spec: str
) -> tuple[GangDialect, ...]:
    """Return the dialects with any of these keys.

    Cached, because few sets of keys occur and the table has a dozen rows.
    """
    present = {"labels": labels, "annotations": annotations}
    return tuple(
        dialect
        for dialect in DIALECTS
        if (
            dialect.id == spec
            or any(place.key in present.get(place.holder, ()) for place in fields_of(dialect))
        )
    )


def gang_names(view: PodView) -> Iterator[GangName]:
    """Yield every readable name; the first one counts."""
    for dialect in dialects_in(view):
        parts = [place.read(view) for place in (dialect.name, dialect.index) if place is not None]
        # Without its index, a LeaderWorkerSet's pod would be in all groups of the set.
        if all(is_name(part) for part in parts):
            yield GangName(dialect, "-".join(parts), dialect.name.path(view.prefix))


def is_name(text: str) -> bool:
    """True if `text` can name a group."""
    return _NAME.fullmatch(text) is not None


def min_available_values(view: PodView) -> Iterator[GangSize]:
    """Yield each stated number of pods that must exist before any starts."""
    return _numbers(view, (dialect.minimum for dialect in dialects_in(view)))


def gang_sizes(view: PodView) -> Iterator[GangSize]:
    """Yield each stated number of pods that the gang has in all."""
    first = next(gang_names(view), None)
    is_declared = first is not None and first.dialect.is_declared
    # A declared gang may have more pods than one controller creates, so that controller's size
    # does not count.
    counts = (dialect for dialect in dialects_in(view) if dialect.is_declared or not is_declared)
    return _numbers(view, (dialect.size for dialect in counts))


def _numbers(view: PodView, places: Iterable[GangField | None]) -> Iterator[GangSize]:
    for place in places:
        text = "" if place is None else place.read(view)
        if place is not None and text:
            path = place.path(view.prefix)
            yield GangSize(path, SIZE.parse(text, path))


def _min_member(view: PodView) -> int | None:
    found = SIZE.parse(view.annotations.get(MIN_MEMBER, ""), "")
    return found if isinstance(found, int) else None


def _first_readable(sizes: Iterable[GangSize]) -> int | None:
    return next((size.value for size in sizes if isinstance(size.value, int)), None)


def _selector(dialect: GangDialect, view: PodView) -> str | None:
    places = [place for place in (dialect.name, dialect.index) if place is not None]
    if any(place.holder != "labels" for place in places):
        return None
    return ",".join(f"{place.key}={place.read(view)}" for place in places)
