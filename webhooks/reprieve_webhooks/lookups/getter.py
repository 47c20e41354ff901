"""Reads one object from the API server that no watch has yet."""

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from reprieve_policy.kube.names import is_namespace_name, is_object_name
from reprieve_runtime import deep
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.client.paths import object_path
from reprieve_runtime.rate_limit import RateLimits
from reprieve_runtime.single_flight import SingleFlight

from .limits import DEFAULT_LIMITS

TTL_SECONDS = 1.0
"""A result is reused for this long, also that the object does not exist; callers prefer what a
watch learns meanwhile."""

K = TypeVar("K")
V = TypeVar("V")


def unchanged(found: K) -> K:
    """Keep all that is decoded: of a kind that only admins write, or a few short fields."""
    return found


class CachedGetter(Generic[V]):
    """Reads objects by collection, name and namespace.

    `transform` makes of each object what is kept of it: as long as a result is reused, and as long
    as a review takes. Where users write the object, that must be little: one of 512 KiB takes ten
    times as much in memory where it has very many labels. Without this, some dozens of them would
    have the webhooks killed.
    """

    def __init__(
        self,
        api: Api,
        decode_as: type[K],
        transform: Callable[[K], V],
        *,
        timeout_seconds: float,
        ttl_seconds: float = TTL_SECONDS,
        limits: RateLimits | None = DEFAULT_LIMITS,
        max_bytes: int | None = None,
    ) -> None:
        """`limits`: `None` where the number of reads is bounded otherwise.

        `max_bytes`: an object that has more cannot be read.
        """
        self._api = api
        self._max_bytes = max_bytes
        self._read_text: Callable[[bytes], V] = lambda text: transform(deep.decode(text, decode_as))
        self._timeout_seconds = timeout_seconds
        self._single_flight: SingleFlight[str, V | None] = SingleFlight(ttl_seconds, limits=limits)

    async def find(self, resource: str, name: str, namespace: str | None = None) -> V | None:
        """Return what is kept of the object, `None` if it does not exist.

        Raises `ApiError` if it cannot be read now.
        """
        if not is_object_name(name) or not is_namespace_name(namespace or "all"):
            return None
        path = object_path(resource, namespace, name)
        return await self._single_flight.do(
            path, partial(self._read, path), namespace=namespace or ""
        )

    async def _read(self, path: str) -> V | None:
        try:
            text = await self._api.request(
                "GET", path, timeout_seconds=self._timeout_seconds, max_bytes=self._max_bytes
            )
        except ApiError as error:
            if error.is_not_found:
                return None
            raise
        return self._read_text(text)
