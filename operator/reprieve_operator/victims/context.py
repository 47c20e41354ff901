"""What every keeper of a term shares."""

from dataclasses import dataclass

from reprieve_operator.checkpointing.client import CheckpointClient
from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import EventRecorder
from reprieve_operator.cluster.namespace_policies import NamespacePolicies
from reprieve_operator.cluster.policy_source import PolicySource
from reprieve_operator.cluster.writes import Writes
from reprieve_operator.replacements.bare_pods import BarePodController
from reprieve_operator.replacements.ledger_writer import LedgerWriter
from reprieve_operator.replacements.owner_jobs import OwnerJobs
from reprieve_operator.settings import OperatorSettings

from .lost_nodes import LostNodeChecker
from .reporter import Reporter


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Handed down, never global."""

    settings: OperatorSettings
    clock: Clock
    policy: PolicySource
    namespaces: NamespacePolicies
    effects: Writes
    ledger: LedgerWriter
    jobs: OwnerJobs
    nodes: LostNodeChecker
    requeuer: BarePodController
    lines: CheckpointClient
    announcer: EventRecorder
    tally: Reporter
