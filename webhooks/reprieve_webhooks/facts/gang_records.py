"""What the other pods of a gang say: one bounded record a gang, however many pods it has.

A record is made of what one member says, and answers at once for every further member that says the same. Only the first
pod of a gang in a while and one that differs cost a call: a pod is never refused for what a record says alone, but for
what a living pod says now, or one that this replica admitted a moment ago and that may not be stored yet. So a gang may be
deleted and made anew with other values, and a replica that was just started knows what one knows that runs for weeks.

Labels select a gang's members. Where only an annotation or the spec names the gang, nothing does: then the pods that this
replica admitted last are asked, and after its start the first member counts. What is missed, the operator reports.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec

from reprieve_policy.facts import Facts, GangTraits
from reprieve_policy.gangs import divergence, membership
from reprieve_policy.gangs.membership import Gang
from reprieve_policy.kube.objects import Resource, pod_views
from reprieve_runtime.client.api import Api, ApiError
from reprieve_webhooks.lookups.single_flight import SingleFlight

from . import gang_members
from .gang_members import AdmittedMember, GangMemberReader

MAX_GANGS = 10_000
"""Records of at most 2 KB. The longest unused goes first, and costs its gang one call."""
TRUSTED_SECONDS = 60.0
"""After this, the next pod confirms a record: another replica may have seen the gang made anew."""
IN_FLIGHT_SECONDS = 1.0
"""From an admission until the pod can be read."""
_MAX_ADMITTED_MEMBERS = 3

_Key = tuple[str, str, str]
"""Namespace, and what tells the gang from others there."""


class _GangRecord(NamedTuple):
    traits: GangTraits
    confirmed_at: float
    """When it was made or confirmed."""
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
        self._max_gangs = max_gangs
        self._monotonic = monotonic
        self._single_flight: SingleFlight[_Key, GangTraits | None] = SingleFlight(
            0.0, monotonic=monotonic
        )
        self._records: dict[_Key, _GangRecord] = {}

    def __len__(self) -> int:
        return len(self._records)

    async def other_members_traits(
        self, pod: Resource, namespace: str, facts: Facts, *, is_dry_run: bool = False
    ) -> GangTraits | None:
        """Return what the other members of a new pod's gang say; `None` where there are none, or nobody knows."""
        view = next(pod_views(pod))
        found = membership.read(view)
        if (
            found is None
            or not found.is_declared
            or not gang_members.can_list_members(namespace, found)
        ):
            return None
        key = (namespace, *found.key)
        mine: GangTraits = divergence.traits_of(view, found, facts)
        rest: GangTraits | None = mine
        record = self._records.get(key)
        if record is None or record.traits != mine or self._age(record) > TRUSTED_SECONDS:
            try:
                rest = await self._confirm(key, found, facts)
            except (ApiError, msgspec.MsgspecError):
                # What the other rules say of the pod must not depend on a call that only this one needs.
                self._count_lookup("unknown")
                return None
            record = self._records.get(key)
        if not is_dry_run and rest in (None, mine):
            witness = gang_members.admitted_member_of(pod) if found.selector is None else None
            self._record_member(key, mine, None if rest is None else record, witness)
        return rest

    def forget(self, pod: Resource, namespace: str) -> None:
        """Forget the gang of a member that changed: the next one is compared with what lives then."""
        found = membership.read(next(pod_views(pod)))
        if found is not None:
            self._records.pop((namespace, *found.key), None)

    async def _confirm(self, key: _Key, found: Gang, facts: Facts) -> GangTraits | None:
        traits = await self._single_flight.do(key, partial(self._read_traits, found, key[0], facts))
        self._count_lookup("nobody" if traits is None else "member")
        record = self._records.get(key)
        if traits is None:
            is_in_flight = record is not None and self._age(record) <= IN_FLIGHT_SECONDS
            return record.traits if record is not None and is_in_flight else None
        self._store(
            key,
            _GangRecord(
                traits, self._monotonic(), () if record is None else record.admitted_members
            ),
        )
        return traits

    async def _read_traits(self, found: Gang, namespace: str, facts: Facts) -> GangTraits | None:
        record = self._records.get((namespace, *found.key))
        witnesses = () if record is None else record.admitted_members
        member = await self._member_reader.find_live_member(found, namespace, witnesses)
        return None if member is None else divergence.traits_of(*member, facts)

    def _record_member(
        self,
        key: _Key,
        traits: GangTraits,
        record: _GangRecord | None,
        admitted_member: AdmittedMember | None,
    ) -> None:
        """Take in a member, to the record of the others or as the first."""
        known = _GangRecord(traits, self._monotonic(), ()) if record is None else record
        if admitted_member is not None and admitted_member not in known.admitted_members:
            known = known._replace(
                admitted_members=(admitted_member, *known.admitted_members)[:_MAX_ADMITTED_MEMBERS]
            )
        self._store(key, known)

    def _store(self, key: _Key, record: _GangRecord) -> None:
        # Put last: the longest unused is the first.
        self._records.pop(key, None)
        self._records[key] = record
        if len(self._records) > self._max_gangs:
            del self._records[next(iter(self._records))]

    def _age(self, record: _GangRecord) -> float:
        return self._monotonic() - record.confirmed_at
