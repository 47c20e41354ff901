"""Which whole a pod's controller is a part of: a few look-ups, one above the other."""

from collections.abc import Awaitable, Callable

from reprieve_policy.kube import owners
from reprieve_policy.kube.objects import ObjectMeta, OwnerReference, controller_of

OwnerLookup = Callable[[str, str], Awaitable[ObjectMeta | None]]
"""By resource and name, in the pod's namespace."""


async def find_root_owner(
    reference: OwnerReference, get_metadata: OwnerLookup
) -> OwnerReference | None:
    """Return the JobSet, say, that makes the Job which `reference` names anew; `None` where nobody does.

    Raises what `look_up` raises. An object made anew under an old name is another.
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
