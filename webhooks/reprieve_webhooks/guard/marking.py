"""The mark that follows from a ruling: on the pod that was asked for, and on the others that its preemptor takes with it."""

import logging
from collections.abc import Callable, Container
from datetime import datetime

from reprieve_policy.preemption import guard
from reprieve_policy.preemption.guard import Door
from reprieve_policy.preemption.selection.snapshot import GroupKey
from reprieve_runtime.client.api import ApiError
from reprieve_webhooks.snapshot.recent_choices import Choice, Named

from .evaluator import Judge, Suspect
from .reader import Pods
from .review_context import Case, Cases

_LOG = logging.getLogger(__name__)

_TRIES = 3
"""To mark one to which no scheduler comes: a pod that changes meanwhile is read again."""


class Marker:
    """Marks victims."""

    def __init__(self, pods: Pods, cases: Cases, judge: Judge, now: Callable[[], datetime]) -> None:
        self._pods, self._cases, self._judge, self._now = pods, cases, judge, now

    async def mark(self, case: Case, suspect: Suspect | None) -> bool:
        """Mark a pod as it was judged; `False` where it is not so any more. Raises `ApiError`."""
        changes = guard.changes_for(
            case.door,
            suspect.uid if suspect else "",
            self._now(),
            is_exempt=suspect is not None and suspect.preemptor.is_exempt,
            is_for_sensitive=suspect is not None and suspect.is_sensitive,
        )
        metadata = case.victim.metadata
        named = Named(case.victim.uid, case.namespace, metadata.name or "")
        # At the version that was judged: an operator that has begun meanwhile must not have its phase overwritten.
        return await self._pods.mark(named, changes, metadata.resourceVersion)

    async def mark_fellows(self, marked: Case, chosen: Choice, suspect: Suspect) -> None:
        """Mark the others that were chosen for the same preemptor, each ruled on as if it were asked for itself.

        Of a gang that goes as a whole one is enough: the operator takes the rest.
        """
        gangs = {marked.gang}
        for fellow in (*chosen.victims, *chosen.elsewhere):
            if fellow.uid == marked.victim.uid:
                continue
            gangs.add(
                await self._mark_fellow(fellow, suspect, gangs, tries=_TRIES if fellow in chosen.elsewhere else 1)
            )

    async def _mark_fellow(
        self, fellow: Named, suspect: Suspect, gangs: Container[GroupKey | None], *, tries: int
    ) -> GroupKey | None:
        """Mark a pod, unless its gang is one of these; return the gang that is marked by that."""
        for _ in range(tries):
            try:
                is_marked, gang = await self._try_fellow(fellow, suspect, gangs)
            except ApiError as error:
                # Of those on the node, it is found out when the scheduler comes to it.
                extra = {"pod": f"{fellow.namespace}/{fellow.name}", "error": str(error)}
                _LOG.info("fellow victim not marked", extra=extra)
                if not error.status:
                    # It does not answer, and its patience with this review is running out: then the first would go without notice.
                    return None
                continue
            if is_marked:
                return gang
        return None

    async def _try_fellow(
        self, fellow: Named, suspect: Suspect, gangs: Container[GroupKey | None]
    ) -> tuple[bool, GroupKey | None]:
        """Return whether there is nothing left to do, and the gang that is marked by that."""
        victim = await self._pods.find(fellow.namespace, fellow.name)
        if victim is None or victim.uid != fellow.uid:
            return True, None
        case = await self._cases.of(victim, fellow.namespace, Door.PREEMPTION)
        if case.gang is not None and case.gang in gangs:
            return True, None
        ruling = await self._judge.rule_for(case, suspect)
        if not ruling.marks:
            return True, None
        return await self.mark(case, suspect), case.gang
