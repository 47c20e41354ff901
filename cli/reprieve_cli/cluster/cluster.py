"""What `audit` reads of a cluster: which kinds it serves, the facts that rules need, and objects, a page at a time."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from reprieve_policy.kube.kinds import ServedKind
from reprieve_policy.kube.objects import ObjectMeta, Resource
from reprieve_policy.kube.template_kinds import TemplateKinds
from reprieve_runtime import templates
from reprieve_runtime.client.api import Api, ApiError, PartialObject

from .cluster_policy import POLICY_NAME, POLICY_NAMESPACE, Known

T = TypeVar("T")

PAGE = 250
"""Objects asked for at once. What a page has is forgotten before the next one is read."""

_UNREACHABLE, _FORBIDDEN, _NOT_FOUND, _GONE = 0, 403, 404, 410
_METADATA_IS_ENOUGH = frozenset({"Namespace"})
"""Kinds whose rules read nothing else. All others have a template, a spec or a value that is judged."""


_POLICY_PATH = f"/api/v1/namespaces/{POLICY_NAMESPACE}/configmaps"
_POLICY_SELECTOR = {"fieldSelector": f"metadata.name={POLICY_NAME}"}
"""The one ConfigMap that has a rule: the others are many, large, and nobody's business."""


class Collection(NamedTuple):
    """A kind that the cluster serves, and where."""

    kind: str
    path: str
    template_paths: tuple[str, ...] = ()
    """Where the pod templates of another project's kind stand; empty for the kinds that are read by their form."""


