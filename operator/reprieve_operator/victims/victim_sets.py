"""The victims of one preemptor on one node: which of them still save, and what wakes the others.

No I/O: all of it is computed from the pods that the watch of victims shows and that the operator
writes. `lifecycle.victim_set` decides which pods are a set.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from reprieve_operator.clock import Clock
from reprieve_operator.cluster import pod_state
from reprieve_operator.cluster.pods import VictimPod
from reprieve_policy.lifecycle.victim_set import VictimSetKey

_GROWING_SECONDS = 0.5
"""How long after the first victim of a set others are marked: the guard marks them one by one,
within one review, or within the reviews of one scheduling attempt."""


@dataclass(slots=True)
class SetMember:
    """A victim that names its preemptor."""

    wake: Callable[[], None]
    key: VictimSetKey
    joined_at: float
    """When this process first saw the mark, on the monotonic clock."""
    awaited_until: datetime | None = None
    """Until when the others wait for it to save; `None`: they do not."""
    waits_for_gang: bool = False
    """It is ready itself, and its gang is not. Without this, the others would be deleted while it
    still takes its room."""


@dataclass(slots=True)
class _VictimSet:
    grows_since: float = 0.0
    grows_until: float = 0.0
    """Both on the monotonic clock."""
    members: dict[str, SetMember] = field(default_factory=dict)


class VictimSets:
    """All sets of one term; holds only victims that name a preemptor."""

    def __init__(self, clock: Clock, *, growing_seconds: float = _GROWING_SECONDS) -> None:
        self._clock = clock
        self._growing_seconds = growing_seconds
        self._members: dict[str, SetMember] = {}
        self._sets: dict[VictimSetKey, _VictimSet] = {}
        self._is_complete = False
        self._filled, self._emptied = asyncio.Event(), asyncio.Event()
        self._emptied.set()

    def __contains__(self, key: VictimSetKey) -> bool:
        return key in self._sets

    @property
    def has_any(self) -> bool:
        """True if there is a victim that names its preemptor."""
        return bool(self._members)

    async def wait_until_any(self) -> None:
        """Wait until there is a victim that names its preemptor."""
        await self._filled.wait()

    async def wait_until_none(self) -> None:
        """Wait until there is no victim that names its preemptor."""
        await self._emptied.wait()

    def find(self, uid: str) -> SetMember | None:
        """Return a victim; `None` if it names no preemptor."""
        return self._members.get(uid)

    def wake(self, key: VictimSetKey) -> None:
        """Wake the reconcilers of a set."""
        found = self._sets.get(key)
        for member in () if found is None else found.members.values():
            member.wake()

    def on_listed(self) -> None:
        """Note that all victims are known: those that exist were listed.

        Without this, a new operator would delete one victim before it has seen the others.
        """
        self._is_complete = True
        for member in self._members.values():
            member.wake()

    def on_pod_update(self, pod: VictimPod, wake: Callable[[], None]) -> None:
        """Take over a victim as it is now; `wake` wakes its reconciler."""
        uid, key = pod.metadata.uid or "", pod_state.victim_set_of(pod)
        known = self._members.get(uid)
        if known is not None and known.key != key:
            self.remove(uid)
        if key is None:
            return
        if uid not in self._members:
            self._join(pod, uid, SetMember(wake, key, self._clock.monotonic()))
        member = self._members[uid]
        before, member.awaited_until = member.awaited_until, pod_state.awaited_by_set_until(pod)
        if before is not None and member.awaited_until is None:
            self._wake_ready(key)

    def on_gang_observed(self, uid: str, *, waits_for_gang: bool) -> None:
        """Note whether a victim that is ready itself waits for its gang."""
        member = self._members.get(uid)
        if member is None or member.waits_for_gang == waits_for_gang:
            return
        member.waits_for_gang = waits_for_gang
        if not waits_for_gang:
            self._wake_ready(member.key)

    def remove(self, uid: str) -> None:
        """Drop a victim: it is gone, or stays, or its reconciler has ended."""
        member = self._members.pop(uid, None)
        if member is None:
            return
        if not self._members:
            self._filled.clear()
            self._emptied.set()
        rest = self._sets[member.key].members
        del rest[uid]
        if not rest:
            del self._sets[member.key]
        elif member.awaited_until is not None or member.waits_for_gang:
            self._wake_ready(member.key)

    def is_ready(self, uid: str) -> bool:
        """True if no other victim of its set still saves, or waits for a gang that does.

        A pod in no set waits for none.
        """
        member = self._members.get(uid)
        if member is None:
            return True
        others = self._sets[member.key].members.items()
        return self._is_complete and not any(
            self._is_awaited(other) for other_uid, other in others if other_uid != uid
        )

    def may_grow(self, uid: str) -> bool:
        """True if other victims of its set may be marked in the next moment."""
        member = self._members.get(uid)
        return member is not None and self._clock.monotonic() < self._sets[member.key].grows_until

    def _join(self, pod: VictimPod, uid: str, member: SetMember) -> None:
        self._members[uid] = member
        self._filled.set()
        self._emptied.clear()
        victim_set = self._sets.setdefault(member.key, _VictimSet())
        if member.joined_at >= victim_set.grows_until:
            self._begin_to_grow(victim_set, member)
        victim_set.members[uid] = member
        size = pod_state.victims_in_set(pod)
        # One of an earlier attempt, which was reprieved, say, is none of these.
        joined = sum(one.joined_at >= victim_set.grows_since for one in victim_set.members.values())
        if size is not None and joined >= size:
            victim_set.grows_until = self._clock.monotonic()
            self._wake_ready(member.key)

    def _begin_to_grow(self, victim_set: _VictimSet, first: SetMember) -> None:
        victim_set.grows_since = first.joined_at
        victim_set.grows_until = first.joined_at + self._growing_seconds
        loop = asyncio.get_running_loop()
        loop.call_later(self._growing_seconds, self._wake_ready, first.key)

    def _is_awaited(self, member: SetMember) -> bool:
        is_saving = member.awaited_until is not None and self._clock.now() < member.awaited_until
        return is_saving or member.waits_for_gang

    def _wake_ready(self, key: VictimSetKey) -> None:
        """Wake a set of which no victim saves any more."""
        found = self._sets.get(key)
        members = () if found is None else found.members.values()
        if not any(map(self._is_awaited, members)):
            self.wake(key)
