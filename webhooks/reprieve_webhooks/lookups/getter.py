"""Reads one object from the API server that no watch has yet."""

from functools import partial
from typing import Generic, TypeVar

import msgspec

from reprieve_policy.kube.names import is_namespace_name, is_object_name
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.rate_limit import RateLimits
from reprieve_runtime.single_flight import SingleFlight

from .limits import DEFAULT_LIMITS

TTL_SECONDS = 1.0
"""A result is reused for this long, also that the object does not exist; callers prefer what a
watch learns meanwhile."""

T = TypeVar("T")


class CachedGetter(Generic[T]):
    """Reads objects by collection, name and namespace."""

    def __init__(
        self,
        api: Api,
        decode_as: type[T],
        *,
        timeout_seconds: float,
        ttl_seconds: float = TTL_SECONDS,
        limits: RateLimits = DEFAULT_LIMITS,
        max_bytes: int | None = None,
    ) -> None:
        """`max_bytes`: an object that has more cannot be read."""
        self._api = api
        self._max_bytes = max_bytes
        self._decode_as = decode_as
        self._timeout_seconds = timeout_seconds
        self._single_flight: SingleFlight[str, T | None] = SingleFlight(ttl_seconds, limits=limits)

    async def find(self, resource: str, name: str, namespace: str | None = None) -> T | None:
        """Return the object, `None` if it does not exist; `ApiError` if it cannot be read now."""
        if not is_object_name(name) or not is_namespace_name(namespace or "all"):
            return None
        path = object_path(resource, namespace, name)
        return await self._single_flight.do(
            path, partial(self._read, path), namespace=namespace or ""
        )

    async def _read(self, path: str) -> T | None:
        try:
            text = await self._api.request(
                "GET", path, timeout_seconds=self._timeout_seconds, max_bytes=self._max_bytes
            )
        except ApiError as error:
            if error.is_not_found:
                return None
            raise
        return msgspec.json.decode(text, type=self._decode_as)
