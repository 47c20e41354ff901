"""The live members of a gang, read by label, or by name where no label selects them."""

from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple

import msgspec

from reprieve_policy.gangs import membership
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.kube.names import is_namespace_name, is_object_name, is_uid
from reprieve_policy.kube.objects import PodView, Resource
from reprieve_policy.kube.pods import Pod, is_terminating
from reprieve_runtime import deep
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

_LIST_LIMIT = 8
"""Pods to read: more than one, because the first may be terminating."""
_MAX_BYTES = 1024 * 1024
"""Bytes of these pods; of larger ones, only the first is read, and none that has more by itself. A
pod may have 1.5 MB, and the reviews of a hundred gangs may read at once."""
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"


class AdmittedMember(NamedTuple):
    """A pod that was admitted as a member."""

    name: str
    uid: str


class _PodList(msgspec.Struct, gc=False):
    items: list[Pod]


class GangMemberReader:
    """Reads pods; raises `ApiError` where they cannot be read."""

    def __init__(self, api: Api, *, timeout_seconds: float) -> None:
        self._api = api
        self._timeout_seconds = timeout_seconds

    async def find_live_member(
        self, gang: Gang, namespace: str, admitted: Iterable[AdmittedMember]
    ) -> tuple[PodView, Gang] | None:
        """Return a live member and the gang that it states; `None` if there is none."""
        pods = (
            self._get_by_name(namespace, admitted)
            if gang.selector is None
            else self._list_by_label(namespace, gang.selector)
        )
        async for pod in pods:
            view = pod.view
            member = membership.read(view)
            if member is not None and member.key == gang.key and not is_terminating(pod):
                return view, member
        return None

    async def _list_by_label(self, namespace: str, selector: str) -> AsyncIterator[Pod]:
        path = object_path("pods", namespace)
        params = {"labelSelector": selector, "fieldSelector": _NOT_ENDED}
        for limit in (_LIST_LIMIT, 1):
            text = await self._read(path, params | {"limit": str(limit)})
            if text is not None:
                for pod in deep.decode(text, _PodList).items:
                    yield pod
                return

    async def _get_by_name(
        self, namespace: str, admitted: Iterable[AdmittedMember]
    ) -> AsyncIterator[Pod]:
        for member in admitted:
            try:
                text = await self._read(object_path("pods", namespace, member.name), {})
            except ApiError as error:
                if error.is_not_found:
                    continue
                raise
            pod = None if text is None else deep.decode(text, Pod)
            if pod is not None and pod.metadata.uid == member.uid:
                yield pod

    async def _read(self, path: str, params: dict[str, str]) -> bytes | None:
        """Return the answer; `None` if it is too large.

        Without that, no rule would be applied to the next pods of a gang with a large one: a review
        that fails admits a pod.
        """
        try:
            return await self._api.request(
                "GET",
                path,
                params=params,
                timeout_seconds=self._timeout_seconds,
                max_bytes=_MAX_BYTES,
            )
        except ApiError as error:
            if error.is_answer_too_large:
                return None
            raise


def can_list_members(namespace: str, gang: Gang) -> bool:
    """True where the members can be read and may differ: a Job's pods all have one template."""
    return not gang.is_batch_job and is_namespace_name(namespace)


def admitted_member_of(pod: Resource) -> AdmittedMember | None:
    """Return how to find this pod again; `None` if it has no name yet, or an invalid one."""
    name, uid = pod.metadata.name or "", pod.metadata.uid or ""
    return AdmittedMember(name, uid) if is_object_name(name) and is_uid(uid) else None
