"""What a PodGroup of the Coscheduling plugin (document 004) says of the start of its gang."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.coscheduling_groups import CoschedulingGroup
from reprieve_policy.kube.limits import quota
from reprieve_policy.kube.limits.quota import Amounts

from .dialects import POD_GROUP
from .membership import Gang

_MAX_RESOURCES = 32
_MAX_NAME_CHARACTERS = 253 + 1 + 63
"""A domain, a slash and a name: no resource has a longer one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequirements:
    """What must be so before the gang starts."""

    minimum: int | None = None
    """How many of its pods must exist; counts where the pods state none."""
    min_resources: Amounts = field(default_factory=dict)
    """What must be free in the cluster, in nanos by resource."""
    timeout_seconds: int | None = None
    """How long it may take to be placed."""

    def timeout_under(self, settings: PolicySettings) -> int:
        """Return the timeout: the group may shorten that of the policy, and not lengthen it.

        Without the bound, a gang that is never placed would keep its room from others for ever.
        """
        own = self.timeout_seconds
        longest = settings.gang_gate_timeout_seconds
        return longest if own is None else min(own, longest)


NO_REQUIREMENTS = StartRequirements()
"""Of a gang without a PodGroup."""


def group_name_of(gang: Gang | None) -> str | None:
    """Return the name of the PodGroup that may describe a gang; `None`: none does."""
    return gang.name if gang is not None and gang.dialect == POD_GROUP else None


def read(group: CoschedulingGroup) -> StartRequirements:
    """Return what a PodGroup requires; a value that makes no sense counts as absent.

    So do resources beyond 32. Without this, a user whose groups name very many would fill the
    operator's memory.
    """
    spec = group.spec
    return StartRequirements(
        minimum=_positive(spec.minMember),
        min_resources=quota.read_amounts(_bounded(spec.minResources or {})),
        timeout_seconds=_positive(spec.scheduleTimeoutSeconds),
    )


def _bounded(written: Mapping[str, object]) -> Mapping[str, object]:
    names = [name for name in written if len(name) <= _MAX_NAME_CHARACTERS]
    return {name: written[name] for name in names[:_MAX_RESOURCES]}


def _positive(number: int | None) -> int | None:
    return number if number is not None and number > 0 else None
