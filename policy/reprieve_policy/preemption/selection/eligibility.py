"""Every pod's verdict for one preemptor, gangs included: what goes as a whole is refused for what protects one of it."""

from collections.abc import Iterable, Iterator, Sequence

from reprieve_policy.gangs.disruption import DisruptionMode

from . import reason_messages
from .reason_messages import Refusal
from .reasons import PodEligibility, RefusalReason
from .release import ReleaseCertainty
from .snapshot import GangInfo, GangKey, Preemptor, ScheduledPod, Snapshot

_NO_MINIMUM = 2**31


class Eligibility:
    """Judges all pods of a scene for one preemptor, each gang once."""

    def __init__(self, preemptor: Preemptor, scene: Snapshot) -> None:
        self.preemptor = preemptor
        self.scene = scene
        self.pod_eligibility = PodEligibility(preemptor, scene)
        self._pod_reason = self.pod_eligibility.reason
        self._spare_members: dict[GangKey, int] = {}
        self._protected: dict[GangKey, tuple[ScheduledPod, RefusalReason] | None] = {}
        self._release_certainties: dict[GangKey, ReleaseCertainty] = {}
        self._evicted_gangs: dict[GangKey, GangInfo | None] = {}
        self._members: dict[GangKey, tuple[ScheduledPod, ...]] = {}

    def reason(self, tenant: ScheduledPod) -> RefusalReason | None:
        """Return on what the pod is no victim, `None` where it may be one."""
        own = self._pod_reason(tenant)
        if tenant.gang is None:
            return own
        whole = self.evicted_gang(tenant)
        if own is RefusalReason.NEAR_COMPLETION and (
            whole is not None or tenant.disruption_mode is DisruptionMode.ALL
        ):
            own = self.pod_eligibility.reason_as_gang_member(tenant)
        if own is not None:
            return own
        if whole is not None:
            return self._gang_reason(whole)
        return None if self.spare_members(tenant.gang) > 0 else RefusalReason.MIN_AVAILABLE

    def refusal(self, tenant: ScheduledPod) -> Refusal | None:
        """Return why the pod is no victim, in a sentence; `None` where it may be one."""
        ground, group = self.reason(tenant), self.evicted_gang(tenant)
        if ground is None:
            return None
        protected = None if group is None else self.protecting_member(group)
        if ground is not RefusalReason.GANG or protected is None:
            return reason_messages.build_refusal(ground, self.preemptor, tenant, self.scene)
        member, its = protected
        reason = reason_messages.build_refusal(its, self.preemptor, member, self.scene).detail
        return Refusal(
            ground, f"its gang goes as a whole, and {member.name} of it may not: {reason}"
        )

    def evicted_gang(self, tenant: ScheduledPod) -> GangInfo | None:
        """Return the gang that goes as a whole with the pod, `None` for one that goes alone."""
        if tenant.gang is None:
            return None
        if tenant.gang not in self._evicted_gangs:
            group = self.scene.gangs.get(tenant.gang)
            self._evicted_gangs[tenant.gang] = (
                group if group is not None and self._is_evicted_as_a_unit(group) else None
            )
        return self._evicted_gangs[tenant.gang]

    def release_certainty(self, tenant: ScheduledPod) -> ReleaseCertainty:
        """Return how surely the room of a pod that is no victim becomes free soon: because it goes, or its gang does."""
        if self.pod_eligibility.is_leaving(tenant):
            return self._own_release_certainty(tenant)
        group = self.evicted_gang(tenant)
        if group is None or self.reason(tenant) is not RefusalReason.ALREADY_LEAVING:
            return ReleaseCertainty.NOT_SOON
        if group.key not in self._release_certainties:
            going = map(
                self._own_release_certainty, self._leaving_members(self.affected_members(group))
            )
            self._release_certainties[group.key] = max(going, default=ReleaseCertainty.NOT_SOON)
        return self._release_certainties[group.key]

    def spare_members(self, key: GangKey) -> int:
        """Return how many pods a gang that is disrupted one by one may lose; those that are going are lost."""
        if key not in self._spare_members:
            group = self.scene.gangs.get(key)
            self._spare_members[key] = (
                _NO_MINIMUM
                if group is None or not group.min_available
                else self._count_spare_members(group)
            )
        return self._spare_members[key]

    def affected_members(self, group: GangInfo) -> tuple[ScheduledPod, ...]:
        """Return the pods that a gang is judged by, and goes with: all but who is only deleted, or not soon, and goes alone.

        Without this, whoever deletes one small pod of his own, with a grace as long as he likes, would protect the rest of its gang.
        """
        if group.key not in self._members:
            # Once: a large gang is on many nodes.
            self._members[group.key] = tuple(
                member for member in group.members if not self._leaves_alone(member)
            )
        return self._members[group.key]

    def _leaves_alone(self, member: ScheduledPod) -> bool:
        # Also one that was told first: its deletion is no more the operator's.
        is_late = (
            member.is_being_deleted
            and self.pod_eligibility.release_certainty(member) is ReleaseCertainty.NOT_SOON
        )
        return member.is_only_deleted or is_late

    def _is_evicted_as_a_unit(self, group: GangInfo) -> bool:
        """True where the gang says so, or where it can spare none.

        Without the latter, whoever says that all are needed would have none of them preempted. But whoever is asked to go then
        takes nobody with him.
        """
        if group.disruption_mode is DisruptionMode.ALL:
            return True
        members = self.affected_members(group)
        return 0 < len(members) <= group.min_available and not any(self._leaving_members(members))

    def _count_spare_members(self, group: GangInfo) -> int:
        members = self.affected_members(group)
        return len(members) - sum(1 for _ in self._leaving_members(members)) - group.min_available

    def _leaving_members(self, members: Iterable[ScheduledPod]) -> Iterator[ScheduledPod]:
        return (
            member
            for member in members
            if member.is_leaving and self.pod_eligibility.is_leaving(member)
        )

    def _own_release_certainty(self, tenant: ScheduledPod) -> ReleaseCertainty:
        # Also one that is marked, and that the operator is about to tell: for one of the gang it has been chosen already.
        if (
            tenant.node in self.preemptor.member_nominated_nodes
            and self.pod_eligibility.is_current_victim(tenant)
        ):
            return ReleaseCertainty.NOTIFIED
        return self.pod_eligibility.release_certainty(tenant)

    def _gang_reason(self, group: GangInfo) -> RefusalReason | None:
        found = self.protecting_member(group)
        if found is None:
            return None
        # One that goes takes all with it, also those that nobody has told yet. Without this, a second gang would go for the
        # mates of the preemptor that took the first.
        return (
            RefusalReason.ALREADY_LEAVING
            if found[1] is RefusalReason.ALREADY_LEAVING
            else RefusalReason.GANG
        )

    def protecting_member(self, group: GangInfo) -> tuple[ScheduledPod, RefusalReason] | None:
        """Return why a gang that goes as a whole may not: one of it goes already, or the first that is refused, and on what."""
        if group.key not in self._protected:
            members = self.affected_members(group)
            going = (
                (member, RefusalReason.ALREADY_LEAVING) for member in self._leaving_members(members)
            )
            self._protected[group.key] = next(going, None) or self._first_refused(members)
        return self._protected[group.key]

    def _first_refused(
        self, members: Sequence[ScheduledPod]
    ) -> tuple[ScheduledPod, RefusalReason] | None:
        judged = [(member, self._pod_reason(member)) for member in members]
        near = [member for member, ground in judged if ground is RefusalReason.NEAR_COMPLETION]
        if near and len(near) == len(judged):
            # It is let finish until the last of it has.
            return max(near, key=self._seconds_left), RefusalReason.NEAR_COMPLETION
        if near:
            judged = [
                (member, self.pod_eligibility.reason_as_gang_member(member)) for member in members
            ]
        return next(((member, ground) for member, ground in judged if ground is not None), None)

    def _seconds_left(self, tenant: ScheduledPod) -> float:
        return (
            0.0
            if tenant.progress.walltime is None
            else tenant.progress.walltime.left(self.scene.now)
        )
