"""What the other pods of a gang state: one bounded record a gang, however many pods it has.

A record holds what one member states, and answers for every further member that states the same.
Only two pods cost a call: the first pod of a gang in a while, and one that differs. A pod is never
refused by a record alone, but by what a live pod states now. So a gang can be deleted and created
again with other values, and a replica that has just started knows what one knows that has run for
weeks.

Labels select a gang's members. Where only an annotation or the spec names the gang, no selector
finds them: then the pods that this replica admitted last are read, and after a start of the replica
the first member counts. The operator reports the divergence that this misses.
"""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from reprieve_policy.facts import Facts, GangTraits
from reprieve_policy.gangs import divergence, membership
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.kube.objects import Resource, pod_views
from reprieve_runtime.bounded_dict import BoundedDict
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.single_flight import SingleFlight
from reprieve_webhooks.lookups.limits import FAIR_LIMITS

from . import gang_members
from .gang_members import AdmittedMember, GangMemberReader

MAX_GANGS = 10_000
"""Records of at most 2 KB. The one unused for longest is dropped first: its gang costs a call."""
TRUSTED_SECONDS = 60.0
"""After this, the next pod confirms a record: the gang may have been created again elsewhere."""
IN_FLIGHT_SECONDS = 1.0
"""From an admission until the pod can be read, at most."""
_STORED_SECONDS = 0.2
"""From an admission until the pod can be read, usually: so long, one that differs waits."""
_MAX_ADMITTED_MEMBERS = 3

_Key = tuple[str, str, str]
"""The namespace, and the gang's identity in it."""


class _GangRecord(NamedTuple):
    traits: GangTraits
    confirmed_at: float
    """When it was created or confirmed."""
    admitted_members: tuple[AdmittedMember, ...]
    """The pods admitted last, where no label selects the members."""


class GangRecords:
    """The records of one replica."""

    def __init__(
        self,
        api: Api,
        *,
        timeout_seconds: float,
        count: Callable[[str], None] = lambda _: None,
        max_gangs: int = MAX_GANGS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._member_reader = GangMemberReader(api, timeout_seconds=timeout_seconds)
        self._count_lookup = count
        self._monotonic = monotonic
        self._single_flight: SingleFlight[_Key, GangTraits | None] = SingleFlight(
            0.0, limits=FAIR_LIMITS, monotonic=monotonic
        )
        self._records: BoundedDict[_Key, _GangRecord] = BoundedDict(max_gangs)

    def __len__(self) -> int:
        return len(self._records)

    async def other_members_traits(
        self, pod: Resource, namespace: str, facts: Facts, *, is_dry_run: bool = False
    ) -> GangTraits | None:
        """Return what the other members of a new pod's gang state.

        `None` if there are none, or if they cannot be read now.
        """
        view = next(pod_views(pod))
        gang = membership.read(view)
        if (
            gang is None
            or not gang.is_declared
            or not gang_members.can_list_members(namespace, gang)
        ):
            return None
        key = (namespace, *gang.key)
        own: GangTraits = divergence.traits_of(view, gang, facts)
        others: GangTraits | None = own
        record = self._records.get(key)
        if record is None or record.traits != own or self._age(record) > TRUSTED_SECONDS:
            try:
                others = await self._confirm(key, gang, facts)
            except (ApiError, msgspec.MsgspecError):
                # The verdict of the other rules must not depend on a call that only this one needs.
                self._count_lookup("unknown")
                return None
            record = self._records.get(key)
        if not is_dry_run and others in (None, own):
            admitted = gang_members.admitted_member_of(pod) if gang.selector is None else None
            self._record_member(key, own, None if others is None else record, admitted)
        return others

    def forget(self, pod: Resource, namespace: str) -> None:
        """Forget the gang of a member that changed: the next pod is compared with the live pods."""
        gang = membership.read(next(pod_views(pod)))
        if gang is not None:
            self._records.pop((namespace, *gang.key), None)

    async def _confirm(self, key: _Key, gang: Gang, facts: Facts) -> GangTraits | None:
        read = partial(self._read_traits, gang, key[0], facts)
        traits = await self._single_flight.do(key, read, namespace=key[0])
        record = self._records.get(key)
        if traits is None and record is not None and self._age(record) <= IN_FLIGHT_SECONDS:
            # A pod was admitted a moment ago, and may not be stored yet. What is not stored refuses
            # nothing: a client that reaches the port could have pods admitted that are never made,
            # and so keep the real ones of a gang out.
            await asyncio.sleep(_STORED_SECONDS)
            traits = await self._single_flight.do(key, read, namespace=key[0])
            record = self._records.get(key)
        self._count_lookup("no-member" if traits is None else "member")
        if traits is None:
            return None
        self._records[key] = _GangRecord(
            traits, self._monotonic(), () if record is None else record.admitted_members
        )
        return traits

    async def _read_traits(self, gang: Gang, namespace: str, facts: Facts) -> GangTraits | None:
        record = self._records.get((namespace, *gang.key))
        admitted = () if record is None else record.admitted_members
        member = await self._member_reader.find_live_member(gang, namespace, admitted)
        return None if member is None else divergence.traits_of(*member, facts)

    def _record_member(
        self,
        key: _Key,
        traits: GangTraits,
        record: _GangRecord | None,
        admitted_member: AdmittedMember | None,
    ) -> None:
        """Add a member to the record of the others, or start a record with it."""
        known = _GangRecord(traits, self._monotonic(), ()) if record is None else record
        if admitted_member is not None and admitted_member not in known.admitted_members:
            known = known._replace(
                admitted_members=(admitted_member, *known.admitted_members)[:_MAX_ADMITTED_MEMBERS]
            )
        self._records[key] = known

    def _age(self, record: _GangRecord) -> float:
        return self._monotonic() - record.confirmed_at
