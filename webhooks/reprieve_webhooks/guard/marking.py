"""Marks pods after a decision: the pod under review, and the other victims of its preemptor."""

import asyncio
import logging
from collections.abc import Callable, Container
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from reprieve_policy.preemption import first_refusal, guard
from reprieve_policy.preemption.guard import RequestKind
from reprieve_policy.preemption.selection.snapshot import GangKey
from reprieve_runtime.client.api import ApiError
from reprieve_runtime.single_flight import SingleFlight
from reprieve_webhooks.snapshot.recent_choices import PodIdentity, VictimSet, VictimSetLookup

from .concurrency_limit import ConcurrencyLimiter
from .evaluator import Evaluator, PossiblePreemptor
from .reader import GuardReader
from .review_context import ReviewContext, ReviewContextReader

_LOG = logging.getLogger(__name__)

_MAX_ATTEMPTS = 3
"""To mark a pod that no scheduler will delete: a pod that changes meanwhile is read again."""
_SECOND_TRY_SECONDS = 0.6
"""To read and mark once more a pod that is evicted; what came before took 2.3 seconds at most."""
_WAIT_SECONDS = 1.0
"""How long a review waits until the other victims are marked; in a large gang, the rest is marked
after it. An API server waits for three seconds, and then deletes the pod without notice."""

_MAX_EVICTION_MARKS = 32
"""Written at once for evictions. The API server gets 200 calls of a program at once, and some 18 of
them are watches. A mark takes a second where a webhook of the pod's owner hangs, and a
user may evict one pod any number of times. Without this, one tenant could take all calls, and the
pods of others would be preempted without notice."""


