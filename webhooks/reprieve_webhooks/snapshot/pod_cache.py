"""All pods that have room or wait for it, each judged by what is known of its Namespace, its classes, its group and its Job.

A pod is judged when it comes or changes, and again when one of those does: for that its few fields are kept, packed, beside
the tenant that they make.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import NamedTuple, TypeVar

import msgspec

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.config.walltime import Walltime
from reprieve_policy.facts import Facts
from reprieve_policy.gangs.pod_group import NativeGroup
from reprieve_policy.kube.objects import Resource, controller_of, group_name_of
from reprieve_policy.kube.quota import Shape
from reprieve_policy.preemption.selection import snapshot_builder
from reprieve_policy.preemption.selection.api_objects import Pod
from reprieve_policy.preemption.selection.snapshot import Group, GroupKey, Preemptor, Tenant
from reprieve_runtime.client.reflector import Key

from . import pod_pruning
from .snapshot_cache import Seating

V = TypeVar("V")
Link = tuple[str, str]
"""What a pod depends on: `Job` and a uid, or a native group's namespace and name. No namespace has a capital letter."""

_EXPECTED_SECONDS = 5.0
"""For a nomination, a mark or a deletion to come back through the watch: milliseconds where all is well."""
_JOB = "Job"
_UNPACK = msgspec.msgpack.Decoder(Pod).decode


class _Basis(NamedTuple):
    """What all pods are judged by; of each, its Namespace's policy beside it."""

    settings: PolicySettings
    priority_classes: Mapping[str, Resource]
    quotas: Shape


@dataclass(frozen=True, slots=True)
class _Known:
    """A pod as it was seen last, and what it was taken for."""

    packed: bytes
    taken_for: Tenant | Preemptor | None
    links: tuple[Link, ...]
    """Its Job and its native group, whatever is known of them."""


class _Expected(NamedTuple):
    """What is taken for granted of a pod."""

    until: float
    seen: Tenant | Preemptor | None
    """What it was taken for as it was seen."""


class _Marked(NamedTuple):
    """Which pod was marked, and until when that counts as going, as long as nobody has told it."""

    uid: str
    until: float


