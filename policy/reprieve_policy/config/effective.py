"""Which policy holds while its ConfigMap comes, changes, breaks and goes: one answer for both programs.

A ConfigMap that cannot be read changes nothing: what was in force stays in force. Without a ConfigMap the defaults hold,
also after a broken one: what an admin has taken away does not come back from a program's memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprieve_policy.verdict import Violation

from . import settings as policy
from .settings import PolicySettings

_MAX_REASONS = 5
"""Said of one ConfigMap: it may have a hundred thousand keys, and each unknown one is a violation."""


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """The policy that holds, and what is wrong with the ConfigMap where that is another one."""

    settings: PolicySettings = field(default_factory=PolicySettings)
    violations: tuple[Violation, ...] = ()

    @property
    def is_config_map_valid(self) -> bool:
        """True where what holds is what the ConfigMap says, or there is none."""
        return not self.violations

    @property
    def error_message(self) -> str:
        """What is wrong, as one line of bounded length: paths and what would be accepted, no values."""
        shown = [
            f"{violation.path[:100]}: {violation.detail}"
            for violation in self.violations[:_MAX_REASONS]
        ]
        more = len(self.violations) - len(shown)
        return "; ".join([*shown, f"and {more} more"] if more else shown)


def decide_effective_policy(
    before: EffectivePolicy, data: Mapping[str, str] | None
) -> EffectivePolicy:
    """Return what holds now that the ConfigMap has this `data`; `None` where there is no ConfigMap."""
    if data is None:
        return EffectivePolicy()
    parsed = policy.parse(data)
    return (
        EffectivePolicy(parsed)
        if isinstance(parsed, PolicySettings)
        else EffectivePolicy(before.settings, parsed)
    )
