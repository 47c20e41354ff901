"""What the gang gate reports: Events about the owner of a gang's pods, and metrics."""

from collections.abc import Sequence

from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.policies import PolicySource
from reprieve_operator.metrics import OperatorMetrics
from reprieve_policy.gangs.gate_steps import GatedGang, GateFailureReason, GateReleaseReason
from reprieve_policy.kube.objects import group_of
from reprieve_policy.kube.values import duration

from .gang_counts import CountedGang
from .gate_pods import LabelledPod

_ROOM_UNKNOWN = (
    "gangGate is on, and the operator may not list nodes and pods: a gang is released once its "
    "pods exist, whether they have room or not, and at gangGateTimeout if they do not exist"
)

_COUNTS_AS_FAILED = (
    ". Each counts towards the Job's backoffLimit, unless its podFailurePolicy ignores the "
    "condition DisruptionTarget"
)


class GateReports:
    """Reports what the gate did."""

    def __init__(
        self, recorder: EventRecorder, metrics: OperatorMetrics, policy: PolicySource
    ) -> None:
        self._recorder, self._metrics, self._policy = recorder, metrics, policy

    def room_is_unknown(self) -> None:
        """Report that gangs are released without a look at the room."""
        self._policy.record_warning("GangRoomUnknown", _ROOM_UNKNOWN)

    def released(self, pods: Sequence[LabelledPod], gang: GatedGang, reason: str) -> None:
        """Report that pods were released."""
        self._metrics.gang_releases.labels(reason).inc()
        count = _count(len(pods))
        if reason == GateReleaseReason.COMPLETE:
            note = f"released {count} to the scheduler together: enough pods of the gang exist"
            self._recorder.event(pods[0].regarding, "GangReleased", note)
        elif reason == GateReleaseReason.TIMED_OUT:
            limit = duration.render(gang.timeout_seconds)
            note = f"released {count} to the scheduler without the rest of the gang after {limit}"
            self._recorder.event(pods[0].regarding, "GangIncomplete", note)

    def waits_for_pods(
        self, pods: Sequence[LabelledPod], gang: GatedGang, counted: CountedGang
    ) -> None:
        """Report, once, that a gang has too few pods."""
        if counted.is_counted:
            note = (
                f"{gang.count} of {gang.minimum} pods exist; they are released to the scheduler "
                "together, once all exist and have room"
            )
            self._once(pods, counted, "GangWaiting", note)

    def waits_for_room(
        self, pods: Sequence[LabelledPod], gang: GatedGang, counted: CountedGang
    ) -> None:
        """Report, once, that a gang has its pods and no room."""
        note = (
            f"{_count(gang.minimum)} exist, and wait until the cluster has room for all of them "
            "beside the gangs that are being placed"
        )
        self._once(pods, counted, "GangWaitingForRoom", note)

    def incomplete(
        self, pods: Sequence[LabelledPod], gang: GatedGang, counted: CountedGang
    ) -> bool:
        """Report, once, that a gang has too few pods after its timeout; return whether it did."""
        note = (
            f"{gang.count} of {gang.minimum} pods exist after "
            f"{duration.render(gang.timeout_seconds)}; they keep waiting"
        )
        is_first = self._once(pods, counted, "GangIncomplete", note)
        if is_first:
            self._metrics.gang_failures.labels(GateFailureReason.INCOMPLETE.value).inc()
        return is_first

    def held_back(self, pods: Sequence[LabelledPod], gang: GatedGang, retry_seconds: float) -> None:
        """Report that a released gang was not placed in time."""
        self._metrics.gang_failures.labels(GateFailureReason.NOT_PLACED.value).inc()
        note = (
            f"{gang.bound} of {gang.minimum} pods were placed after "
            f"{duration.render(gang.timeout_seconds)}: all are replaced, and wait for "
            f"{duration.render(max(1, int(retry_seconds)))} at least; those that run get notice"
        )
        regarding = pods[0].regarding
        if (group_of(regarding.api_version), regarding.kind) == ("batch", "Job"):
            note += _COUNTS_AS_FAILED
        self._recorder.event(regarding, "GangHeldBack", note)

    def not_replaced(self, pods: Sequence[LabelledPod], gang: GatedGang) -> None:
        """Report that pods of a gang that was not placed in time cannot be held back."""
        self._metrics.gang_failures.labels(GateFailureReason.NOT_PLACED.value).inc()
        note = (
            f"{gang.bound} of {gang.minimum} pods were placed after "
            f"{duration.render(gang.timeout_seconds)}; {_count(len(pods))} without a controller "
            f"stay{'s' if len(pods) == 1 else ''} as before, because nothing would replace them"
        )
        self._recorder.event(pods[0].regarding, "GangNotReplaced", note)

    def _once(
        self, pods: Sequence[LabelledPod], counted: CountedGang, reason: str, note: str
    ) -> bool:
        if reason in counted.reported:
            return False
        counted.reported.add(reason)
        self._recorder.event(pods[0].regarding, reason, note)
        return True


def _count(pods: int) -> str:
    return f"{pods} pods" if pods > 1 else "1 pod"
