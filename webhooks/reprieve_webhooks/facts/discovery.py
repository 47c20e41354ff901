"""Whether the API server serves native Evictions: asked when a new pod is to name us as a responder, and not otherwise.

An answer holds for half a minute, so that a server that was upgraded, or whose feature gate was switched, is noticed. Where it cannot
be had, they count as not served: what the other rules say of the pod must not depend on a call that only this one needs.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.eviction_requests import objects
from reprieve_policy.kube.objects import Resource
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_webhooks.lookups.single_flight import SingleFlight

TTL_SECONDS: Final = 30.0
_RESOURCE = "evictions"
_GROUP_VERSION = object_path(_RESOURCE).rpartition("/")[0]
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class _ApiResource:
    name: str = ""


@dataclass(frozen=True, slots=True)
class _ApiResourceList:
    resources: tuple[_ApiResource, ...] = ()


class EvictionDiscovery:
    """What the API server's discovery says, for all who ask within half a minute."""

    def __init__(
        self, api: Api, *, timeout_seconds: float, ttl_seconds: float = TTL_SECONDS
    ) -> None:
        self._api = api
        self._timeout_seconds = timeout_seconds
        self._single_flight: SingleFlight[str, bool] = SingleFlight(ttl_seconds)

    async def are_served_for(self, pod: Resource, settings: PolicySettings) -> bool:
        """Return whether a new pod may name a responder; nobody is asked where it would not. Never raises."""
        if not objects.wants_responder(pod, settings):
            return False
        try:
            return await self._single_flight.do(_RESOURCE, self._discover)
        except (ApiError, msgspec.MsgspecError):
            return False

    async def _discover(self) -> bool:
        try:
            text = await self._api.request(
                "GET", _GROUP_VERSION, timeout_seconds=self._timeout_seconds
            )
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return False
            raise
        return any(
            found.name == _RESOURCE
            for found in msgspec.json.decode(text, type=_ApiResourceList).resources
        )
