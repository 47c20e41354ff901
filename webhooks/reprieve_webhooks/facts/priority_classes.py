"""PriorityClasses: watched, and read once where an object names one that no watch has seen."""

import asyncio
from collections.abc import Iterator, Mapping

from reprieve_policy.admission import preemption_priority
from reprieve_policy.kube.objects import Resource
from reprieve_runtime.client.api import Api
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.client.reflector import Reflector
from reprieve_runtime.single_flight import RateLimitedError
from reprieve_webhooks.lookups.getter import CachedGetter, unchanged

_MAX_PRIORITY_CLASS_READS = 8
"""PriorityClasses read for one object: its own, the one for its preemption priority, and some more
that were created together with them."""


class PriorityClasses(Mapping[str, Resource]):
    """The PriorityClasses by name, a live view of the watch."""

    def __init__(self, reflector: Reflector[Resource, Resource]) -> None:
        self._reflector = reflector

    def __getitem__(self, name: str) -> Resource:
        return self._reflector.items["", name]

    def __iter__(self) -> Iterator[str]:
        return (name for _, name in self._reflector.items)

    def __len__(self) -> int:
        return len(self._reflector.items)


class PriorityClassReader:
    """What is known of PriorityClasses, and the few reads that one object may cause."""

    def __init__(self, api: Api, *, lookup_timeout_seconds: float) -> None:
        self.reflector = Reflector(api, object_path("priorityclasses"), Resource, unchanged)
        self.by_name = PriorityClasses(self.reflector)
        # Its own, so that a user who names missing PriorityClasses does not use up the rate of
        # lookups for new Namespaces.
        self._getter = CachedGetter(
            api, Resource, unchanged, timeout_seconds=lookup_timeout_seconds
        )

    def unknown_names(self, resource: Resource) -> list[str]:
        """Return the PriorityClasses that the object needs and no watch has seen.

        These are the classes that it names and, of the known ones, those that they name for their
        preemption priority.
        """
        known, unknown = self.reflector.items, []
        for name in preemption_priority.priority_class_names(resource):
            found = known.get(("", name))
            needed = (
                name if found is None else preemption_priority.preemption_priority_class_of(found)
            )
            if needed is not None and ("", needed) not in known:
                unknown.append(needed)
        return unknown

    async def look_up(self, names: list[str]) -> Mapping[str, Resource]:
        """Return all PriorityClasses with those of these names and those that they refer to.

        Raises `ApiError`.
        """
        read = await self._read_first(names)
        referenced = {
            name
            for found in read.values()
            if (name := preemption_priority.preemption_priority_class_of(found)) is not None
        }
        missing = [
            name for name in referenced - read.keys() if ("", name) not in self.reflector.items
        ]
        return {
            **self.by_name,
            **read,
            **await self._read_first(missing),
        }

    async def _read_first(self, names: list[str]) -> Mapping[str, Resource]:
        """Read the first few; return those that exist. The others are left to the watch.

        Users write these names. Without the limits, an object with hundreds of them, or many such
        objects, would make the review fail or take too long, and be admitted unchecked.
        """
        unique = list(dict.fromkeys(names))[:_MAX_PRIORITY_CLASS_READS]
        read = zip(unique, await asyncio.gather(*map(self._read, unique)), strict=True)
        return {name: found for name, found in read if found is not None}

    async def _read(self, name: str) -> Resource | None:
        try:
            return await self._getter.find("priorityclasses", name)
        except RateLimitedError:
            return None
