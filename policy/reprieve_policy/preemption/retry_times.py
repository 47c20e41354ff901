"""When a scheduler may ask for a refused pod again.

This follows from kube-scheduler's own code (1.37, `framework/preemption/executor.go`): after an
error, asynchronous preemption starts again at once unless the client waits as `Retry-After` says,
and synchronous preemption sleeps for that time in the scheduling loop.
"""

import math
from datetime import datetime

from .guard import GuardDecision, RequestKind

MIN_RETRY_SECONDS = 4
"""For each victim. A Kubernetes client tries eleven times, then the scheduler starts again at once.
The same time passes between two 404 answers to a preemptor that asks again and again.

With 2, two victims, each seen by one of two replicas, would cause 1.1 calls a second.
"""
MAX_RETRY_SECONDS = 30
"""For any number of victims: kube-scheduler deletes 16 at a time (`framework/parallelize`)."""
REFUSED_RETRY_SECONDS = 5
"""For a refused preemption. Shorter: until then the scheduler tries no other node for its pod."""


def retry_after(
    decision: GuardDecision,
    request_kind: RequestKind,
    *,
    is_asynchronous: bool,
    is_short: bool = False,
    waiting_victim_count: int,
    asked_victim_count: int = 1,
    now: datetime,
) -> int | None:
    """Return the seconds that the client must wait; `None` if it comes back by itself.

    `waiting_victim_count`: for how many victims of the preemptor a client waits to ask again, this
    one included. With several, the scheduler waits for all of them, so each wait is only as long as
    the rate limit demands. The same holds if the answer should be short (`is_short`).

    `asked_victim_count`: for how many victims on the node the preemptor's scheduler asked lately.
    After a wait for a refused one, it asks for all of them again.
    """
    if request_kind is RequestKind.EVICTION or not is_asynchronous:
        return None
    least = retry_interval_seconds(waiting_victim_count)
    if decision.is_postponed:
        shortest, longest = MIN_RETRY_SECONDS, MAX_RETRY_SECONDS
    else:
        shortest = longest = REFUSED_RETRY_SECONDS
        # A second apart: the first that is back ends the attempt, and with it the others.
        least = max(least, attempt_seconds(asked_victim_count) + waiting_victim_count - 1)
    if is_short:
        return min(MAX_RETRY_SECONDS, least)
    if decision.until is None or waiting_victim_count > 1:
        seconds = shortest
    else:
        seconds = min(longest, math.ceil((decision.until - now).total_seconds()))
    return min(MAX_RETRY_SECONDS, max(least, seconds))


def retry_interval_seconds(victims: int) -> int:
    """Return the least time between two requests for one of so many victims of a preemptor."""
    return min(MAX_RETRY_SECONDS, MIN_RETRY_SECONDS * max(1, victims))


def attempt_seconds(victims: int) -> int:
    """Return the least time of an attempt in which each victim is asked for, and one is refused.

    A second for each request: the refused victim is asked for once more, which ends the attempt,
    and a request may come twice, if its victim changes meanwhile.
    """
    return victims + 2


def should_answer_not_found(
    decision: GuardDecision, request_kind: RequestKind, *, is_asynchronous: bool
) -> bool:
    """True if the scheduler gets "not found", keeps its preemptor nominated, and waits for events.

    kube-scheduler keeps a preemptor out of its queue while it deletes the victims. "Not found" is
    no error to it: the preemptor may use any other room at once, lower priorities cannot take the
    room that it is nominated to, and the end of any pod makes the scheduler look again. Without
    this, the preemptor would sleep while it is asked for, and would not notice that victims leave.

    The pod exists, and its end is still to come. For the last victim the scheduler looks whether it
    is gone (since 1.35, `executor.go`, `isRunningPreemption`; before, the preemptor stays in the
    queue), so that the end is never missed.

    Also for a preemptor whose victims on another node are not gone: that room is what it waits for.
    """
    return (
        request_kind is RequestKind.PREEMPTION
        and is_asynchronous
        and (decision.is_postponed or decision.has_victims_elsewhere)
    )
