"""The identity of a victim."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VictimRef:
    """Identifies one pod. The uid is needed: another pod of the same name may follow it."""

    namespace: str
    name: str
    uid: str

    @property
    def key(self) -> str:
        """`namespace/name`, for logs."""
        return f"{self.namespace}/{self.name}"
