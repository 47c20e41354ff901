"""Which process is process 1 of a container: its own program, unless the pod shares processes."""

from typing import Protocol


class HasProcesses(Protocol):
    """The fields of a pod's spec that share processes."""

    @property
    def hostPID(self) -> bool | None: ...  # noqa: D102, N802 - the API's own name
    @property
    def shareProcessNamespace(self) -> bool | None: ...  # noqa: D102, N802


def field_that_moves_pid_1(spec: HasProcesses) -> str | None:
    """Return the field because of which process 1 of a container is not its program, else `None`.

    With `hostPID`, process 1 is the node's own first process, and SIGINT makes that restart the
    node. With a process namespace that the containers share, it is the pod's sandbox.
    """
    if spec.hostPID:
        return "hostPID"
    return "shareProcessNamespace" if spec.shareProcessNamespace else None
