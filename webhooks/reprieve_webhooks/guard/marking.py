"""The mark that follows from a ruling: on the pod that was asked for, and on the others that its preemptor takes with it."""

import logging
from collections.abc import Callable, Container
from datetime import datetime

from reprieve_policy.preemption import guard
from reprieve_policy.preemption.guard import RequestKind
from reprieve_policy.preemption.selection.snapshot import GangKey
from reprieve_runtime.client.api import ApiError
from reprieve_webhooks.snapshot.recent_choices import PodIdentity, VictimSet

from .evaluator import Evaluator, PossiblePreemptor
from .reader import GuardReader
from .review_context import ReviewContext, ReviewContextReader

_LOG = logging.getLogger(__name__)

_MAX_ATTEMPTS = 3
"""To mark one to which no scheduler comes: a pod that changes meanwhile is read again."""


class Marker:
    """Marks victims."""

    def __init__(
        self,
        pods: GuardReader,
        contexts: ReviewContextReader,
        evaluator: Evaluator,
        now: Callable[[], datetime],
    ) -> None:
        self._reader, self._contexts, self._evaluator, self._now = pods, contexts, evaluator, now

    async def mark(self, context: ReviewContext, candidate: PossiblePreemptor | None) -> bool:
        """Mark a pod as it was judged; `False` where it is not so any more. Raises `ApiError`."""
        changes = guard.mark_changes(
            context.request_kind,
            candidate.uid if candidate else "",
            self._now(),
            is_exempt=candidate is not None and candidate.preemptor.is_exempt,
            is_for_sensitive=candidate is not None and candidate.is_sensitive,
        )
        metadata = context.victim.metadata
        named = PodIdentity(context.victim.uid, context.namespace, metadata.name or "")
        # At the version that was judged: an operator that has begun meanwhile must not have its phase overwritten.
        return await self._reader.mark(named, changes, metadata.resourceVersion)

    async def mark_other_victims(
        self, marked: ReviewContext, chosen: VictimSet, candidate: PossiblePreemptor
    ) -> None:
        """Mark the others that were chosen for the same preemptor, each ruled on as if it were asked for itself.

        Of a gang that goes as a whole one is enough: the operator takes the rest.
        """
        gangs = {marked.gang}
        for fellow in (*chosen.victims, *chosen.victims_on_other_nodes):
            if fellow.uid == marked.victim.uid:
                continue
            gangs.add(
                await self._mark_other_victim(
                    fellow,
                    candidate,
                    gangs,
                    tries=_MAX_ATTEMPTS if fellow in chosen.victims_on_other_nodes else 1,
                )
            )

    async def _mark_other_victim(
        self,
        victim: PodIdentity,
        candidate: PossiblePreemptor,
        gangs: Container[GangKey | None],
        *,
        tries: int,
    ) -> GangKey | None:
        """Mark a pod, unless its gang is one of these; return the gang that is marked by that."""
        for _ in range(tries):
            try:
                is_marked, gang = await self._try_to_mark(victim, candidate, gangs)
            except ApiError as error:
                # Of those on the node, it is found out when the scheduler comes to it.
                extra = {"pod": f"{victim.namespace}/{victim.name}", "error": str(error)}
                _LOG.info("fellow victim not marked", extra=extra)
                if not error.status:
                    # It does not answer, and its patience with this review is running out: then the first would go without notice.
                    return None
                continue
            if is_marked:
                return gang
        return None

    async def _try_to_mark(
        self, fellow: PodIdentity, candidate: PossiblePreemptor, gangs: Container[GangKey | None]
    ) -> tuple[bool, GangKey | None]:
        """Return whether there is nothing left to do, and the gang that is marked by that."""
        victim = await self._reader.find_pod(fellow.namespace, fellow.name)
        if victim is None or victim.uid != fellow.uid:
            return True, None
        case = await self._contexts.read(victim, fellow.namespace, RequestKind.PREEMPTION)
        if case.gang is not None and case.gang in gangs:
            return True, None
        ruling = await self._evaluator.evaluate_for(case, candidate)
        if not ruling.sets_mark:
            return True, None
        return await self.mark(case, candidate), case.gang
