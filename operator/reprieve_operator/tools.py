"""What every keeper of a term shares."""

from dataclasses import dataclass

from .announce import Announcer
from .clock import Clock
from .effects import Effects
from .ledgerkeeper import LedgerKeeper
from .namespace_policies import NamespacePolicies
from .nodes import Nodes
from .owner_jobs import OwnerJobs
from .policy_source import PolicySource
from .requeuer import Requeuer
from .settings import OperatorSettings
from .switchboard import Switchboard
from .tally import Tally


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