class ClusterReader:
    """Reads one cluster, whole or one namespace of it. What cannot be read is told once, and the rest is read."""

    def __init__(self, api: Api, in_namespace: str, tell: Callable[[str], None]) -> None:
        self._api = api
        self._namespace = in_namespace
        self._tell = tell
        self._within = f"/namespaces/{quote(in_namespace, safe='')}" if in_namespace else ""

    async def known(self) -> Known:
        """Read the facts that rules need."""
        known = Known()
        async for found in self._objects(_POLICY_PATH, _POLICY_SELECTOR):
            known.take(found)
        async for found in self._namespaces():
            # Neither an item of a list nor metadata alone says its kind.
            known.take(replace(found, kind="Namespace"))
        async for found in self._objects("/apis/scheduling.k8s.io/v1/priorityclasses", {}):
            known.take(replace(found, kind="PriorityClass"))
        return known

    async def take_all(self, path: str, decode_as: type[T], take: Callable[[T], None]) -> None:
        """Have each object of a collection taken in; one that is not served has none."""
        try:
            async for page, _ in self._api.pages(path, msgspec.Raw, limit=PAGE):
                for text in page:
                    found = self._decoded(path, text, partial(msgspec.json.decode, type=decode_as))
                    if found is not None:
                        take(found)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                self._tell_of(path, error)

    async def collections(self, rows: Iterable[ServedKind]) -> AsyncIterator[Collection]:
        """Yield where each kind is served, of several versions at the preferred; one that is not served is skipped."""
        for row in rows:
            if row.kind == "ConfigMap":
                if self._namespace in ("", POLICY_NAMESPACE):
                    yield Collection(row.kind, _POLICY_PATH)
            elif row.is_namespaced or not self._namespace:
                found = await self._find(row)
                if found is not None:
                    yield found

    async def _find(self, row: ServedKind) -> Collection | None:
        for version in row.versions:
            base = f"/apis/{row.group}/{version}" if row.group else f"/api/{version}"
            if row.kind in await self._served(base):
                return Collection(row.kind, f"{base}{self._within}/{row.resource}")
        return None

    async def listed(self, kinds: TemplateKinds) -> AsyncIterator[Collection]:
        """Yield where the kinds of other projects are served, at the version that their group prefers."""
        for row in kinds.rows:
            for version in await self._preferred(row.group):
                base = f"/apis/{version}"
                resource = (await self._served(base)).get(row.kind)
                if resource is not None:
                    yield Collection(row.kind, f"{base}{self._within}/{resource}", row.paths)

    async def pages(self, collection: Collection) -> AsyncIterator[list[Resource]]:
        """Yield the objects of a collection."""
        metadata_only = collection.kind in _METADATA_IS_ENOUGH
        selector = _POLICY_SELECTOR if collection.kind == "ConfigMap" else {}
        if collection.template_paths:
            read = partial(_read_templates, collection.template_paths)
        else:
            read = partial(_read_as, collection.kind)
        async for page in self._pages(collection.path, selector, read, metadata_only=metadata_only):
            yield page

    async def _namespaces(self) -> AsyncIterator[Resource]:
        """Yield the Namespaces, or the one that was asked for: whoever may read only that need not see the others."""
        if not self._namespace:
            async for found in self._objects("/api/v1/namespaces", {}, metadata_only=True):
                yield found
            return
        path = f"/api/v1/namespaces/{quote(self._namespace, safe='')}"
        try:
            yield await self._api.get(path, Resource)
        except ApiError as error:
            self._tell_of(path, error)
            if error.status == _FORBIDDEN:
                yield Resource(metadata=ObjectMeta(name=self._namespace))

    async def _preferred(self, group: str) -> tuple[str, ...]:
        """Return the group's preferred version with the group, nothing where it is not served."""
        found = await self._look(f"/apis/{group}", _Group)
        return () if found is None else (found.preferredVersion.groupVersion,)

    async def _served(self, base: str) -> Mapping[str, str]:
        """Return what is served in a version, by kind; subresources are none."""
        found = await self._look(base, _Resources)
        resources = () if found is None else found.resources
        return {resource.kind: resource.name for resource in resources if "/" not in resource.name}

    async def _look(self, path: str, decode_as: type[T]) -> T | None:
        try:
            return await self._api.get(path, decode_as)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                self._tell_of(path, error)
            return None

    async def _objects(
        self, path: str, params: dict[str, str], *, metadata_only: bool = False
    ) -> AsyncIterator[Resource]:
        async for page in self._pages(path, params, partial(_read_as, ""), metadata_only=metadata_only):
            for found in page:
                yield found

    async def _pages(
        self, path: str, params: dict[str, str], read: Callable[[msgspec.Raw], Resource], *, metadata_only: bool
    ) -> AsyncIterator[list[Resource]]:
        try:
            pages = self._api.pages(path, msgspec.Raw, params=params, metadata_only=metadata_only, limit=PAGE)
            async for page, _ in pages:
                yield [found for text in page if (found := self._decoded(path, text, read))]
        except ApiError as error:
            self._tell_of(path, error)

    def _tell_of(self, path: str, error: ApiError) -> None:
        """Say what could not be read; where nothing answers, there is nothing else to read."""
        if error.status == _UNREACHABLE:
            raise error
        self._tell(f"{path}: {_reason(error)}")

    def _decoded(self, path: str, text: msgspec.Raw, read: Callable[[msgspec.Raw], T]) -> T | None:
        """Return one object; in a custom resource without a schema, anything may be stored."""
        try:
            return read(text)
        except msgspec.ValidationError as error:
            metadata = msgspec.json.decode(text, type=PartialObject).metadata
            self._tell(f"{path}: {metadata.namespace}/{metadata.name}: {error}")
            return None


def _read_as(kind: str, text: msgspec.Raw) -> Resource:
    """Read an object of a list, where it does not say what it is."""
    return replace(msgspec.json.decode(text, type=Resource), kind=kind)


def _read_templates(paths: Sequence[str], text: msgspec.Raw) -> Resource:
    return templates.read(msgspec.json.decode(text), paths)


class _Resource(msgspec.Struct):
    name: str
    kind: str


class _Version(msgspec.Struct):
    groupVersion: str  # noqa: N815 - the API's own name


class _Group(msgspec.Struct):
    preferredVersion: _Version  # noqa: N815 - the API's own name


class _Resources(msgspec.Struct):
    resources: list[_Resource]


def _reason(error: ApiError) -> str:
    if error.status == _FORBIDDEN:
        return f"not allowed to read it: {error.message}"
    if error.status == _GONE:
        return "it changed for too long while it was read; run it again when the API server is less busy"
    return error.message or error.reason
