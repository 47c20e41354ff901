"""The ruling on a case, by the policy that also chooses victims, for each pod that it may go for."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from reprieve_policy import choosing, guarding
from reprieve_policy.choosing import Ground, Obstacle, reading
from reprieve_policy.choosing.scene import Preemptor, Scene, Tenant
from reprieve_policy.guarding import Ruling, Seeker
from reprieve_policy.nominee import Nominee
from reprieve_webhooks.extender.service import Stage

from .case import Case, Cases, seen
from .memory import Memory
from .pods import Pods

_MOST_SUSPECTS = 10
"""Looked at for one deletion: rarely are as many nominated to one node."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """A pod for which a victim may go."""

    uid: str
    preemptor: Preemptor
    is_sensitive: bool


class Judge:
    """Rules on cases; raises `ApiError`."""

    def __init__(
        self, cases: Cases, pods: Pods, memory: Memory, stage: Stage | None, now: Callable[[], datetime]
    ) -> None:
        self._cases, self._pods, self._memory, self._stage, self._now = cases, pods, memory, stage, now

    def rule(self, case: Case) -> Ruling:
        """Rule on a pod for whomever it may go."""
        return self._decide(case, Seeker(door=case.door, unheeded_seconds=self._unheeded_seconds(case)))

    async def rule_for_any(self, case: Case, nominees: Sequence[Nominee]) -> tuple[Ruling, Suspect]:
        """Rule on a pod that goes for one of these, nobody knows which: refused only where none of them may have it."""
        suspects = [await self._suspect(one) for one in nominees[:_MOST_SUSPECTS]]
        ruled = [(await self.rule_for(case, suspect), suspect) for suspect in suspects]
        return next((one for one in ruled if one[0].is_allowed or one[0].is_put_off), ruled[0])

    async def rule_for(self, case: Case, suspect: Suspect) -> Ruling:
        """Rule on a pod that goes for this one."""
        tenant = reading.tenant_of(case.victim, case.facts, native=case.native, job=case.job, now=self._now())
        # What protects a gang as a whole is known where the extender is.
        refusal = choosing.why_not(suspect.preemptor, tenant, await self._scene(case, tenant))
        seeker = Seeker(door=case.door, refusal=refusal, unheeded_seconds=self._unheeded_seconds(case))
        ruling = self._decide(case, seeker)
        if not ruling.marks or not await self._is_busy(suspect, case.victim.node):
            return ruling
        return self._decide(case, Seeker(door=case.door, is_busy=True))

    def _decide(self, case: Case, seeker: Seeker) -> Ruling:
        now = self._now()
        return guarding.decide(case.sought(now), seeker, case.facts, now)

    def _unheeded_seconds(self, case: Case) -> float:
        return self._memory.unheeded_seconds(case.victim.uid)

    async def _suspect(self, nominee: Nominee) -> Suspect:
        namespace = nominee.pod.metadata.namespace or ""
        facts = await self._cases.facts_of(nominee.pod, namespace)
        native = await self._pods.native_group(nominee.pod, namespace)
        preemptor = reading.preemptor_of(nominee.pod, facts, native=native)
        return Suspect(nominee.uid, preemptor, facts.namespace.is_sensitive)

    async def _scene(self, case: Case, tenant: Tenant) -> Scene:
        if self._stage is not None and not self._stage.is_behind:
            return self._stage.scene()
        # Whose node it is matters to services only.
        node = await self._pods.node(tenant.node) if tenant.is_service else None
        rooms = {} if node is None else {tenant.node: reading.room_of(node)}
        return Scene(now=self._now(), rooms=rooms, settings=case.facts.settings)

    async def _is_busy(self, suspect: Suspect, node: str) -> bool:
        if await self._may_wait(suspect, node):
            return True
        victims = [(seen(victim), victim.node) for victim in await self._pods.victims()]
        return guarding.is_busy(suspect.uid, node, victims)

    async def _may_wait(self, suspect: Suspect, node: str) -> bool:
        """True where a gang's pod has room coming elsewhere: a scheduler that got no answer of the extender does not know that."""
        stage = self._stage
        preemptor = None if stage is None or stage.is_behind else stage.preemptor(suspect.uid)
        # Beside whom a pod may be, only its scheduler knows.
        if stage is None or preemptor is None or preemptor.group is None or preemptor.depends_on_pods:
            return False
        alone = replace(preemptor, rest=())
        found = await asyncio.to_thread(choosing.decide, alone, stage.scene(), [node])
        if found.ground is Ground.UNFINISHED:
            return preemptor.nominated_node != node
        return Obstacle.WILL_HAVE_ROOM in found.obstacles.values()
