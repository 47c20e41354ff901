"""For how long a pod has carried a mark that no operator handles.

Once a mark was seen for a minute, the pod may be deleted without notice: an operator leads, and
does not see this pod. It may be lost at any time, and each replica counts by itself: the pod then
waits a little longer.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from reprieve_runtime.bounded_dict import BoundedDict

_MAX_PODS = 5000
"""Pods; beyond that, the oldest are forgotten."""
_MAX_GAP_SECONDS = 30.0
"""Counted between two requests for a pod. The operator may have been unable to act for the rest:
the API server may have been away."""


@dataclass(slots=True)
class _Seen:
    state_before_mark: str
    at: float
    seconds: float = 0.0


class UnprocessedMarks:
    """The marks that were seen on refused pods, by the pods' uids."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._seen: BoundedDict[str, _Seen] = BoundedDict(_MAX_PODS)

    def seconds(self, uid: str, state_before_mark: str | None) -> float:
        """Return for how long this pod has carried a mark.

        `state_before_mark`: the pod's last eviction and its phase, as a mark from before those
        counts for nothing; `None` if the pod carries no mark.
        """
        known = self._seen.get(uid)
        if known is None or known.state_before_mark != state_before_mark:
            return 0.0
        return known.seconds + min(self._monotonic() - known.at, _MAX_GAP_SECONDS)

    def observe(self, uid: str, state_before_mark: str | None) -> None:
        """Record whether a refused pod carries a mark."""
        seconds = self.seconds(uid, state_before_mark)
        self.forget(uid)
        if state_before_mark is not None:
            self._seen[uid] = _Seen(state_before_mark, self._monotonic(), seconds)

    def forget(self, uid: str) -> None:
        """Forget a pod whose deletion was allowed."""
        self._seen.pop(uid, None)
