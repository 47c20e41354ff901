"""Ray Train: the workers also save when Ray says that a node goes.

Wrap the agreement of the workers:

    agreement = WithRay(all_ranks())
    with reprieve.checkpointing(save, resume, agreement=agreement) as session:

Reprieve asks before it deletes a pod of the Ray cluster; Ray says it when it drains a node. Either
way, all workers save after the same step, and training goes on.
"""

from __future__ import annotations

import ray.train

from reprieve_client.agreement import Agreement, Outcome


class WithRay:
    """An agreement that also looks at `ray.train.get_preemption_info`, once for each node.

    Args:
        others: The agreement of the workers, such as `frameworks.pytorch.all_ranks()`.
    """

    def __init__(self, others: Agreement) -> None:
        self._others = others
        self._known: set[str] = set()
        self._going: set[str] = set()

    def decide(self, step: int, is_wanted: bool) -> bool:  # noqa: FBT001 - the interface's
        """Return whether this worker saves now. Ray waits here for all workers."""
        info = ray.train.get_preemption_info()
        if info is not None:
            self._going |= set(info.preempted_node_ids)
        is_decided = self._others.decide(step, is_wanted or not self._going <= self._known)
        if is_decided:
            self._known |= self._going
        return is_decided

    def defer(self, step: int) -> None:
        """Note that this worker cannot save now; a node that goes is looked at later."""
        self._others.defer(step)

    def combine(self, own: Outcome) -> Outcome:
        """Wait until all workers have saved."""
        return self._others.combine(own)
