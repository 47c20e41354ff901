"""One object read from the API server because no watch has it yet."""

import re
from functools import partial
from typing import Generic, TypeVar

import msgspec

from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path

from .rate_limit import RateLimits
from .single_flight import DEFAULT_LIMITS, SingleFlight

_NOT_FOUND = 404
TTL_SECONDS = 1.0
"""An answer holds for so long, also that there is no such object; what a watch learns meanwhile goes before it."""

is_valid_name = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?").fullmatch
"""What can be the name of an object. Users write it: without this, `..` would ask for another path."""

T = TypeVar("T")


class CachedGetter(Generic[T]):
    """Looks objects up by collection, name and namespace."""

    def __init__(
        self,
        api: Api,
        decode_as: type[T],
        *,
        timeout_seconds: float,
        ttl_seconds: float = TTL_SECONDS,
        limits: RateLimits = DEFAULT_LIMITS,
    ) -> None:
        self._api = api
        self._decode_as = decode_as
        self._timeout_seconds = timeout_seconds
        self._single_flight: SingleFlight[str, T | None] = SingleFlight(ttl_seconds, limits=limits)

    async def find(self, resource: str, name: str, namespace: str | None = None) -> T | None:
        """Return the object, `None` where there is none; `ApiError` where that cannot be known now."""
        if not is_valid_name(name) or not is_valid_name(namespace or "all"):
            return None
        path = object_path(resource, namespace, name)
        return await self._single_flight.do(
            path, partial(self._read, path), namespace=namespace or ""
        )

    async def _read(self, path: str) -> T | None:
        try:
            text = await self._api.request("GET", path, timeout_seconds=self._timeout_seconds)
        except ApiError as error:
            if error.status == _NOT_FOUND:
                return None
            raise
        return msgspec.json.decode(text, type=self._decode_as)
