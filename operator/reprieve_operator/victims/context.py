"""What every keeper of a term shares."""

from dataclasses import dataclass

from reprieve_operator.checkpointing.client import Switchboard
from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import Announcer
from reprieve_operator.cluster.namespace_policies import NamespacePolicies
from reprieve_operator.cluster.policy_source import PolicySource
from reprieve_operator.cluster.writes import Effects
from reprieve_operator.replacements.bare_pods import Requeuer
from reprieve_operator.replacements.ledger_writer import LedgerKeeper
from reprieve_operator.replacements.owner_jobs import OwnerJobs
from reprieve_operator.settings import OperatorSettings

from .lost_nodes import Nodes
from .reporter import Tally


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Handed down, never global."""

    settings: OperatorSettings
    clock: Clock
    policy: PolicySource
    namespaces: NamespacePolicies
    effects: Effects
    ledger: LedgerKeeper
    jobs: OwnerJobs
    nodes: Nodes
    requeuer: Requeuer
    lines: Switchboard
    announcer: Announcer
    tally: Tally
