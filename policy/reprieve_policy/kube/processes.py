"""Whose process 1 is: a container's own program, unless the pod shares processes with others."""

from typing import Protocol


class HasProcesses(Protocol):
    """The part of a pod's spec that says who sees whose processes."""

    @property
    def hostPID(self) -> bool | None: ...  # noqa: D102, N802 - the API's own name
    @property
    def shareProcessNamespace(self) -> bool | None: ...  # noqa: D102, N802


def field_that_moves_pid_1(spec: HasProcesses) -> str | None:
    """Return the field because of which process 1 of a container is not its program, `None` where it is.

    With `hostPID` it is the node's own first process, which SIGINT makes restart the node; with a process namespace that the
    containers share, it is the pod's sandbox.
    """
    if spec.hostPID:
        return "hostPID"
    return "shareProcessNamespace" if spec.shareProcessNamespace else None
