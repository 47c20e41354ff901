"""What several pods lose and cost together; of a gang evicted as a unit, once for a decision.

Without the latter, a decision about a large gang would count all of its pods on each of its nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from reprieve_policy.preemption import cost, loss

from .snapshot import ScheduledPod


@dataclass(frozen=True)
class GangTotals:
    """What is asked about the pods of a gang that are evicted together."""

    members: tuple[ScheduledPod, ...]
    now: datetime

    @cached_property
    def priority(self) -> int:
        """The highest priority that one of them is defended with."""
        return max([member.preemption_priority for member in self.members])

    @cached_property
    def priorities(self) -> int:
        """The sum of these priorities."""
        return sum([member.preemption_priority for member in self.members])

    @cached_property
    def preemption_class(self) -> int:
        """The highest class of them."""
        return max([member.preemption_class for member in self.members])

    @cached_property
    def loss(self) -> int:
        """Their expected loss, in device-seconds."""
        return sum([loss_of(member, self.now) for member in self.members])

    @cached_property
    def cost(self) -> tuple[int, float]:
        """What they cost together; see `cost.sort_key_of`."""
        return self._costs[0], sum(self.estimated_costs)

    @property
    def estimated_costs(self) -> Sequence[float]:
        """The estimated cost of each of them."""
        return self._costs[1]

    @cached_property
    def _costs(self) -> tuple[int, Sequence[float]]:
        stated, estimated = zip(
            *[cost_of(member, self.now) for member in self.members], strict=True
        )
        return sum(stated), estimated

    @cached_property
    def earliest_start(self) -> datetime:
        """When the first of them started."""
        return earliest_start(self.members, self.now)

    @cached_property
    def earliest_start_of_highest(self) -> datetime:
        """When the first of those with the highest priority started."""
        return earliest_start(
            [member for member in self.members if member.preemption_priority == self.priority],
            self.now,
        )

    @cached_property
    def uid(self) -> str:
        """The first of their uids."""
        return min([member.uid for member in self.members])

    @cached_property
    def states_preferences(self) -> bool:
        """True if one of them states preferences."""
        return any(member.states_preferences for member in self.members)


def loss_of(pod: ScheduledPod, now: datetime) -> int:
    """Return what preempting a pod is expected to lose, in whole device-seconds."""
    return round(loss.expected_loss(pod.loss_inputs, pod.progress, now))


def cost_of(pod: ScheduledPod, now: datetime) -> tuple[int, float]:
    """Return what preempting a pod costs; see `cost.sort_key_of`."""
    return cost.sort_key_of(pod.cost_inputs, pod.progress, now)


def earliest_start(pods: Sequence[ScheduledPod], now: datetime) -> datetime:
    """Return when the first pod started; an unstarted one starts now, as upstream."""
    if len(pods) == 1:
        return pods[0].progress.started_at or now
    return min([pod.progress.started_at or now for pod in pods])
