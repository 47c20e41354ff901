"""Which policy is in force when its ConfigMap appears, changes, becomes invalid or is deleted.

One answer for both programs. An invalid ConfigMap changes nothing: the policy in force stays in
force. Without a ConfigMap the defaults are in force, also after an invalid one: a program must not
bring back from its memory what an admin has deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reprieve_policy.verdict import Violation

from . import settings as policy
from .settings import PolicySettings

_MAX_REASONS = 5
"""Violations that a message lists. A ConfigMap may have a hundred thousand keys, and each unknown
key is a violation."""


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """The policy in force, and what is wrong with the ConfigMap if that says something else."""

    settings: PolicySettings = field(default_factory=PolicySettings)
    violations: tuple[Violation, ...] = ()

    @property
    def is_config_map_valid(self) -> bool:
        """True if the policy in force is the ConfigMap's, or there is no ConfigMap."""
        return not self.violations

    @property
    def error_message(self) -> str:
        """What is wrong, as one bounded line: paths and accepted values, no user values."""
        shown = [
            f"{violation.path[:100]}: {violation.detail}"
            for violation in self.violations[:_MAX_REASONS]
        ]
        more = len(self.violations) - len(shown)
        return "; ".join([*shown, f"and {more} more"] if more else shown)


def decide_effective_policy(
    before: EffectivePolicy, data: Mapping[str, str] | None
) -> EffectivePolicy:
    """Return the policy in force for this `data` of the ConfigMap; `None`: there is none."""
    if data is None:
        return EffectivePolicy()
    parsed = policy.parse(data)
    return (
        EffectivePolicy(parsed)
        if isinstance(parsed, PolicySettings)
        else EffectivePolicy(before.settings, parsed)
    )
