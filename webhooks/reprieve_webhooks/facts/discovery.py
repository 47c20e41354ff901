"""Whether the API server serves native Evictions, read when a new pod may name a responder.

The result is reused for half a minute, so that an upgrade of the server, or a change of its feature
gate, is noticed. If discovery fails, they count as not served: the verdict of the other rules on
the pod must not depend on a call that only this one needs.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.eviction_requests import objects
from reprieve_policy.kube.objects import Resource
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.single_flight import SingleFlight
from reprieve_webhooks.lookups.limits import DEFAULT_LIMITS

TTL_SECONDS: Final = 30.0
_RESOURCE = "evictions"
_GROUP_VERSION = object_path(_RESOURCE).rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class _ApiResource:
    name: str = ""


@dataclass(frozen=True, slots=True)
class _ApiResourceList:
    resources: tuple[_ApiResource, ...] = ()


class EvictionDiscovery:
    """The API server's discovery, read at most once in half a minute."""

    def __init__(
        self, api: Api, *, timeout_seconds: float, ttl_seconds: float = TTL_SECONDS
    ) -> None:
        self._api = api
        self._timeout_seconds = timeout_seconds
        self._single_flight: SingleFlight[str, bool] = SingleFlight(
            ttl_seconds, limits=DEFAULT_LIMITS
        )

    async def are_served_for(self, pod: Resource, settings: PolicySettings) -> bool:
        """Return whether a new pod may name a responder; never raises.

        The API server is not called for a pod that wants none.
        """
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
            if error.is_not_found:
                return False
            raise
        return any(
            resource.name == _RESOURCE
            for resource in msgspec.json.decode(text, type=_ApiResourceList).resources
        )
