"""Wires the reconcilers: the only place that knows all collaborators of a victim."""

from reprieve_operator.checkpointing.client import CheckpointClient
from reprieve_operator.checkpointing.endpoints import AddressRefusal
from reprieve_operator.checkpointing.poller import CheckpointPoller
from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.policies import NamespacePolicies, PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.replacements.bare_pods import BarePodController
from reprieve_operator.replacements.ledger_writer import LedgerWriter
from reprieve_operator.replacements.owner_jobs import OwnerJobs
from reprieve_operator.settings import OperatorSettings
from reprieve_operator.turns import Turns
from reprieve_runtime.rate_limit import Rate, RateLimiter, RateLimits

from .assessment import VictimAssessor
from .checkpoint_session import CheckpointSession
from .cleaner_report import CleanerReport
from .gang_eviction.member import GangMember
from .gang_eviction.registry import GangRegistry, OnMember
from .hold import Hold
from .lost_nodes import LostNodeChecker
from .notice import Notice
from .pod_tracker import PodTracker, VictimRef
from .preemptors import Preemptors
from .progress import Progress
from .reconciler import VictimReconciler
from .registry import ReconcilerRegistry
from .reporter import Reporter
from .termination.deletion_wait import DeletionWait
from .termination.eviction_retry import EvictionRetry
from .termination.handover import ReplacementHandover
from .termination.job_suspension import JobSuspension
from .termination.state_writer import TerminationStateWriter
from .termination.termination import Termination
from .victim_sets import VictimSets

_REREADS = RateLimits(total=Rate(50.0, 50), per_namespace=Rate(10.0, 10))
"""Of victims without an event, and none while other calls wait: a watch that works shows all that
happens to them. Without this, of ten thousand victims these reads would take all that an API server
can answer, and no other call would come to its turn."""


def build_registry(
    *,
    writes: Writes,
    client: CheckpointClient,
    policy: PolicySource,
    namespaces: NamespacePolicies,
    ledger: LedgerWriter,
    jobs: OwnerJobs,
    bare_pods: BarePodController,
    lost_nodes: LostNodeChecker,
    hold: Hold,
    recorder: EventRecorder,
    reporter: Reporter,
    victim_sets: VictimSets,
    preemptors: Preemptors,
    settings: OperatorSettings,
    clock: Clock,
    refusal_of: AddressRefusal,
) -> ReconcilerRegistry:
    """Return an empty registry that makes a reconciler for each victim."""
    reread_seconds = settings.resync_interval_seconds
    reread_limiter = RateLimiter(_REREADS, clock.monotonic())
    turns = Turns()

    def make_assessor() -> VictimAssessor:
        return VictimAssessor(writes, policy, namespaces, clock)

    def make_gangs(on_member: OnMember) -> GangRegistry:
        return GangRegistry(writes, recorder, clock, make_assessor, on_member)

    def make_reconciler(ref: VictimRef, gangs: GangRegistry) -> VictimReconciler:
        tracker = PodTracker(
            ref,
            writes,
            clock,
            reread_seconds=reread_seconds,
            may_reread=lambda: (
                not writes.is_busy(ref.namespace)
                and reread_limiter.try_accept(ref.namespace, clock.monotonic())
            ),
            on_change=victim_sets.on_pod_update,
        )
        gang_member = GangMember(gangs, ref.uid, tracker.wake)
        cleaner_report = CleanerReport(recorder, policy, clock)
        progress = Progress(gang_member, reporter, recorder, cleaner_report, policy, clock)
        poller = CheckpointPoller(client, settings, clock, tracker.wake)
        session = CheckpointSession(
            poller,
            client,
            policy,
            namespaces,
            recorder,
            settings=settings,
            clock=clock,
            refusal_of=refusal_of,
            gang_size=lambda: gang_member.gang_size,
        )
        notice = Notice(
            session,
            writes,
            recorder,
            clock,
            adds_finalizer=hold.adds_finalizer,
            cleaner_report=cleaner_report,
            on_pod_written=tracker.on_pod_written,
        )
        termination = Termination(
            writes=writes,
            state_writer=TerminationStateWriter(
                writes,
                policy,
                clock,
                adds_finalizer=hold.adds_finalizer,
                on_pod_written=tracker.on_pod_written,
                on_state_written=progress.on_state_written,
            ),
            job_suspension=JobSuspension(jobs, policy, recorder, reporter, clock),
            handover=ReplacementHandover(ledger, bare_pods, policy, recorder, clock),
            deletion_wait=DeletionWait(
                recorder,
                cleaner_report,
                clock,
                reread_seconds=reread_seconds,
                cleanup_ceiling_seconds=settings.cleanup_ceiling_seconds,
            ),
            eviction_retry=EvictionRetry(writes, policy, recorder, clock),
            reporter=reporter,
            reread_seconds=reread_seconds,
            on_pod_written=tracker.on_pod_written,
        )
        return VictimReconciler(
            tracker=tracker,
            progress=progress,
            assessor=make_assessor(),
            gang_member=gang_member,
            victim_sets=victim_sets,
            preemptors=preemptors,
            notice=notice,
            termination=termination,
            lost_nodes=lost_nodes,
            hold=hold,
            policy=policy,
            clock=clock,
            turns=turns,
            max_retry_after_seconds=reread_seconds,
        )

    return ReconcilerRegistry(make_reconciler, make_gangs, victim_sets)
