"""Counts the members of gangs that the gate's watch does not select.

For a gang whose labelled pods are too few, the other members are listed, after a short delay and
then periodically: a gang that has just been created costs no list.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reprieve_operator.clock import Clock
from reprieve_operator.cluster.call_limiter import CallLimiter, CallPriority
from reprieve_policy.gangs.gate_steps import GatedGang, GateMember, GateStep
from reprieve_policy.gangs.start_requirements import StartRequirements
from reprieve_runtime.client.api import Api, ApiError

from . import gate_pods
from .gate_pods import LabelledPod
from .gate_release import RETRY_SECONDS

_log = logging.getLogger(__name__)

_SETTLE_SECONDS = 1.0
"""Time for a new gang to become complete, before its other members are listed."""
_MAX_COUNT_AGE_SECONDS = 1.0
"""An older count of members is repeated before it makes a gang complete."""
_REPLACE_SECONDS = 60.0
"""How long a pod of a gang that is held back is tried, if the API server refuses to change it."""
_NEVER = float("-inf")
_MAX_CONCURRENT_LISTS = 8
"""Of all namespaces; each has a share, so that lists that take long hold up no other namespace."""
_PLACING = (GateStep.WAIT, GateStep.RELEASE, GateStep.HOLD_BACK)
"""Steps in which a gang's released pods are being placed."""
MAX_COUNTS_PER_NAMESPACE = 4
"""Member lists for one namespace's gangs in one pass.

Without this, a tenant with thousands of gangs that never become complete would delay the gangs of
all other tenants.
"""


@dataclass(slots=True)
class CountedGang:
    """What is remembered of a gang, besides its pods."""

    settles_at: float
    counted_at: float = _NEVER
    last_list: int = 0
    """The number of its last list, of all that were begun."""
    retry_at: float = _NEVER
    """When the members may be listed again after a list that failed."""
    members: Mapping[str, bool] = field(default_factory=dict)
    """All its members at the last list, by uid: whether each is on a node."""
    has_run: bool = False
    """All that it needs were on nodes."""
    unreplaced: frozenset[str] = frozenset()
    """Uids of pods that could not be replaced yet, of a gang that is held back."""
    unreplaced_until: float = _NEVER
    """Until when that is tried again."""
    step: GateStep = GateStep.WAIT
    """What was done with the gang when it was last looked at."""
    placing_since: float | None = None
    """Since when the scheduler has had some of its pods, while it has not started."""
    reported: set[str] = field(default_factory=set)
    """The Events that were written since it began to wait."""

    @property
    def is_counted(self) -> bool:
        """True once its members were listed."""
        return self.counted_at != _NEVER

    def forget_members(self) -> None:
        """Forget the last list: its pods are replaced, and would count as a gang that runs."""
        self.members, self.has_run = {}, False
        self.count_again()

    def note_step(self, gang: GatedGang, step: GateStep, now: float) -> None:
        """Note what is done with the gang now.

        One that is held back goes on to be placed until that is written, which may be refused.
        """
        self.step = step
        if not gang.released or step not in _PLACING:
            self.placing_since = None
        elif self.placing_since is None:
            self.placing_since = now

    def keeps_room(self, gang: GatedGang, ceiling_seconds: int, now: float) -> bool:
        """True if other gangs leave the room that its pods still need.

        Not beyond the time in which a gang is to be placed, whatever pods were replaced meanwhile.
        Without this, who deletes a pod of a gang that cannot be placed each time before the timeout
        would keep all other gangs waiting.
        """
        if self.placing_since is None:
            return True
        return now - self.placing_since < gang.seconds_to_place(ceiling_seconds)

    def note_unreplaced(self, uids: frozenset[str], now: float) -> None:
        """Have the pods replaced in a later pass.

        Without this, the rest of a gang would be taken for one that is released by half, once those
        of its pods are deleted that are not placed.
        """
        if not self.unreplaced or now >= self.unreplaced_until:
            self.unreplaced_until = now + _REPLACE_SECONDS
        self.unreplaced = uids

    def still_to_replace(self, gang: GatedGang, now: float) -> Sequence[GateMember]:
        """Return the pods that could not be replaced when the gang was held back."""
        if now >= self.unreplaced_until:
            return ()
        return [pod for pod in gang.released if pod.uid in self.unreplaced]

    def count_again(self) -> None:
        """Have the members listed without delay."""
        self.settles_at = self.counted_at = _NEVER


