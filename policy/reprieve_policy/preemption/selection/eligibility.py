"""Whether each pod may be a victim of one preemptor, gangs included.

A gang that is evicted as a unit is refused for whatever protects one of its pods.
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property

from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.preemption import first_refusal

from . import anti_affinity, reasons
from .budget_uses import BudgetUses
from .reasons import PodEligibility, Refusal, RefusalReason
from .release import ReleaseCertainty
from .snapshot import GangInfo, GangKey, LabelKey, Preemptor, ScheduledPod, Snapshot
from .totals import GangTotals

_NO_MINIMUM = 2**31


class Eligibility:
    """Decides about all pods of a snapshot for one preemptor, each gang once."""

    def __init__(self, preemptor: Preemptor, snapshot: Snapshot) -> None:
        self.preemptor = preemptor
        self.snapshot = snapshot
        self.budget_uses = BudgetUses(snapshot.budgets)
        self.pod_eligibility = PodEligibility(preemptor, snapshot)
        self._pod_reason = self.pod_eligibility.reason
        self._spare_members: dict[GangKey, int] = {}
        self._protected: dict[GangKey, tuple[ScheduledPod, RefusalReason] | None] = {}
        self._release_certainties: dict[GangKey, ReleaseCertainty] = {}
        self._evicted_gangs: dict[GangKey, GangInfo | None] = {}
        self._members: dict[GangKey, tuple[ScheduledPod, ...]] = {}
        self._has_leaving_members: dict[GangKey, bool] = {}
        self._is_renewed_by_leaving: dict[GangKey, bool] = {}
        self._totals: dict[GangKey, GangTotals] = {}

    @cached_property
    def labels(self) -> AbstractSet[LabelKey]:
        """What anti-affinities are compared with."""
        return anti_affinity.labels_of(self.preemptor)

    def reason(self, pod: ScheduledPod) -> RefusalReason | None:
        """Return why the pod may not be a victim, `None` if it may."""
        own = self._pod_reason(pod)
        if pod.gang is None:
            return own
        gang = self.evicted_gang(pod)
        if own is RefusalReason.NEAR_COMPLETION and (
            gang is not None or pod.disruption_mode is DisruptionMode.ALL
        ):
            own = self.pod_eligibility.reason_as_gang_member(pod)
        if own is not None:
            return own
        if gang is not None:
            return self._gang_reason(gang)
        return None if self.spare_members(pod.gang) > 0 else RefusalReason.MIN_AVAILABLE

    def refusal(self, pod: ScheduledPod) -> Refusal | None:
        """Return why the pod may not be a victim, as a sentence; `None` if it may."""
        reason, gang = self.reason(pod), self.evicted_gang(pod)
        if reason is None:
            return None
        is_renewable = self.is_renewable(pod)
        protected = None if gang is None else self.protecting_member(gang)
        if reason is not RefusalReason.GANG or protected is None:
            refusal = reasons.build_refusal(reason, self.preemptor, pod, self.snapshot)
            return refusal._replace(is_renewable=is_renewable)
        member, its = protected
        detail = reasons.build_refusal(its, self.preemptor, member, self.snapshot).detail
        return Refusal(
            reason,
            f"its gang is evicted as a unit, and {member.name} may not be a victim: {detail}",
            is_renewable=is_renewable,
        )

    def is_renewable(self, pod: ScheduledPod) -> bool:
        """True if the pod's owner can renew the reason why it is no victim (`first_refusal`)."""
        reason, gang = self.reason(pod), self.evicted_gang(pod)
        if reason is RefusalReason.MIN_AVAILABLE and pod.gang is not None:
            return self._is_renewed_by_leaving_members(pod.gang)
        if reason is RefusalReason.ALREADY_LEAVING and gang is not None:
            is_leaving = self.pod_eligibility.is_leaving(pod)
            return not is_leaving and self._is_renewed_by_leaving_members(gang.key)
        if reason is RefusalReason.GANG and gang is not None:
            found = self.protecting_member(gang)
            reason = None if found is None else found[1]
        return reason is RefusalReason.NEAR_COMPLETION

    def has_leaving_members(self, key: GangKey | None) -> bool:
        """True for a gang of which a pod leaves, in whatever way."""
        if key is None:
            return False
        if key not in self._has_leaving_members:
            gang = self.snapshot.gangs.get(key)
            self._has_leaving_members[key] = gang is not None and any(
                member.is_leaving for member in gang.members
            )
        return self._has_leaving_members[key]

    def evicted_gang(self, pod: ScheduledPod) -> GangInfo | None:
        """Return the gang that is evicted with the pod, `None` for a pod that is evicted alone."""
        if pod.gang is None:
            return None
        if pod.gang not in self._evicted_gangs:
            gang = self.snapshot.gangs.get(pod.gang)
            self._evicted_gangs[pod.gang] = (
                gang if gang is not None and self._is_evicted_as_a_unit(gang) else None
            )
        return self._evicted_gangs[pod.gang]

    def release_certainty(self, pod: ScheduledPod) -> ReleaseCertainty:
        """Return how certainly the room of a pod that is no victim becomes free soon.

        It becomes free because the pod leaves, or its gang does.
        """
        if self.pod_eligibility.is_leaving(pod):
            return self._own_release_certainty(pod)
        gang = self.evicted_gang(pod)
        if gang is None or self.reason(pod) is not RefusalReason.ALREADY_LEAVING:
            return ReleaseCertainty.NOT_SOON
        if gang.key not in self._release_certainties:
            leaving = map(
                self._own_release_certainty, self._leaving_members(self.affected_members(gang))
            )
            self._release_certainties[gang.key] = max(leaving, default=ReleaseCertainty.NOT_SOON)
        return self._release_certainties[gang.key]

    def spare_members(self, key: GangKey) -> int:
        """Return how many pods a gang disrupted one by one may lose; leaving pods count as lost."""
        if key not in self._spare_members:
            gang = self.snapshot.gangs.get(key)
            self._spare_members[key] = (
                _NO_MINIMUM
                if gang is None or not gang.min_available
                else self._count_spare_members(gang)
            )
        return self._spare_members[key]

    def affected_members(self, gang: GangInfo) -> tuple[ScheduledPod, ...]:
        """Return the members on which the eligibility of a gang depends; they are evicted together.

        All but those that are only deleted, or leave late, and so leave alone. Without this, a user
        who deletes one small pod, with a grace period of any length, would protect the rest of its
        gang.
        """
        if gang.key not in self._members:
            # Once: a large gang is on many nodes.
            staying = [member for member in gang.members if not self._leaves_alone(member)]
            if self._has_been_refused_for_too_long(gang):
                staying = [member for member in staying if not self._counts_as_gone(member, gang)]
            self._members[gang.key] = tuple(staying)
        return self._members[gang.key]

    def totals_of(self, gang: GangInfo) -> GangTotals:
        """Return what is asked about all members that are evicted together."""
        if gang.key not in self._totals:
            self._totals[gang.key] = GangTotals(self.affected_members(gang), self.snapshot.now)
        return self._totals[gang.key]

    def _has_been_refused_for_too_long(self, gang: GangInfo) -> bool:
        seconds, now = self.snapshot.settings.ceiling_seconds, self.snapshot.now
        return any(
            first_refusal.is_over(member.refused_since, seconds, now) for member in gang.members
        )

    def _counts_as_gone(self, member: ScheduledPod, gang: GangInfo) -> bool:
        """True for a leaving pod that no longer protects the rest of its gang.

        Without this, a user who has one small pod after another leave would keep the others: as
        long as one leaves, its gang has no pod to spare. Of a gang that leaves as a whole, only a
        pod that a budget holds counts as gone: with each other one, all leave.
        """
        if not self.pod_eligibility.is_leaving(member):
            return False
        certainty = self.pod_eligibility.release_certainty(member)
        return (
            gang.disruption_mode is not DisruptionMode.ALL
            or certainty is ReleaseCertainty.HELD_BY_BUDGET
        )

    def _leaves_alone(self, member: ScheduledPod) -> bool:
        release = member.release
        if release is None or not release.is_being_deleted:
            return False
        # Also a pod that was notified first: the operator no longer controls its deletion.
        certainty = self.pod_eligibility.release_certainty(member)
        return release.is_only_deleted or certainty is ReleaseCertainty.NOT_SOON

    def _is_evicted_as_a_unit(self, gang: GangInfo) -> bool:
        """True if the gang says so, or if it can spare no pod.

        Without the latter, a gang that declares all of its pods as needed could not be preempted at
        all. But a pod that is already leaving then takes no others with it.
        """
        if gang.disruption_mode is DisruptionMode.ALL:
            return True
        members = self.affected_members(gang)
        return 0 < len(members) <= gang.min_available and not any(self._leaving_members(members))

    def _count_spare_members(self, gang: GangInfo) -> int:
        members = self.affected_members(gang)
        return len(members) - sum(1 for _ in self._leaving_members(members)) - gang.min_available

    def _leaving_members(self, members: Iterable[ScheduledPod]) -> Iterator[ScheduledPod]:
        return (
            member
            for member in members
            if member.is_leaving and self.pod_eligibility.is_leaving(member)
        )

    def _is_renewed_by_leaving_members(self, key: GangKey) -> bool:
        """True if the gang's owner can renew a refusal by having one pod after another leave."""
        if key not in self._is_renewed_by_leaving:
            # Once: a large gang has many pods that ask.
            gang = self.snapshot.gangs[key]
            leaving = self._leaving_members(self.affected_members(gang))
            self._is_renewed_by_leaving[key] = (
                self._are_held_by_budgets(leaving)
                if self._evicted_gangs[key] is not None
                else self._leaves_for_others(leaving)
            )
        return self._is_renewed_by_leaving[key]

    def _are_held_by_budgets(self, leaving: Iterable[ScheduledPod]) -> bool:
        return all(
            self.pod_eligibility.release_certainty(member) is ReleaseCertainty.HELD_BY_BUDGET
            for member in leaving
        )

    def _leaves_for_others(self, leaving: Iterable[ScheduledPod]) -> bool:
        # Of a gang that can spare no pod, others leave: otherwise all of it would go. Those that
        # leave for this preemptor are of the same round, and the guard marks the pod in a moment.
        own = self.preemptor.demand.uid
        return any(
            member.release is not None and member.release.preemptor_uid != own for member in leaving
        )

    def _own_release_certainty(self, pod: ScheduledPod) -> ReleaseCertainty:
        # Also a marked pod that the operator is about to notify: it was selected for this gang
        # already.
        if (
            pod.node in self.preemptor.member_nominated_nodes
            and self.pod_eligibility.is_current_victim(pod)
        ):
            return ReleaseCertainty.NOTIFIED
        return self.pod_eligibility.release_certainty(pod)

    def _gang_reason(self, gang: GangInfo) -> RefusalReason | None:
        found = self.protecting_member(gang)
        if found is None:
            return None
        # A leaving member takes all with it, also those that are not notified yet. Without this, a
        # second gang would be evicted for the other members of the gang whose preemptor took the
        # first.
        return (
            RefusalReason.ALREADY_LEAVING
            if found[1] is RefusalReason.ALREADY_LEAVING
            else RefusalReason.GANG
        )

    def protecting_member(self, gang: GangInfo) -> tuple[ScheduledPod, RefusalReason] | None:
        """Return the member that protects a gang evicted as a unit, and how.

        A leaving member first, otherwise the first that is refused.
        """
        if gang.key not in self._protected:
            members = self.affected_members(gang)
            leaving = (
                (member, RefusalReason.ALREADY_LEAVING) for member in self._leaving_members(members)
            )
            self._protected[gang.key] = next(leaving, None) or self._first_refused(members)
        return self._protected[gang.key]

    def _first_refused(
        self, members: Sequence[ScheduledPod]
    ) -> tuple[ScheduledPod, RefusalReason] | None:
        refusals = [(member, self._pod_reason(member)) for member in members]
        near = [member for member, reason in refusals if reason is RefusalReason.NEAR_COMPLETION]
        if near and len(near) == len(refusals):
            # The gang may finish until its last member has.
            return max(near, key=self._seconds_left), RefusalReason.NEAR_COMPLETION
        if near:
            refusals = [
                (member, self.pod_eligibility.reason_as_gang_member(member)) for member in members
            ]
        return next(((member, reason) for member, reason in refusals if reason is not None), None)

    def _seconds_left(self, pod: ScheduledPod) -> float:
        return (
            0.0 if pod.progress.walltime is None else pod.progress.walltime.left(self.snapshot.now)
        )
