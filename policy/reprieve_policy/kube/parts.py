"""Parts of Kubernetes objects that only one rule reads each; see `objects`, of which they are parts.

What the agent needs to know of a pod, and a Job's rules about pods that failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyDir:
    """A volume that lives and dies with its pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume of a pod, as far as it is known of what kind it is."""

    name: str = ""
    emptyDir: EmptyDir | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityContext:
    """As whom a container runs, or all of a pod that say nothing else."""

    runAsUser: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitCodes:
    """Which exit codes of a pod's containers a Job's rule is about."""

    operator: str = ""
    values: Sequence[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodConditionPattern:
    """Which condition of a pod a Job's rule is about."""

    type: str = ""
    status: str = "True"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFailurePolicyRule:
    """What a Job does about a pod that failed so."""

    action: str = ""
    onExitCodes: ExitCodes | None = None
    onPodConditions: Sequence[PodConditionPattern] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFailurePolicy:
    """A Job's rules about failed pods: the first that concerns one holds."""

    rules: Sequence[PodFailurePolicyRule] | None = None
