"""Calls of the test itself, which go on while the control plane is disturbed."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from reprieve_runtime.client.api import ApiError

T = TypeVar("T")

_PATIENCE_SECONDS = 90.0
_PAUSE_SECONDS = 0.5
_TOO_MANY = 429


async def insist(call: Callable[..., Awaitable[T]], *arguments: Any) -> T:
    """Return the result of a call that may fail while the control plane is disturbed."""
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return await call(*arguments)
        except (ApiError, ExceptionGroup) as error:
            if not _is_passing(error) or time.monotonic() > give_up_at:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)


def _is_passing(error: Exception) -> bool:
    """True if only the control plane's state can be the reason."""
    if isinstance(error, ExceptionGroup):
        return all(_is_passing(one) for one in error.exceptions)
    return isinstance(error, ApiError) and (
        error.is_unreachable or error.status >= 500 or error.status == _TOO_MANY
    )
