"""Parts of the objects in `objects`, each read by one rule only.

They describe what the agent needs to know of a pod, and a Job's rules about failed pods.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyDir:
    """A volume with the lifetime of its pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """A volume of a pod; of its source, only whether it is an `emptyDir`."""

    name: str = ""
    emptyDir: EmptyDir | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityContext:
    """The user of a container, or of all containers of a pod that set none of their own."""

    runAsUser: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitCodes:
    """The exit codes that a rule of a Job matches."""

    operator: str = ""
    values: Sequence[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodConditionPattern:
    """The pod condition that a rule of a Job matches."""

    type: str = ""
    status: str = "True"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFailurePolicyRule:
    """What a Job does about a failed pod that matches."""

    action: str = ""
    onExitCodes: ExitCodes | None = None
    onPodConditions: Sequence[PodConditionPattern] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFailurePolicy:
    """A Job's rules about failed pods: the first that matches decides."""

    rules: Sequence[PodFailurePolicyRule] | None = None
