"""A patch of a pod outside of kopf's handlers, with kopf's own connection and credentials.

kopf has no public client: this is the only module that uses its internals, and `pyproject.toml`
names the versions for which its tests ran.
"""

from typing import Any

import kopf
from kopf._cogs.clients import patching


class NotPatched(Exception):  # noqa: N818 - a state, not a fault of this program
    """The patch was refused, or did not reach the API server."""


async def patch_pod(settings: kopf.OperatorSettings, event: dict[str, Any], patch: Any) -> bool:
    """Patch the pod of an event; `False` if it has changed since. It may be gone already.

    Raises `NotPatched`. It must be called in a task that a handler of kopf has started.
    """
    try:
        _, remaining = await patching.patch_obj(
            settings=settings,
            resource=event["resource"],
            namespace=event["namespace"],
            name=event["name"],
            patch=patch,
            logger=event["logger"],
        )
    except Exception as error:
        raise NotPatched(str(error) or type(error).__name__) from error
    return remaining is None
