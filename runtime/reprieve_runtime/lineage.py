"""Finds the composite owner (a JobSet, for example) above a pod's controller, by a few look-ups."""

from collections.abc import Awaitable, Callable

from reprieve_policy.kube import owners
from reprieve_policy.kube.objects import ObjectMeta, OwnerReference, controller_of

OwnerLookup = Callable[[str, str], Awaitable[ObjectMeta | None]]
"""By resource and name, in the pod's namespace."""


async def find_root_owner(
    reference: OwnerReference, get_metadata: OwnerLookup
) -> OwnerReference | None:
    """Return the composite owner that recreates the object of `reference`, such as a Job's JobSet.

    Returns `None` if there is none. An object with the same name and another uid does not count.
    Raises what `get_metadata` raises.
    """
    for _ in range(owners.MAX_OWNER_DEPTH):
        link = owners.nested_kind_of(reference)
        found = None if link is None else await get_metadata(link.resource, reference.name)
        above = controller_of(found) if found is not None and found.uid == reference.uid else None
        if above is None or not owners.is_made_by(reference, above):
            return None
        row = owners.ledger_kind_of(above)
        if row is not None and row.is_composite:
            return above
        reference = above
    return None