class GangCounts:
    """Observes gangs, and lists their members where that is needed."""

    def __init__(self, api: Api, clock: Clock, *, recount_seconds: float) -> None:
        self._api, self._clock = api, clock
        self._recount_seconds = recount_seconds
        self._list_limiter = CallLimiter(_MAX_CONCURRENT_LISTS, keeps_share_free=True)
        self._counts_by_namespace: Counter[str] = Counter()
        self._lists = 0

    def begin_pass(self) -> None:
        """Allow each namespace its lists again, but for those that are still under way."""
        self._counts_by_namespace = Counter(
            {
                namespace: count
                for namespace in self._counts_by_namespace
                if (count := self._list_limiter.count(namespace))
            }
        )

    def new_gang(self) -> CountedGang:
        """Return what is remembered of a gang that was not seen before."""
        return CountedGang(settles_at=self._clock.monotonic() + _SETTLE_SECONDS)

    def is_settled(self, counted: CountedGang) -> bool:
        """True once a new gang had the time to become complete."""
        return self._clock.monotonic() >= counted.settles_at

    def next_count_seconds(self, counted: CountedGang) -> float:
        """Return the seconds until the members may be listed again."""
        is_settled = self.is_settled(counted)
        at = counted.counted_at + self._recount_seconds if is_settled else counted.settles_at
        return max(0.0, max(at, counted.retry_at) - self._clock.monotonic())

    def retry_seconds(self, counted: CountedGang) -> float:
        """Return the seconds until a list that failed may be made again; 0 if none failed."""
        return max(0.0, counted.retry_at - self._clock.monotonic())

    async def observe(
        self,
        counted: CountedGang,
        pods: Sequence[LabelledPod],
        requirements: StartRequirements,
        timeout_seconds: int,
    ) -> GatedGang:
        """Return the gang with its other members, as far as they are known."""
        gang = self.last_known(counted, pods, requirements, timeout_seconds)
        if self._must_count(counted, gang) and await self.count(counted, pods[0]):
            gang = self.last_known(counted, pods, requirements, timeout_seconds)
        return gang

    async def count(self, counted: CountedGang, pod: LabelledPod) -> bool:
        """List the members now; `False` if that failed, or is not allowed in this pass."""
        namespace = pod.metadata.namespace or ""
        if self.retry_seconds(counted) or not self._may_count(namespace):
            return False
        self._lists += 1
        counted.last_list = self._lists
        try:
            async with self._list_limiter.acquire(CallPriority.RECORD, namespace):
                counted.members = await gate_pods.list_members(self._api, pod)
        except ApiError as error:
            extra = {"gang": str(pod.regarding), "error": str(error)}
            _log.warning("could not list the members of a gang", extra=extra)
            counted.retry_at = self._clock.monotonic() + RETRY_SECONDS
            return False
        counted.counted_at = self._clock.monotonic()
        return True

    def last_known(
        self,
        counted: CountedGang,
        pods: Sequence[LabelledPod],
        requirements: StartRequirements,
        timeout_seconds: int,
    ) -> GatedGang:
        """Return the gang with the members of the last list."""
        # Labelled pods may be in the last list, too, if the watch was behind: count none twice.
        labelled = {pod.member.uid for pod in pods}
        others = [on_node for uid, on_node in counted.members.items() if uid not in labelled]
        gang = GatedGang(
            members=[pod.member for pod in pods],
            others=len(others),
            others_bound=sum(others),
            has_run=counted.has_run,
            group_minimum=requirements.minimum,
            timeout_seconds=timeout_seconds,
        )
        counted.has_run |= 0 < gang.minimum <= gang.bound
        return gang

    def _must_count(self, counted: CountedGang, gang: GatedGang) -> bool:
        if gang.count - gang.others >= gang.minimum:
            return False
        now = self._clock.monotonic()
        if now < counted.retry_at:
            return False
        age = now - counted.counted_at
        if gang.count >= gang.minimum and (gang.needed or gang.bound < gang.minimum):
            return age >= _MAX_COUNT_AGE_SECONDS
        return self.is_settled(counted) and age >= self._recount_seconds

    def _may_count(self, namespace: str) -> bool:
        if self._counts_by_namespace[namespace] >= MAX_COUNTS_PER_NAMESPACE:
            return False
        self._counts_by_namespace[namespace] += 1
        return True
