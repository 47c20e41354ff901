"""Reads a cluster: the kinds that it serves, its policy, and its objects, a page at a time."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from reprieve_policy.kube.kinds import ServedKind
from reprieve_policy.kube.objects import ObjectMeta, Resource
from reprieve_policy.kube.template_kinds import TemplateKinds
from reprieve_runtime import deep, templates
from reprieve_runtime.client.api import Api, ApiError, PartialObjectMetadata

from .cluster_policy import POLICY_NAME, POLICY_NAMESPACE, ClusterPolicy

T = TypeVar("T")

PAGE_SIZE = 250
"""Objects a request. A page is dropped before the next one is read: memory stays bounded."""

_METADATA_ONLY_KINDS = frozenset({"Namespace"})
"""Kinds whose rules read metadata only. All others have a template, a spec or a value."""

_POLICY_PATH = f"/api/v1/namespaces/{POLICY_NAMESPACE}/configmaps"
_POLICY_SELECTOR = {"fieldSelector": f"metadata.name={POLICY_NAME}"}
"""The one ConfigMap that has a rule. The others are many and large, and no rule reads them."""


class Collection(NamedTuple):
    """A kind that the cluster serves, and its path."""

    kind: str
    path: str
    template_paths: tuple[str, ...] | None = None
    """Paths of the pod templates in a kind of another project; `None` for the built-in kinds."""


class ClusterReader:
    """Reads a cluster or one namespace of it. Reports what cannot be read, and reads the rest."""

    def __init__(self, api: Api, in_namespace: str, report: Callable[[str], None]) -> None:
        self._api = api
        self._namespace = in_namespace
        self._report = report
        self._namespace_path = f"/namespaces/{quote(in_namespace, safe='')}" if in_namespace else ""

    async def read_policy(self) -> ClusterPolicy:
        """Read the cluster's policy: its ConfigMap, Namespaces and PriorityClasses."""
        policy = ClusterPolicy()
        async for found in self._objects(_POLICY_PATH, _POLICY_SELECTOR):
            policy.add(found)
        async for found in self._namespaces():
            # Items of a list and metadata-only objects do not contain their kind.
            policy.add(replace(found, kind="Namespace"))
        async for found in self._objects("/apis/scheduling.k8s.io/v1/priorityclasses", {}):
            policy.add(replace(found, kind="PriorityClass"))
        return policy

    async def read_each(self, path: str, decode_as: type[T], take: Callable[[T], None]) -> None:
        """Call `take` with each object of a collection; a kind that is not served has none."""
        try:
            async for page, _ in self._api.list_pages(path, msgspec.Raw, limit=PAGE_SIZE):
                for text in page:
                    found = self._decode(path, text, partial(deep.decode, decode_as=decode_as))
                    if found is not None:
                        take(found)
        except ApiError as error:
            if not error.is_not_found:
                self._report_error(path, error)

    async def collections(self, rows: Iterable[ServedKind]) -> AsyncIterator[Collection]:
        """Yield the collection of each served kind, at the first version that is served."""
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
        """Yield the collections of other projects' kinds, at their group's preferred version."""
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
        if collection.template_paths is None:
            read = partial(_read_as, collection.kind)
        else:
            read = partial(_read_templates, collection.template_paths)
        async for page in self._pages(collection.path, selector, read, metadata_only=metadata_only):
            yield page

    async def _namespaces(self) -> AsyncIterator[Resource]:
        """Yield all Namespaces, or only the chosen one: a user may read it without the others."""
        if not self._namespace:
            async for found in self._objects("/api/v1/namespaces", {}, metadata_only=True):
                yield found
            return
        path = f"/api/v1/namespaces/{quote(self._namespace, safe='')}"
        try:
            yield await self._api.get(path, Resource)
        except ApiError as error:
            self._report_error(path, error)
            if error.is_forbidden:
                yield Resource(metadata=ObjectMeta(name=self._namespace))

    async def _preferred_version(self, group: str) -> tuple[str, ...]:
        """Return the preferred version as `group/version`; empty if the group is not served."""
        found = await self._get_if_served(f"/apis/{group}", _ApiGroup)
        return () if found is None else (found.preferredVersion.groupVersion,)

    async def _served_resources(self, base: str) -> Mapping[str, str]:
        """Return the resources of a version by kind, without subresources."""
        found = await self._get_if_served(base, _ServedResourceList)
        resources = () if found is None else found.resources
        return {resource.kind: resource.name for resource in resources if "/" not in resource.name}

    async def _get_if_served(self, path: str, decode_as: type[T]) -> T | None:
        try:
            return await self._api.get(path, decode_as)
        except ApiError as error:
            if not error.is_not_found:
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
        """Report what could not be read; raise if the API server answers nothing to this user."""
        is_silent = error.is_unreachable and not error.is_unreadable
        if is_silent or error.status == HTTPStatus.UNAUTHORIZED:
            raise error
        self._report(f"{path}: {_reason(error)}")

    def _decode(self, path: str, text: msgspec.Raw, read: Callable[[msgspec.Raw], T]) -> T | None:
        """Return one object, or report it: a custom resource without a schema may hold anything."""
        try:
            return read(text)
        except msgspec.ValidationError as error:
            metadata = deep.decode(text, PartialObjectMetadata).metadata
            self._report(f"{path}: {metadata.namespace}/{metadata.name}: {error}")
            return None


def _read_as(kind: str, text: msgspec.Raw) -> Resource:
    """Decode an item of a list, which does not contain its kind."""
    return replace(deep.decode(text, Resource), kind=kind)


def _read_templates(paths: Sequence[str], text: msgspec.Raw) -> Resource:
    return templates.read(deep.decode(text, dict), paths)


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
    if error.is_forbidden:
        return f"not allowed to read it: {error.message}"
    if error.status == HTTPStatus.GONE:
        return "the list expired while it was read; try again when the API server is less busy"
    return error.message or error.reason
