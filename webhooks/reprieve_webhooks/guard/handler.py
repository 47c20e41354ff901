"""Who wants which pod gone, what is ruled, and the mark that follows from it.

Whatever fails here fails the review: the API server then does what it would without a guard.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from reprieve_policy import choosing, disruption, gang, guarding, walltime
from reprieve_policy.choosing import Refusal, reading
from reprieve_policy.choosing.objects import Pod
from reprieve_policy.choosing.scene import Scene, Tenant
from reprieve_policy.disruption import Mode
from reprieve_policy.facts import Facts
from reprieve_policy.guarding import Door, Ruling, Seeker, Sought
from reprieve_policy.nominee import Nominee
from reprieve_policy.objects import Resource
from reprieve_policy.settings import ASYNCHRONOUS, AUTO, SYNCHRONOUS
from reprieve_policy.verdict import Change
from reprieve_policy.walltime import Walltime
from reprieve_runtime.api import Api, ApiError
from reprieve_webhooks import answer, review
from reprieve_webhooks.extender.choices import Choice, LastChoices, Named
from reprieve_webhooks.extender.service import Stage
from reprieve_webhooks.handlers import Answer

from .memory import Memory
from .nominees import Nominees
from .objects import Victim
from .pods import Pods
from .review import GuardRequest

_LOG = logging.getLogger(__name__)

ALLOWED, PUT_OFF, REFUSED, WARNED, SKIPPED = "allowed", "put-off", "refused", "warned", "skipped"


class Knowledge(Protocol):
    """The facts of a running cluster."""

    async def facts_for(self, request: review.Request, resource: Resource) -> Facts:
        """Return what the policy may know of this object."""


class NoChoices:
    """`LastChoices` where there is no extender."""

    def of(self, node: str, victim_uid: str) -> Choice | None:  # noqa: ARG002 - there never was one
        """Return nothing."""
        return None


@dataclass(frozen=True, slots=True)
class _Case:
    """One review, and what is known of it."""

    request: GuardRequest
    victim: Victim
    door: Door
    facts: Facts
    job: Walltime | None
    """Of the Job that the pod belongs to."""


class Guard:
    """Answers the reviews of deletions by schedulers, and of evictions by anybody."""

    def __init__(
        self,
        api: Api,
        facts: Knowledge,
        *,
        operator: str,
        timeout_seconds: float,
        choices: LastChoices | None = None,
        stage: Stage | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._facts, self._operator, self._now = facts, operator, now
        self._pods = Pods(api, timeout_seconds=timeout_seconds)
        self.nominees = Nominees(api)
        self._memory = Memory()
        self._choices: LastChoices = choices or NoChoices()
        self._stage = stage

    async def answer(self, request: GuardRequest) -> Answer:
        """Rule on one review."""
        victim = await self._victim(request)
        if victim is None:
            return Answer(answer.build_allowed(request.uid), request.kind.kind, SKIPPED)
        facts = await self._facts_of(victim, request.namespace)
        door = Door.EVICTION if request.is_eviction else Door.PREEMPTION
        if door is Door.PREEMPTION and request.user_info.username not in facts.settings.schedulers:
            return Answer(answer.build_allowed(request.uid), request.kind.kind, SKIPPED)
        is_bounded = door is Door.PREEMPTION and facts.settings.near_completion_seconds > 0
        job = await self._pods.job_walltime(victim, request.namespace) if is_bounded else None
        case = _Case(request, victim, door, facts, job)
        ruling, preemptor = await self._rule(case)
        if ruling.marks and not request.is_dry_run:
            await self._mark(case, preemptor)
        return self._reply(case, ruling, is_nominated=preemptor is not None)

    async def _victim(self, request: GuardRequest) -> Victim | None:
        """Return the pod in question, `None` where the guard has nothing to say."""
        if request.user_info.username == self._operator:
            return None
        if request.is_deletion:
            return request.old_object
        return await self._pods.find(request.namespace, request.name) if request.is_eviction else None

    async def _facts_of(self, pod: Pod, namespace: str) -> Facts:
        resource = Resource(kind="Pod", metadata=pod.metadata, spec=pod.spec)
        kind = review.GroupVersionKind("Pod")
        # As of an update that changes nothing: no right is newly claimed, and nothing is inherited.
        asked = review.Request(
            uid="", operation="UPDATE", kind=kind, namespace=namespace, object=resource, old_object=resource
        )
        return await self._facts.facts_for(asked, resource)

    async def _rule(self, case: _Case) -> tuple[Ruling, Nominee | None]:
        """Return the ruling, and the preemptor where one was inferred."""
        sought, seeker = self._sought(case), Seeker(door=case.door)
        seeker = replace(seeker, unheeded_seconds=self._memory.unheeded_seconds(case.victim.uid))
        ruling = guarding.decide(sought, seeker, case.facts, self._now())
        if case.door is Door.EVICTION or sought.is_leaving or not case.facts.operator_is_there:
            return ruling, None
        is_new = ruling.is_allowed or ruling.marks
        may_wait = is_new and case.facts.settings.scheduler_preemption != SYNCHRONOUS
        priority = case.victim.spec.priority or 0
        preemptor = await self.nominees.infer(case.victim.node, priority, may_wait=may_wait)
        if preemptor is not None and is_new:
            seeker = await self._known(seeker, case, preemptor, marks=ruling.marks)
            ruling = guarding.decide(sought, seeker, case.facts, self._now())
        return ruling, preemptor

    async def _known(self, seeker: Seeker, case: _Case, preemptor: Nominee, *, marks: bool) -> Seeker:
        """Return the seeker with what is known of the preemptor."""
        refusal = await self._why_not(case, preemptor)
        is_busy = marks and refusal is None and await self._is_busy(preemptor, case.victim.node)
        return replace(seeker, refusal=refusal, is_busy=is_busy)

    async def _why_not(self, case: _Case, preemptor: Nominee) -> Refusal | None:
        """Ask the policy that also chooses victims. What protects a gang as a whole is known where the extender is."""
        tenant = reading.tenant_of(case.victim, case.facts, job=case.job, now=self._now())
        its_facts = await self._facts_of(preemptor.pod, preemptor.pod.metadata.namespace or "")
        scene = await self._scene(case, tenant)
        return choosing.why_not(reading.preemptor_of(preemptor.pod, its_facts), tenant, scene)

    async def _scene(self, case: _Case, tenant: Tenant) -> Scene:
        if self._stage is not None and not self._stage.is_behind:
            return self._stage.scene()
        # Whose node it is matters to services only.
        node = await self._pods.node(tenant.node) if tenant.is_service else None
        rooms = {} if node is None else {tenant.node: reading.room_of(node)}
        return Scene(now=self._now(), rooms=rooms, settings=case.facts.settings)

    def _sought(self, case: _Case) -> Sought:
        victim = case.victim
        own = walltime.read(victim.status.startTime, victim.spec.activeDeadlineSeconds)
        return replace(_seen(victim), walltime=walltime.tightest((own, case.job), self._now()))

    async def _is_busy(self, preemptor: Nominee, node: str) -> bool:
        victims = [(_seen(victim), victim.node) for victim in await self._pods.victims()]
        return guarding.is_busy(preemptor.uid, node, victims)

    async def _mark(self, case: _Case, preemptor: Nominee | None) -> None:
        """Mark the pod, and with it the whole set that was chosen for its preemptor; raises `ApiError`."""
        chosen = self._choices.of(case.victim.node, case.victim.uid) if case.door is Door.PREEMPTION else None
        preemptor_uid = preemptor.uid if preemptor else chosen.preemptor.uid if chosen else ""
        is_sensitive = preemptor is not None and await self._is_sensitive(preemptor)
        changes = guarding.changes_for(case.door, preemptor_uid, self._now(), is_for_sensitive=is_sensitive)
        metadata = case.victim.metadata
        named = Named(case.victim.uid, case.request.namespace, metadata.name or case.request.name)
        # At the version that was judged: an operator that has begun meanwhile must not have its phase overwritten.
        if not await self._pods.mark(named, changes, metadata.resourceVersion):
            return
        for fellow in chosen.victims if chosen else ():
            if fellow.uid != case.victim.uid:
                await self._mark_fellow(fellow, changes)

    async def _mark_fellow(self, fellow: Named, changes: Sequence[Change]) -> None:
        try:
            await self._pods.mark(fellow, changes)
        except ApiError as error:
            # One that is being saved already, most of all: its phase is not a mark's to overwrite.
            _LOG.info(
                "fellow victim not marked", extra={"pod": f"{fellow.namespace}/{fellow.name}", "error": str(error)}
            )

    async def _is_sensitive(self, preemptor: Nominee) -> bool:
        facts = await self._facts_of(preemptor.pod, preemptor.pod.metadata.namespace or "")
        return facts.namespace.is_sensitive

    def _reply(self, case: _Case, ruling: Ruling, *, is_nominated: bool) -> Answer:
        kind, outcome = case.request.kind.kind, _outcome(ruling)
        if ruling.violation is None:
            self._memory.forget(case.victim.uid)
            return Answer(
                answer.build_allowed(case.request.uid, [ruling.warning] if ruling.warning else ()), kind, outcome
            )
        if case.request.is_dry_run and case.door is Door.EVICTION:
            # It will go. Without this, a drain that only tries would try for ever.
            return Answer(answer.build_allowed(case.request.uid, [str(ruling.violation)]), kind, WARNED)
        is_asynchronous = self._is_asynchronous(case, is_nominated=is_nominated)
        is_followed = self._is_followed(case.victim)
        if guarding.passes_for_gone(ruling, case.door, is_asynchronous=is_asynchronous, is_followed=is_followed):
            return Answer(answer.build_gone(case.request.uid, ruling.violation), kind, outcome)
        seconds = guarding.retry_after(
            ruling,
            case.door,
            is_asynchronous=is_asynchronous,
            fellows=self._memory.fellows(case.victim.node, case.victim.uid),
            now=self._now(),
        )
        is_asked = case.victim.is_asked
        self._memory.refused(case.victim.uid, case.victim.node, was_timed=seconds is not None, is_asked=is_asked)
        return Answer(answer.build_put_off(case.request.uid, ruling.violation, seconds), kind, outcome)

    def _is_followed(self, victim: Victim) -> bool:
        """True where the scheduler has others to delete that go with this one: a set's, in its order, or a gang's."""
        chosen = self._choices.of(victim.node, victim.uid)
        if chosen is not None:
            return chosen.victims[-1].uid != victim.uid
        found = gang.read(victim.view)
        return found is not None and disruption.mode_of(found, victim.metadata) is Mode.ALL

    def _is_asynchronous(self, case: _Case, *, is_nominated: bool) -> bool:
        said = case.facts.settings.scheduler_preemption
        return said == ASYNCHRONOUS or (said == AUTO and (is_nominated or self._memory.is_insisting(case.victim.uid)))


def _seen(victim: Victim) -> Sought:
    found = gang.read(victim.view)
    return Sought(
        view=victim.view,
        state=victim.state,
        is_asked=victim.is_asked,
        is_leaving=victim.is_leaving,
        has_started=victim.status.phase != "Pending",
        goes_whole=found is not None and disruption.mode_of(found, victim.metadata) is Mode.ALL,
    )


def _outcome(ruling: Ruling) -> str:
    if ruling.is_allowed:
        return WARNED if ruling.warning else ALLOWED
    return PUT_OFF if ruling.is_put_off else REFUSED