class Roster:
    """The pods, judged and seated."""

    def __init__(
        self,
        seating: Seating,
        facts_of: Callable[[str], Facts],
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`facts_of` returns what is known of a Namespace and of the cluster now."""
        self._seating, self._facts_of, self._clock, self._monotonic = seating, facts_of, clock, monotonic
        self._basis: _Basis | None = None
        self._facts: dict[str, Facts] = {}
        """By Namespace, those that pods are judged by."""
        self._counts: Counter[str] = Counter()
        """Of the pods of each Namespace. Without this, what is known of Namespaces that are gone would be kept, and looked at, for ever."""
        self._pods: dict[Key, _Known] = {}
        self._due: dict[Key, None] = {}
        """To be judged again."""
        self._expected: dict[Key, _Expected] = {}
        self._marked: dict[Key, _Marked] = {}
        """Those that nobody has told yet."""
        self._linked: dict[Link, set[Key]] = {}
        self._jobs: dict[Link, Walltime] = {}
        self._groups: dict[Link, NativeGroup] = {}

    @property
    def is_settled(self) -> bool:
        """True where every pod is judged by what is known now."""
        self._notice()
        return not self._due

    def put(self, pod: Pod) -> None:
        """Add a pod, or what it has become."""
        key = (pod.metadata.namespace or "", pod.metadata.name or "")
        pod, packed = pod_pruning.trim(pod)
        known = self._pods.get(key)
        # Many changes of a pod, such as restarts of its containers, are of nothing that is read.
        if known is None or known.packed != packed:
            self._judge(key, pod, packed)

    def drop(self, key: Key) -> None:
        """Take a pod away."""
        known = self._pods.pop(key, None)
        self._due.pop(key, None)
        self._expected.pop(key, None)
        self._marked.pop(key, None)
        if known is not None:
            self._leave(key, known)
            self._counts[key[0]] -= 1
            if not self._counts[key[0]]:
                del self._counts[key[0]]
                self._facts.pop(key[0], None)

    def expect(self, preemptor: Preemptor, node: str, victims: Iterable[Tenant]) -> None:
        """Take for granted, for a while, that a scheduler does as it was told: its nomination and the marks are on their way.

        Without this, the next pod of the preemptor's gang, which comes within milliseconds, would be given other victims.
        """
        key = (preemptor.namespace, preemptor.name)
        known = self._pods.get(key)
        # As it waits by itself: the one that was decided for has its gang with it.
        if known is not None and isinstance(known.taken_for, Preemptor):
            self._replace(key, known, replace(known.taken_for, nominated_node=node))
        for victim in victims:
            key = (victim.namespace, victim.name)
            known = self._pods.get(key)
            if known is not None and isinstance(known.taken_for, Tenant) and known.taken_for.uid == victim.uid:
                told = replace(
                    known.taken_for,
                    is_going=True,
                    is_deleted=True,
                    is_told=True,
                    goes_at=self._clock(),
                    goes_for=preemptor.guest.uid,
                )
                self._replace(key, known, told)

    def as_seen(self, groups: Mapping[GroupKey, Group]) -> Mapping[GroupKey, Group]:
        """Return these gangs with their pods as they were seen, whatever is expected of them."""
        seen = {one.seen.uid: one.seen for one in self._expected.values() if isinstance(one.seen, Tenant)}
        changed = {tenant.group for tenant in seen.values() if tenant.group is not None}
        before = {
            key: snapshot_builder.group_of(key, [seen.get(member.uid, member) for member in groups[key].members])
            for key in changed & groups.keys()
        }
        return {**groups, **before} if before else groups

    def put_job(self, uid: str, bound: Walltime | None) -> None:
        """Take in how long a Job may run; `None`: for as long as it likes, or it is gone."""
        self._put(self._jobs, (_JOB, uid), bound)

    def put_group(self, key: Key, said: NativeGroup | None) -> None:
        """Take in what a native group says; `None`: it is gone."""
        self._put(self._groups, key, said)

    def settle(self, most: int) -> None:
        """Judge again, of the pods that a change concerns, so many."""
        for key in list(islice(self._due, most)):
            known = self._pods[key]
            self._judge(key, _UNPACK(known.packed), known.packed)

    def _put(self, known: dict[Link, V], link: Link, value: V | None) -> None:
        if known.get(link) == value:
            return
        if value is None:
            del known[link]
        else:
            known[link] = value
        self._due.update(dict.fromkeys(self._linked.get(link, ())))

    def _replace(self, key: Key, known: _Known, taken_for: Tenant | Preemptor) -> None:
        """Take a pod for something else until it is judged again."""
        self._exit(known.taken_for)
        self._enter(taken_for)
        self._pods[key] = replace(known, taken_for=taken_for)
        before = self._expected.get(key)
        seen = known.taken_for if before is None else before.seen
        self._expected[key] = _Expected(self._monotonic() + _EXPECTED_SECONDS, seen)

    def _judge(self, key: Key, pod: Pod, packed: bytes) -> None:
        before = self._pods.get(key)
        if before is not None:
            self._leave(key, before)
        else:
            self._counts[key[0]] += 1
        self._due.pop(key, None)
        self._expected.pop(key, None)
        links = tuple(_links_of(pod))
        taken_for = self._as_heeded(key, self._take(pod, links))
        self._enter(taken_for)
        for link in links:
            self._linked.setdefault(link, set()).add(key)
        self._pods[key] = _Known(packed, taken_for, links)

    def _enter(self, taken_for: Tenant | Preemptor | None) -> None:
        if isinstance(taken_for, Tenant):
            self._seating.seat(taken_for)
        elif taken_for is not None:
            self._seating.queue(taken_for)

    def _exit(self, taken_for: Tenant | Preemptor | None) -> None:
        if isinstance(taken_for, Tenant):
            self._seating.unseat(taken_for)
        elif taken_for is not None:
            self._seating.unqueue(taken_for)

    def _leave(self, key: Key, known: _Known) -> None:
        self._exit(known.taken_for)
        for link in known.links:
            same = self._linked[link]
            same.discard(key)
            if not same:
                del self._linked[link]

    def _take(self, pod: Pod, links: Sequence[Link]) -> Tenant | Preemptor | None:
        facts = self._known_facts(pod.metadata.namespace or "")
        native = next((self._groups[link] for link in links if link in self._groups), None)
        if pod.has_room:
            job = next((self._jobs[link] for link in links if link in self._jobs), None)
            return snapshot_builder.tenant_of(pod, facts, native=native, job=job, now=self._clock())
        return snapshot_builder.preemptor_of(pod, facts, native=native) if pod.wants_room else None

    def _as_heeded(self, key: Key, taken_for: Tenant | Preemptor | None) -> Tenant | Preemptor | None:
        """Return what a pod is taken for: whoever was marked, and told by no operator in all the time that anybody has, stays."""
        if not isinstance(taken_for, Tenant) or not taken_for.is_only_marked:
            self._marked.pop(key, None)
            return taken_for
        now = self._monotonic()
        known = self._marked.get(key)
        if known is None or known.uid != taken_for.uid:
            known = self._marked[key] = _Marked(taken_for.uid, now + self._facts_of("").settings.ceiling_seconds)
        return taken_for if now < known.until else replace(taken_for, is_going=False, goes_for="")

    def _goes(self, key: Key) -> bool:
        taken_for = self._pods[key].taken_for
        return isinstance(taken_for, Tenant) and taken_for.is_going

    def _known_facts(self, namespace: str) -> Facts:
        facts = self._facts.get(namespace)
        if facts is None:
            facts = self._facts[namespace] = self._facts_of(namespace)
            self._basis = self._basis or _basis_of(facts)
        return facts

    def _notice(self) -> None:
        """Find out whose pods were judged by what is known no more."""
        basis = _basis_of(self._facts_of(""))
        changed = {name for name, facts in self._facts.items() if self._facts_of(name).namespace != facts.namespace}
        if basis != self._basis:
            self._basis, changed = basis, set(self._facts)
        for name in changed:
            del self._facts[name]
        now = self._monotonic()
        self._due.update(dict.fromkeys(key for key, one in self._expected.items() if one.until <= now))
        self._due.update(
            dict.fromkeys(key for key, one in self._marked.items() if one.until <= now and self._goes(key))
        )
        if changed:
            self._due.update(dict.fromkeys(key for key in self._pods if key[0] in changed))


def _basis_of(facts: Facts) -> _Basis:
    # Copies: what the facts hold changes as the cluster does.
    return _Basis(facts.settings, dict(facts.priority_classes), facts.quotas.shape)


def _links_of(pod: Pod) -> Iterator[Link]:
    owner, group = controller_of(pod.metadata), group_name_of(pod.spec.schedulingGroup)
    if owner is not None and owner.kind == "Job":
        yield _JOB, owner.uid
    if group:
        yield pod.metadata.namespace or "", group