class Marker:
    """Marks victims."""

    def __init__(
        self,
        reader: GuardReader,
        contexts: ReviewContextReader,
        evaluator: Evaluator,
        victim_sets: VictimSetLookup,
        now: Callable[[], datetime],
    ) -> None:
        self._reader, self._contexts, self._evaluator, self._now = reader, contexts, evaluator, now
        self._victim_sets = victim_sets
        # Each set is marked by one review at a time.
        self._sets: SingleFlight[VictimSet, None] = SingleFlight(0.0, limits=None)
        self._eviction_marks = ConcurrencyLimiter(_MAX_EVICTION_MARKS)

    async def mark(
        self,
        context: ReviewContext,
        candidate: PossiblePreemptor | None,
        *,
        also_if_changed: bool = False,
    ) -> bool:
        """Mark a pod; `False` if it changed since the decision.

        Raises `ApiError`, and `TooManyCallsError` for an eviction beside too many others.
        """
        changes = guard.mark_changes(
            context.request_kind,
            candidate.uid if candidate else "",
            self._now(),
            is_exempt=candidate is not None and candidate.preemptor.is_exempt,
            is_for_sensitive=candidate is not None and candidate.is_sensitive,
            victims=None if candidate is None else self._count_victims(context, candidate),
        )
        # At the version under decision: if the operator has begun meanwhile, its phase must not be
        # overwritten.
        version = None if also_if_changed else context.victim.metadata.resourceVersion
        with self._place(context):
            return await self._reader.mark(context.identity, changes, version)

    def _place(self, context: ReviewContext) -> AbstractContextManager[None]:
        """Return a place among the marks of evictions; a preemption needs none."""
        if context.request_kind is RequestKind.PREEMPTION:
            return nullcontext()
        return self._eviction_marks.place(context.namespace)

    def _count_victims(self, context: ReviewContext, candidate: PossiblePreemptor) -> int | None:
        """Return how many victims the extender chose with this one; `None` beside gangs."""
        victim = context.victim
        chosen = self._victim_sets.find(victim.node, victim.uid, by=candidate.uid)
        if chosen is None or chosen.whole_gang_uids or context.gang is not None:
            return None
        return len(chosen.victims)

    async def mark_changed(
        self, context: ReviewContext, candidate: PossiblePreemptor | None
    ) -> bool:
        """Decide again on a pod that changed since the decision; `False` if it is not marked.

        Also where a call fails: the client asks again, while an error would let the pod go without
        notice. So would a review that takes longer than the API server waits, three seconds; a
        client that evicts asks again soon.
        """
        is_eviction = context.request_kind is RequestKind.EVICTION
        with suppress(TimeoutError, ApiError):
            async with asyncio.timeout(_SECOND_TRY_SECONDS if is_eviction else None):
                return await self._decide_again(context, candidate)
        return False

    async def _decide_again(
        self, context: ReviewContext, candidate: PossiblePreemptor | None
    ) -> bool:
        """Read the pod, decide on it, and mark it; `False` if it is not marked.

        Several victims of a preemptor are reviewed at once, and each review marks all of them. A
        pod that is evicted, or was refused a `ceiling` ago, is marked though it changes once more.
        Without this, an owner who writes to the pod all the time could hold a drain, and a pod that
        was refused before would be deleted without notice.
        """
        name, namespace = context.victim.metadata.name or "", context.namespace
        victim = await self._reader.find_pod(namespace, name, context.request_kind)
        if victim is None or victim.uid != context.victim.uid:
            return False
        current = await self._contexts.read(victim, namespace, context.request_kind)
        if candidate is None:
            decision = self._evaluator.evaluate(current)
        else:
            decision = await self._evaluator.evaluate_for(current, candidate)
        if decision.sets_mark:
            must_mark = context.request_kind is RequestKind.EVICTION or first_refusal.is_over(
                victim.refused_since, current.facts.settings.ceiling_seconds, self._now()
            )
            return await self.mark(current, candidate, also_if_changed=must_mark)
        return decision.is_postponed

    async def mark_other_victims(
        self, marked: ReviewContext, chosen: VictimSet, candidate: PossiblePreemptor
    ) -> None:
        """Mark the other victims of the same preemptor, after a decision on each of them.

        Of a gang that is evicted as a unit one pod suffices: the operator evicts the others. This
        returns before all are marked where that takes long: the rest is marked in the background.
        """
        mark_others = partial(self._mark_others, marked, chosen, candidate)
        with suppress(TimeoutError):
            async with asyncio.timeout(_WAIT_SECONDS):
                await self._sets.do(chosen, mark_others)

    async def _mark_others(
        self, marked: ReviewContext, chosen: VictimSet, candidate: PossiblePreemptor
    ) -> None:
        gangs = {marked.gang}
        for other in (*chosen.victims, *chosen.victims_on_other_nodes):
            if other.uid == marked.victim.uid:
                continue
            gangs.add(
                await self._mark_other_victim(
                    other,
                    candidate,
                    gangs,
                    tries=_MAX_ATTEMPTS if other in chosen.victims_on_other_nodes else 1,
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
        """Mark a pod unless its gang is one of these; return the gang that the mark covers."""
        for _ in range(tries):
            try:
                is_done, gang = await self._try_to_mark(victim, candidate, gangs)
            except ApiError as error:
                # A victim on the node is marked later, when the scheduler deletes it.
                extra = {"pod": f"{victim.namespace}/{victim.name}", "error": str(error)}
                _LOG.info("could not mark another victim of the same preemptor", extra=extra)
                if error.is_unreachable:
                    # The API server's timeout for this review runs out: on a timeout, the first
                    # victim would be deleted without notice.
                    return None
                continue
            if is_done:
                return gang
        return None

    async def _try_to_mark(
        self, identity: PodIdentity, candidate: PossiblePreemptor, gangs: Container[GangKey | None]
    ) -> tuple[bool, GangKey | None]:
        """Return whether nothing is left to do, and the gang that the mark covers."""
        victim = await self._reader.find_pod(identity.namespace, identity.name)
        if victim is None or victim.uid != identity.uid:
            return True, None
        context = replace(
            await self._contexts.read(victim, identity.namespace, RequestKind.PREEMPTION),
            # The pod under review gets notice, or leaves with one that does.
            leaves_with_others=True,
        )
        if context.gang is not None and context.gang in gangs:
            return True, None
        decision = await self._evaluator.evaluate_for(context, candidate)
        if not decision.sets_mark:
            return True, None
        return await self.mark(context, candidate), context.gang
