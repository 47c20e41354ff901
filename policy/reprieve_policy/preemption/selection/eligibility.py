"""Every pod's verdict for one preemptor, gangs included: what goes as a whole is refused for what protects one of it."""

from collections.abc import Iterable, Iterator, Sequence

from reprieve_policy.gangs.disruption import Mode

from . import reason_messages
from .reason_messages import Refusal
from .reasons import Ground, Grounds
from .release import Departure
from .snapshot import Group, GroupKey, Preemptor, Scene, Tenant

_NO_MINIMUM = 2**31


class Court:
    """Judges all pods of a scene for one preemptor, each gang once."""

    def __init__(self, preemptor: Preemptor, scene: Scene) -> None:
        self.preemptor = preemptor
        self.scene = scene
        self.grounds = Grounds(preemptor, scene)
        self._against = self.grounds.against
        self._spare: dict[GroupKey, int] = {}
        self._protected: dict[GroupKey, tuple[Tenant, Ground] | None] = {}
        self._departures: dict[GroupKey, Departure] = {}
        self._wholes: dict[GroupKey, Group | None] = {}
        self._members: dict[GroupKey, tuple[Tenant, ...]] = {}

    def ground(self, tenant: Tenant) -> Ground | None:
        """Return on what the pod is no victim, `None` where it may be one."""
        own = self._against(tenant)
        if tenant.group is None:
            return own
        whole = self.whole(tenant)
        if own is Ground.NEAR_COMPLETION and (whole is not None or tenant.mode is Mode.ALL):
            own = self.grounds.against_whole(tenant)
        if own is not None:
            return own
        if whole is not None:
            return self._ground_of_whole(whole)
        return None if self.spare(tenant.group) > 0 else Ground.MIN_AVAILABLE

    def why_not(self, tenant: Tenant) -> Refusal | None:
        """Return why the pod is no victim, in a sentence; `None` where it may be one."""
        ground, group = self.ground(tenant), self.whole(tenant)
        if ground is None:
            return None
        protected = None if group is None else self.protector(group)
        if ground is not Ground.GANG or protected is None:
            return reason_messages.refusal(ground, self.preemptor, tenant, self.scene)
        member, its = protected
        reason = reason_messages.refusal(its, self.preemptor, member, self.scene).detail
        return Refusal(ground, f"its gang goes as a whole, and {member.name} of it may not: {reason}")

    def whole(self, tenant: Tenant) -> Group | None:
        """Return the gang that goes as a whole with the pod, `None` for one that goes alone."""
        if tenant.group is None:
            return None
        if tenant.group not in self._wholes:
            group = self.scene.groups.get(tenant.group)
            self._wholes[tenant.group] = group if group is not None and self._goes_whole(group) else None
        return self._wholes[tenant.group]

    def departure(self, tenant: Tenant) -> Departure:
        """Return how surely the room of a pod that is no victim becomes free soon: because it goes, or its gang does."""
        if self.grounds.is_going(tenant):
            return self._departure_of(tenant)
        group = self.whole(tenant)
        if group is None or self.ground(tenant) is not Ground.GOING:
            return Departure.NOT_SOON
        if group.key not in self._departures:
            going = map(self._departure_of, self._going(self.members(group)))
            self._departures[group.key] = max(going, default=Departure.NOT_SOON)
        return self._departures[group.key]

    def spare(self, key: GroupKey) -> int:
        """Return how many pods a gang that is disrupted one by one may lose; those that are going are lost."""
        if key not in self._spare:
            group = self.scene.groups.get(key)
            self._spare[key] = _NO_MINIMUM if group is None or not group.min_available else self._spare_of(group)
        return self._spare[key]

    def members(self, group: Group) -> tuple[Tenant, ...]:
        """Return the pods that a gang is judged by, and goes with: all but who is only deleted, or not soon, and goes alone.

        Without this, whoever deletes one small pod of his own, with a grace as long as he likes, would protect the rest of its gang.
        """
        if group.key not in self._members:
            # Once: a large gang is on many nodes.
            self._members[group.key] = tuple(member for member in group.members if not self._goes_alone(member))
        return self._members[group.key]

    def _goes_alone(self, member: Tenant) -> bool:
        # Also one that was told first: its deletion is no more the operator's.
        is_late = member.is_deleted and self.grounds.departure(member) is Departure.NOT_SOON
        return member.is_only_deleted or is_late

    def _goes_whole(self, group: Group) -> bool:
        """True where the gang says so, or where it can spare none.

        Without the latter, whoever says that all are needed would have none of them preempted. But whoever is asked to go then
        takes nobody with him.
        """
        if group.mode is Mode.ALL:
            return True
        members = self.members(group)
        return 0 < len(members) <= group.min_available and not any(self._going(members))

    def _spare_of(self, group: Group) -> int:
        members = self.members(group)
        return len(members) - sum(1 for _ in self._going(members)) - group.min_available

    def _going(self, members: Iterable[Tenant]) -> Iterator[Tenant]:
        return (member for member in members if member.is_going and self.grounds.is_going(member))

    def _departure_of(self, tenant: Tenant) -> Departure:
        # Also one that is marked, and that the operator is about to tell: for one of the gang it has been chosen already.
        if tenant.node in self.preemptor.mates_nominated_to and self.grounds.is_under_way(tenant):
            return Departure.TOLD
        return self.grounds.departure(tenant)

    def _ground_of_whole(self, group: Group) -> Ground | None:
        found = self.protector(group)
        if found is None:
            return None
        # One that goes takes all with it, also those that nobody has told yet. Without this, a second gang would go for the
        # mates of the preemptor that took the first.
        return Ground.GOING if found[1] is Ground.GOING else Ground.GANG

    def protector(self, group: Group) -> tuple[Tenant, Ground] | None:
        """Return why a gang that goes as a whole may not: one of it goes already, or the first that is refused, and on what."""
        if group.key not in self._protected:
            members = self.members(group)
            going = ((member, Ground.GOING) for member in self._going(members))
            self._protected[group.key] = next(going, None) or self._refused(members)
        return self._protected[group.key]

    def _refused(self, members: Sequence[Tenant]) -> tuple[Tenant, Ground] | None:
        judged = [(member, self._against(member)) for member in members]
        near = [member for member, ground in judged if ground is Ground.NEAR_COMPLETION]
        if near and len(near) == len(judged):
            # It is let finish until the last of it has.
            return max(near, key=self._seconds_left), Ground.NEAR_COMPLETION
        if near:
            judged = [(member, self.grounds.against_whole(member)) for member in members]
        return next(((member, ground) for member, ground in judged if ground is not None), None)

    def _seconds_left(self, tenant: Tenant) -> float:
        return 0.0 if tenant.work.walltime is None else tenant.work.walltime.left(self.scene.now)
