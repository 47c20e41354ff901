"""The pods that gangs which are evicted pod by pod can spare: one list serves many victims. No I/O.

The list of a gang is used for a second. Without this, each victim of a gang would list all of it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from reprieve_policy.gangs import disruption
from reprieve_policy.gangs.disruption import GangMemberState

LIST_TTL_SECONDS = 1.0

GangKey = tuple[str, str]
"""The namespace and the gang's identity."""


@dataclass(frozen=True, slots=True)
class _StayingPods:
    listed_at: float
    """When the list was complete: a list that took longer than it is used would serve one victim
    only."""
    uids: set[str]
    """The pods that stay, without the victims that were taken since."""


class SparePods:
    """The latest list of each gang; the caller lets one victim of a gang ask at a time."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lists: dict[GangKey, _StayingPods] = {}

    def try_take(self, key: GangKey, uid: str, minimum: int) -> bool:
        """Count the pod as leaving if its gang keeps `minimum` others.

        False also without a recent list. An older one may lack new pods, so the caller lists the
        gang before all of it goes.
        """
        staying = self._lists.get(key)
        return (
            staying is not None
            and not self._is_old(staying)
            and _try_take(staying.uids, uid, minimum)
        )

    def try_take_listed(
        self, key: GangKey, uid: str, minimum: int, members: Iterable[GangMemberState]
    ) -> bool:
        """Do the same with a new list of the gang's pods, which serves the next victims, too."""
        self._lists = {
            known: staying for known, staying in self._lists.items() if not self._is_old(staying)
        }
        uids = disruption.staying_pods(members)
        self._lists[key] = _StayingPods(self._monotonic(), uids)
        return _try_take(uids, uid, minimum)

    def _is_old(self, staying: _StayingPods) -> bool:
        return self._monotonic() - staying.listed_at >= LIST_TTL_SECONDS


def _try_take(staying: set[str], uid: str, minimum: int) -> bool:
    is_spared = disruption.can_spare(uid, staying, minimum)
    if is_spared:
        # Without this, victims that the list does not yet show as such would undercut the minimum.
        staying.discard(uid)
    return is_spared
