"""Decides on a report: who sends it, whether it may come now, and what is written.

A pod is known by its token alone: nothing in a report names one. The report has the age of the
save, not its time, so that the clocks of nodes do not matter and no save lies in the future.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from http import HTTPStatus

import msgspec

from reprieve_policy.kube.values import timestamp
from reprieve_runtime.bounded_dict import BoundedDict
from reprieve_runtime.client.api import Api, ApiError
from reprieve_runtime.single_flight import RateLimitedError
from reprieve_webhooks.snapshot.recent_choices import PodIdentity

from .answer import Answer, failed, forbidden, limited, malformed
from .metrics import ReportOutcome
from .pod_tokens import pod_tokens
from .recorder import CheckpointRecorder

_LOG = logging.getLogger(__name__)

MIN_INTERVAL_SECONDS = 8.0
"""Between two reports of one pod, in each replica. Agents leave at least 10 seconds."""
MAX_AGE_SECONDS = 366 * 24 * 3600
_MAX_PODS = 10_000
"""Pods whose last report is remembered. A pod that is forgotten may report once more at once."""
MAX_CONCURRENT = 20
"""Reports that call the API server at a time. The calls of reviews need the connections too."""
_BUSY_SECONDS = 5
_NO_RIGHTS_SECONDS = 3600
"""An admin who withholds the rights seldom grants them within the hour."""
_LOG_INTERVAL_SECONDS = 60.0


class _Report(msgspec.Struct):
    age_seconds: int = msgspec.field(name="ageSeconds")


class CheckpointReports:
    """Answers reports."""

    def __init__(
        self,
        api: Api,
        *,
        timeout_seconds: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tokens = pod_tokens(api, timeout_seconds=timeout_seconds, monotonic=monotonic)
        self._recorder = CheckpointRecorder(api, timeout_seconds=timeout_seconds)
        self._now, self._monotonic = api.server_time.now, monotonic
        self._reported_at: BoundedDict[str, float] = BoundedDict(_MAX_PODS)
        self._active: Counter[str] = Counter()
        """Reports by address."""
        self._logged_at = -math.inf

    async def answer(self, token: str, body: bytes, peer: str) -> Answer:
        """Answer one report, which comes from this address."""
        received_at = self._now()
        age_seconds = _parse(body)
        if isinstance(age_seconds, Answer):
            return age_seconds
        if not self._has_room(token, peer):
            return limited("too many reports at once", _BUSY_SECONDS)
        self._active[peer] += 1
        try:
            saved_at = received_at - timedelta(seconds=age_seconds)
            return await self._record(token, saved_at.replace(microsecond=0), peer)
        except RateLimitedError:
            return limited("too many reports", _BUSY_SECONDS)
        except (ApiError, msgspec.MsgspecError) as error:
            return self._failed(error)
        finally:
            # Drops what is zero.
            self._active -= Counter((peer,))

    def _has_room(self, token: str, peer: str) -> bool:
        """Return whether one more report may call the API server.

        New tokens have half of the room, and of one address a quarter. Without this, a client that
        shows some new tokens while reviews take long would keep out all agents.
        """
        active = self._active.total()
        if self._tokens.is_known(token):
            return active < MAX_CONCURRENT
        return active < MAX_CONCURRENT // 2 and self._active[peer] < MAX_CONCURRENT // 4

    async def _record(self, token: str, saved_at: datetime, peer: str) -> Answer:
        pod = await self._tokens.result(token, peer)
        if isinstance(pod, Answer):
            return pod
        wait_seconds = self._seconds_to_wait(pod)
        if wait_seconds > 0:
            return limited("this pod has just reported", math.ceil(wait_seconds))
        self._reported_at[pod.uid] = self._monotonic()
        recorded = await self._recorder.record(pod, saved_at)
        if recorded is None:
            return forbidden("the pod of the token is gone")
        outcome = ReportOutcome.RECORDED if recorded.is_new else ReportOutcome.UNCHANGED
        return Answer(HTTPStatus.OK, timestamp.render(recorded.at), outcome)

    def _seconds_to_wait(self, pod: PodIdentity) -> float:
        before = self._reported_at.get(pod.uid, -math.inf)
        return before + MIN_INTERVAL_SECONDS - self._monotonic()

    def _failed(self, error: Exception) -> Answer:
        # Never the text of the error: it could have parts of the request, and so of the token.
        cause = (
            f"{error.status} {error.reason}" if isinstance(error, ApiError) else "unreadable answer"
        )
        if self._monotonic() - self._logged_at >= _LOG_INTERVAL_SECONDS:
            self._logged_at = self._monotonic()
            _LOG.warning("could not record when a workload saved", extra={"error": cause})
        if isinstance(error, ApiError) and error.is_forbidden:
            return failed("the webhooks may not review tokens or patch pods", _NO_RIGHTS_SECONDS)
        return failed("the API server did not record the report")


def _parse(body: bytes) -> int | Answer:
    try:
        age_seconds = msgspec.json.decode(body, type=_Report).age_seconds
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return malformed('must be JSON like {"ageSeconds":12}')
    if not 0 <= age_seconds <= MAX_AGE_SECONDS:
        return malformed(f"ageSeconds must be between 0 and {MAX_AGE_SECONDS}")
    return age_seconds
