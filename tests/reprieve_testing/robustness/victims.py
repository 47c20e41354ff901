"""The pods of a round: what each workload does, what each pod looks like, what each may expect."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from reprieve_policy import keys
from reprieve_testing.chaos import edges
from reprieve_testing.chaos.chaos_namespace import ChaosNamespace
from reprieve_testing.chaos.invariants import VictimExpectation
from reprieve_testing.chaos.scripted_victims import ScriptedVictim, WorkloadServer

from .plan import Habit, PlannedAction, Work

Json = Any

CEILING_SECONDS = 35
SLACK_SECONDS = 30
"""For polls and a busy machine; the time without a leader counts extra."""
SAVE_SECONDS = 3.0
"""How long a slow save takes."""
SLOT = "example.com/slot"
"""A resource that only preemptors and their victims request."""
VICTIMS_OF_A_PREEMPTOR = 2
LOW, HIGH = "robustness-low", "robustness-high"
_IMPRECISION = 2

_ANSWERS: dict[Habit, tuple[Json, int]] = {
    Habit.SAVES_AT_ONCE: (edges.SAVED, 10),
    Habit.SAVES_SLOWLY: (edges.SAVING, 12),
    Habit.SAVES_FOR_EVER: (edges.SAVING, CEILING_SECONDS),
    Habit.NEVER_ANSWERS: (None, 6),
    Habit.CANNOT: (edges.CANNOT, 8),
    Habit.DEFERS: (edges.DEFER, 6),
    Habit.NO_CHECKPOINT: (None, 6),
}
"""What a workload answers, and the seconds that it asks for."""


@dataclass
class PlannedVictim:
    """A pod of a round, and what was done to it."""

    action: PlannedAction
    scripted: ScriptedVictim
    gang: str = ""
    node: str = ""
    """Where a preemptor wants it gone."""
    begun_at: datetime | None = None
    """When the action on it began."""
    unmarked_at: datetime | None = None
    heard_at: float | None = None

    @property
    def name(self) -> str:
        return self.scripted.name

    @property
    def saves_slowly(self) -> bool:
        return self.action.habit == Habit.SAVES_SLOWLY

    def expectation(
        self, pod: str, *, marked_at: datetime, removed_at: datetime | None
    ) -> VictimExpectation:
        """Return what the pod may expect, from its mark on.

        `removed_at` is when another user than the operator deleted it, if one did.
        """
        scripted = self.scripted
        longest = min(2 * scripted.seconds + edges.DEFERRAL, CEILING_SECONDS) + SLACK_SECONDS
        if self.gang or self.action.name == Work.PREEMPT:
            # It waits for the others.
            longest = CEILING_SECONDS + SLACK_SECONDS
        least = min(scripted.seconds, CEILING_SECONDS) - _IMPRECISION
        return VictimExpectation(
            uid=scripted.uid,
            pod=pod,
            marked_at=marked_at,
            has_notice=scripted.has_hint,
            min_notice=timedelta(seconds=least),
            max_duration=timedelta(seconds=longest),
            must_be_deleted=self.unmarked_at is None and removed_at is None,
            ended_at=min(filter(None, (self.unmarked_at, removed_at)), default=None),
        )


def victims_of(round_number: int, index: int, action: PlannedAction) -> list[PlannedVictim]:
    """Return the victims of one action of a round."""
    habit = Habit(action.habit)
    answer, seconds = _ANSWERS[habit]
    prefix = f"r{round_number}-{index}-{action.name}"
    count = VICTIMS_OF_A_PREEMPTOR if action.name == Work.PREEMPT else action.count
    return [
        PlannedVictim(
            action,
            ScriptedVictim(
                f"{prefix}-{number}",
                scripted_answer=answer,
                seconds=seconds,
                has_hint=habit is not Habit.NO_CHECKPOINT,
                has_owner=number % 2 == 0 and action.name != Work.GANG,
            ),
            gang=prefix if action.name == Work.GANG else "",
        )
        for number in range(count)
    ]


async def pod_of(
    victim: PlannedVictim, namespace: ChaosNamespace, workloads: WorkloadServer
) -> Json:
    """Return the pod to create; its owner is created."""
    scripted = victim.scripted
    annotations = {keys.CHECKPOINT_TIMEOUT: f"{scripted.seconds}s"}
    if scripted.has_hint:
        annotations[keys.CHECKPOINT_HINT] = workloads.hint(scripted.name)
    labels = {keys.POD_GROUP: victim.gang} if victim.gang else {}
    owners = [await namespace.create_owner(scripted.name)] if scripted.has_owner else []
    pod = namespace.pod(scripted.name, annotations, labels=labels, ownerReferences=owners)
    pod["spec"]["containers"][0]["ports"] = [{"containerPort": workloads.port}]
    if victim.node:
        labels[keys.PREEMPTION_CLASS] = "2"
        _ask_for_slots(pod, 1)
        pod["spec"] |= {"nodeName": victim.node, "priorityClassName": LOW}
    return pod


def preemptor_of(victim: PlannedVictim, name: str) -> Json:
    """Return a pod that needs the whole node of a victim."""
    metadata = {"name": name, "labels": {keys.PREEMPTION_CLASS: "6"}}
    spec = {
        "priorityClassName": HIGH,
        "nodeSelector": {"kubernetes.io/hostname": victim.node},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "none"}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    _ask_for_slots(pod, VICTIMS_OF_A_PREEMPTOR)
    return pod


def priority_classes() -> list[Json]:
    """Return the PriorityClasses of victims and preemptors."""
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in ((LOW, 100), (HIGH, 1000))
    ]


def _ask_for_slots(pod: Json, count: int) -> None:
    amount = {SLOT: str(count)}
    pod["spec"]["containers"][0]["resources"] = {"requests": amount, "limits": amount}
