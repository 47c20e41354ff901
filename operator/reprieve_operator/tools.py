"""What every keeper of a term shares."""

from dataclasses import dataclass

from .announce import Announcer
from .clock import Clock
from .effects import Effects
from .hints import HintLine
from .ledgerkeeper import LedgerKeeper
from .namespace_policies import NamespacePolicies
from .policy_source import PolicySource
from .settings import OperatorSettings
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
    line: HintLine
    announcer: Announcer
    tally: Tally
