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
from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata

from .cluster_policy import POLICY_NAME, POLICY_NAMESPACE, ClusterPolicy

T = TypeVar("T")

PAGE_SIZE = 250
"""Objects asked for at once. What a page has is forgotten before the next one is read."""

_UNREACHABLE, _FORBIDDEN, _NOT_FOUND, _GONE = 0, 403, 404, 410
_METADATA_ONLY_KINDS = frozenset({"Namespace"})
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

    def __init__(self, api: Api, in_namespace: str, report: Callable[[str], None]) -> None:
        self._api = api
        self._namespace = in_namespace
        self._report = report
        self._namespace_path = f"/namespaces/{quote(in_namespace, safe='')}" if in_namespace else ""

    async def read_policy(self) -> ClusterPolicy:
        """Read the facts that rules need."""
        known = ClusterPolicy()
        async for found in self._objects(_POLICY_PATH, _POLICY_SELECTOR):
            known.add(found)
        async for found in self._namespaces():
            # Neither an item of a list nor metadata alone says its kind.
            known.add(replace(found, kind="Namespace"))
        async for found in self._objects("/apis/scheduling.k8s.io/v1/priorityclasses", {}):
            known.add(replace(found, kind="PriorityClass"))
        return known

    async def read_each(self, path: str, decode_as: type[T], take: Callable[[T], None]) -> None:
        """Have each object of a collection taken in; one that is not served has none."""
        try:
            async for page, _ in self._api.list_pages(path, msgspec.Raw, limit=PAGE_SIZE):
                for text in page:
                    found = self._decode(path, text, partial(msgspec.json.decode, type=decode_as))
                    if found is not None:
                        take(found)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                self._report_error(path, error)

    async def collections(self, rows: Iterable[ServedKind]) -> AsyncIterator[Collection]:
        """Yield where each kind is served, of several versions at the preferred; one that is not served is skipped."""
        for row in rows:
            if row.kind == "ConfigMap":
                if self._namespace in ("", POLICY_NAMESPACE):
                    yield Collection(row.kind, _POLICY_PATH)
            elif row.is_namespaced or not self._namespace:
                found = await self._find_collection(row)
                if found is not None:
                    yield found

    async def _find_collection(self, row: ServedKind) -> Collection | None:
        for version in row.versions:
            base = f"/apis/{row.group}/{version}" if row.group else f"/api/{version}"
            if row.kind in await self._served_resources(base):
                return Collection(row.kind, f"{base}{self._namespace_path}/{row.resource}")
        return None

    async def custom_collections(self, kinds: TemplateKinds) -> AsyncIterator[Collection]:
        """Yield where the kinds of other projects are served, at the version that their group prefers."""
        for row in kinds.rows:
            for version in await self._preferred_version(row.group):
                base = f"/apis/{version}"
                resource = (await self._served_resources(base)).get(row.kind)
                if resource is not None:
                    yield Collection(
                        row.kind, f"{base}{self._namespace_path}/{resource}", row.paths
                    )

    async def pages(self, collection: Collection) -> AsyncIterator[list[Resource]]:
        """Yield the objects of a collection."""
        metadata_only = collection.kind in _METADATA_ONLY_KINDS
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
            self._report_error(path, error)
            if error.status == _FORBIDDEN:
                yield Resource(metadata=ObjectMeta(name=self._namespace))

    async def _preferred_version(self, group: str) -> tuple[str, ...]:
        """Return the group's preferred version with the group, nothing where it is not served."""
        found = await self._get_if_served(f"/apis/{group}", _ApiGroup)
        return () if found is None else (found.preferredVersion.groupVersion,)

    async def _served_resources(self, base: str) -> Mapping[str, str]:
        """Return what is served in a version, by kind; subresources are none."""
        found = await self._get_if_served(base, _ServedResourceList)
        resources = () if found is None else found.resources
        return {resource.kind: resource.name for resource in resources if "/" not in resource.name}

    async def _get_if_served(self, path: str, decode_as: type[T]) -> T | None:
        try:
            return await self._api.get(path, decode_as)
        except ApiError as error:
            if error.status != _NOT_FOUND:
                self._report_error(path, error)
            return None

    async def _objects(
        self, path: str, params: dict[str, str], *, metadata_only: bool = False
    ) -> AsyncIterator[Resource]:
        async for page in self._pages(
            path, params, partial(_read_as, ""), metadata_only=metadata_only
        ):
            for found in page:
                yield found

    async def _pages(
        self,
        path: str,
        params: dict[str, str],
        read: Callable[[msgspec.Raw], Resource],
        *,
        metadata_only: bool,
    ) -> AsyncIterator[list[Resource]]:
        try:
            pages = self._api.list_pages(
                path, msgspec.Raw, params=params, metadata_only=metadata_only, limit=PAGE_SIZE
            )
            async for page, _ in pages:
                yield [found for text in page if (found := self._decode(path, text, read))]
        except ApiError as error:
            self._report_error(path, error)

    def _report_error(self, path: str, error: ApiError) -> None:
        """Say what could not be read; where nothing answers, there is nothing else to read."""
        if error.status == _UNREACHABLE:
            raise error
        self._report(f"{path}: {_reason(error)}")

    def _decode(self, path: str, text: msgspec.Raw, read: Callable[[msgspec.Raw], T]) -> T | None:
        """Return one object; in a custom resource without a schema, anything may be stored."""
        try:
            return read(text)
        except msgspec.ValidationError as error:
            metadata = msgspec.json.decode(text, type=PartialObjectMetadata).metadata
            self._report(f"{path}: {metadata.namespace}/{metadata.name}: {error}")
            return None


def _read_as(kind: str, text: msgspec.Raw) -> Resource:
    """Read an object of a list, where it does not say what it is."""
    return replace(msgspec.json.decode(text, type=Resource), kind=kind)


def _read_templates(paths: Sequence[str], text: msgspec.Raw) -> Resource:
    return templates.read(msgspec.json.decode(text), paths)


class _ServedResource(msgspec.Struct):
    name: str
    kind: str


class _GroupVersion(msgspec.Struct):
    groupVersion: str  # noqa: N815 - the API's own name


class _ApiGroup(msgspec.Struct):
    preferredVersion: _GroupVersion  # noqa: N815 - the API's own name


class _ServedResourceList(msgspec.Struct):
    resources: list[_ServedResource]


def _reason(error: ApiError) -> str:
    if error.status == _FORBIDDEN:
        return f"not allowed to read it: {error.message}"
    if error.status == _GONE:
        return "it changed for too long while it was read; run it again when the API server is less busy"
    return error.message or error.reason
