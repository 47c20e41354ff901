"""The living members of a gang, read from the API server: by label where one selects them, else by name."""

from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

import msgspec

from reprieve_policy.gangs import membership
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.kube.objects import PodView, Resource
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.stored_pod import StoredPod
from reprieve_webhooks.lookups.getter import is_valid_name

_LIST_LIMIT = 8
"""Pods asked for: more than one, because the first may be on its way out."""
_NOT_FOUND = 404
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"


class AdmittedMember(NamedTuple):
    """A pod that was admitted as a member."""

    name: str
    uid: str


class _StoredPodList(msgspec.Struct, gc=False):
    items: list[StoredPod]


class GangMemberReader:
    """Reads pods; raises `ApiError` where they cannot be read."""

    def __init__(self, api: Api, *, timeout_seconds: float) -> None:
        self._api = api
        self._timeout_seconds = timeout_seconds

    async def find_live_member(
        self, found: Gang, namespace: str, admitted: Iterable[AdmittedMember]
    ) -> tuple[PodView, Gang] | None:
        """Return a member that lives, and what it says of its gang; `None` where none is found."""
        pods = (
            self._get_by_name(namespace, admitted)
            if found.selector is None
            else self._list_by_label(namespace, found.selector)
        )
        async for pod in pods:
            view = pod.view
            member = membership.read(view)
            if member is not None and member.key == found.key and not pod.is_terminating:
                return view, member
        return None

    async def _list_by_label(self, namespace: str, selector: str) -> AsyncIterator[StoredPod]:
        asked = {"labelSelector": selector, "fieldSelector": _NOT_ENDED, "limit": str(_LIST_LIMIT)}
        for pod in msgspec.json.decode(
            await self._read(object_path("pods", namespace), asked), type=_StoredPodList
        ).items:
            yield pod

    async def _get_by_name(
        self, namespace: str, admitted: Iterable[AdmittedMember]
    ) -> AsyncIterator[StoredPod]:
        for witness in admitted:
            try:
                text = await self._read(object_path("pods", namespace, witness.name), {})
            except ApiError as error:
                if error.status != _NOT_FOUND:
                    raise
                continue
            pod = msgspec.json.decode(text, type=StoredPod)
            if pod.metadata.uid == witness.uid:
                yield pod

    async def _read(self, path: str, params: dict[str, str]) -> bytes:
        return await self._api.request(
            "GET", path, params=params, timeout_seconds=self._timeout_seconds
        )


def can_list_members(namespace: str, found: Gang) -> bool:
    """True where the members may be asked for: a Job's pods are all of one template, and agree by themselves."""
    return not found.is_batch_job and is_valid_name(namespace) is not None


def admitted_member_of(pod: Resource) -> AdmittedMember | None:
    """Return how to find this pod again, `None` for one that has no name yet, or none that could be one."""
    name, uid = pod.metadata.name or "", pod.metadata.uid or ""
    return AdmittedMember(name, uid) if is_valid_name(name) and uid else None
