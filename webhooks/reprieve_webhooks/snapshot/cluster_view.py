"""What the extender and the guard may ask of the watched cluster.

`informers.ClusterInformers` implements it; tests implement it with a fixed snapshot. It stands
here, so that the guard does not depend on the extender.
"""

from collections.abc import Iterable
from typing import Protocol

from reprieve_policy.preemption.selection.snapshot import Preemptor, ScheduledPod, Snapshot


class ClusterView(Protocol):
    """The pods, nodes and budgets of the cluster, as the watches know them now."""

    @property
    def is_stale(self) -> bool:
        """True before the first complete lists, and while a watch is silent for too long."""

    @property
    def is_up_to_date(self) -> bool:
        """True where every pod is classified by the policy that holds now.

        That is what admins change. A changed Job or group of a tenant shows a moment later.
        """

    def pending_pod(self, uid: str) -> Preemptor | None:
        """Return a pod that waits for a node, by itself; `None` where no watch has it."""

    def preemptor(self, uid: str) -> Preemptor | None:
        """Return the same with the rest of its gang, which may take milliseconds."""

    def find_unseen(self, node: str, uids: Iterable[str]) -> str | None:
        """Return one of these pods that the watches do not know as a victim of that node.

        `None` where they know all of them; `""` where they do not know the node. A pod is known
        that is on the node, belongs to a gang with a pod on the node, or has left.
        """

    def assume(self, preemptor: Preemptor, node: str, victims: Iterable[ScheduledPod]) -> None:
        """Assume that a scheduler follows its answer, until the watches show what happened."""

    def snapshot(self) -> Snapshot:
        """Return all that is known now; no later event changes the snapshot."""

    def observed_snapshot(self) -> Snapshot:
        """Return the same, with the gangs as the watches observed them, without assumptions."""
