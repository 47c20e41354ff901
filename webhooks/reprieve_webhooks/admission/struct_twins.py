"""Twins of the core's dataclasses, which decode three times as fast: Structs with the same fields.

The core uses only the standard library. But msgspec fills a dataclass field by field, by name, also
with the default of each field that the object leaves out; it makes a Struct in one step. Rules only
read attributes, and a twin has those of its dataclass, with the same names, types and defaults.
"""

import dataclasses
import sys
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ForwardRef, TypeVar

import msgspec

T = TypeVar("T")


def twin_of(dataclass: type[T], *, kept: Collection[type] = ()) -> type[T]:
    """Return the twin of a dataclass, whose fields hold twins, too.

    `kept`: dataclasses without a twin, such as one that is compared with instances from elsewhere.
    """
    twins: dict[str, type] = {}
    _add_twin(dataclass, kept, twins)
    # The fields name each other's types, also their own: msgspec looks these up in this module.
    vars(sys.modules[__name__]).update(twins)
    return typing.cast("type[T]", twins[dataclass.__name__])


def replaced(twin: T, **changes: Any) -> T:
    """Return the same, with other values in these fields."""
    replace: Any = msgspec.structs.replace
    changed: T = replace(twin, **changes)
    return changed


def _add_twin(dataclass: type[Any], kept: Collection[type], twins: dict[str, type]) -> None:
    inner: set[type[Any]] = set()
    hints = typing.get_type_hints(dataclass)
    twins[dataclass.__name__] = msgspec.defstruct(
        dataclass.__name__,
        [
            (field.name, _by_name(hints[field.name], kept, inner), _default_of(field))
            for field in dataclasses.fields(dataclass)
        ],
        kw_only=True,
        frozen=True,
        gc=False,
        omit_defaults=True,
        module=__name__,
    )
    for each in inner:
        if each.__name__ not in twins:
            _add_twin(each, kept, twins)


def _by_name(hint: Any, kept: Collection[type], inner: set[type[Any]]) -> Any:
    """Return a type with the name of each dataclass in its place, and add these to `inner`."""
    if dataclasses.is_dataclass(hint) and hint not in kept:
        dataclass = typing.cast("type[Any]", hint)
        inner.add(dataclass)
        return ForwardRef(dataclass.__name__)
    arguments = tuple(_by_name(each, kept, inner) for each in typing.get_args(hint))
    if not arguments:
        return hint
    origin = typing.get_origin(hint)
    generics = {Sequence: typing.Sequence, Mapping: typing.Mapping}
    return generics.get(origin, typing.Union)[arguments]


def _default_of(field: "dataclasses.Field[Any]") -> Any:
    """Return the default; where a dataclass makes one of its own kind, the twin makes it."""
    if field.default_factory is dataclasses.MISSING:
        return field.default
    name = getattr(field.default_factory, "__name__", "")

    def make() -> Any:
        return vars(sys.modules[__name__])[name]()

    return msgspec.field(default_factory=make)
