"""The ruling on a case, by the policy that also chooses victims, for each pod that it may go for."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from reprieve_policy import keys
from reprieve_policy.gangs import pod_group
from reprieve_policy.kube.objects import group_name_of
from reprieve_policy.preemption import guard, selection
from reprieve_policy.preemption.guard import Ruling, Seeker
from reprieve_policy.preemption.nominated_pods import Nominee
from reprieve_policy.preemption.selection import Ground, Obstacle, snapshot_builder
from reprieve_policy.preemption.selection.snapshot import Preemptor, Scene, Tenant
from reprieve_webhooks.extender.service import Stage
from reprieve_webhooks.snapshot.recent_choices import LastChoices

from .objects import Victim
from .reader import Pods
from .refusal_history import Memory
from .review_context import Case, Cases, seen

_MOST_SUSPECTS = 10
"""Looked at for one deletion, beside Kubernetes' own: rarely are as many nominated to one node."""
_MOST_NODES = 30
"""Asked about for one deletion: to so many may pods be nominated that have nothing to do with it."""


class Around:
    """What goes on around a pod that is ruled on: looked up once for a review, and only where it matters."""

    def __init__(self, pods: Pods, stage: Stage | None) -> None:
        self._pods, self._stage = pods, stage
        self._listed: Sequence[Victim] | None = None
        self._scene: Scene | None = None

    async def victims(self) -> Sequence[Victim]:
        """Return all that are under way, none where they cannot be read now."""
        if self._listed is None:
            self._listed = await self._pods.victims()
        return self._listed

    def scene(self) -> Scene | None:
        """Return what the extender's watches know, `None` where there is no extender or they are behind.

        What it expects since it chose a pod must not refuse that: its gang is not going before it is marked.
        """
        if self._scene is None and self._stage is not None and not self._stage.is_behind:
            self._scene = self._stage.scene_as_seen()
        return self._scene


@dataclass(frozen=True, slots=True)
class Suspect:
    """A pod for which a victim may go."""

    uid: str
    node: str
    """Where it is nominated: elsewhere than its victim, if that goes with a native group."""
    preemptor: Preemptor
    is_sensitive: bool
    around: Around


class Judge:
    """Rules on cases; raises `ApiError`."""

    def __init__(
        self,
        cases: Cases,
        pods: Pods,
        memory: Memory,
        choices: LastChoices,
        stage: Stage | None,
        now: Callable[[], datetime],
    ) -> None:
        self._cases, self._pods, self._memory, self._choices = cases, pods, memory, choices
        self._stage, self._now = stage, now

    def rule(self, case: Case) -> Ruling:
        """Rule on a pod for whomever it may go."""
        return self._decide(case, Seeker(door=case.door, unheeded_seconds=self._unheeded_seconds(case)))

    async def rule_by_budget(self, case: Case, ruling: Ruling) -> Ruling:
        """Rule on an eviction: where a budget does not allow it now, nobody is asked to save for it."""
        if not ruling.marks or not await self._pods.is_held(case.victim, case.namespace):
            return ruling
        return self._decide(case, Seeker(door=case.door, is_held=True))

    async def rule_for_any(self, case: Case, nominees: Sequence[Nominee]) -> tuple[Ruling, Suspect | None]:
        """Rule on a pod that goes for one of these, nobody knows which: refused only where none of them may have it.

        `None` beside the ruling where it can go for none of them.
        """
        refused: tuple[Ruling, Suspect] | None = None
        around = Around(self._pods, self._stage)
        for nominee in await self._nearest(nominees, case):
            suspect = await self._suspect(nominee, around)
            if suspect.preemptor.guest.priority <= case.least_priority:
                continue
            ruling = await self.rule_for(case, suspect)
            # The first is enough: the API server waits for three seconds, and then lets the pod go without notice.
            if ruling.is_allowed or ruling.is_put_off:
                return ruling, suspect
            refused = refused or (ruling, suspect)
        return refused or (self.rule(case), None)

    async def rule_for(self, case: Case, suspect: Suspect) -> Ruling:
        """Rule on a pod that goes for this one."""
        case = replace(case, is_inseparable=self._choices.is_inseparable(case.victim.uid, by=suspect.uid))
        tenant = snapshot_builder.tenant_of(case.victim, case.facts, native=case.native, job=case.job, now=self._now())
        # What protects a gang as a whole is known where the extender is.
        refusal = selection.why_not(suspect.preemptor, tenant, await self._scene(case, tenant, suspect.around))
        seeker = Seeker(
            door=case.door,
            refusal=refusal,
            is_exempt=suspect.preemptor.is_exempt,
            unheeded_seconds=self._unheeded_seconds(case),
        )
        ruling = self._decide(case, seeker)
        if not ruling.marks or seeker.is_exempt or not await self._is_busy(suspect, case):
            return ruling
        return self._decide(case, Seeker(door=case.door, is_busy=True))

    def _decide(self, case: Case, seeker: Seeker) -> Ruling:
        now = self._now()
        return guard.decide(case.sought(now), seeker, case.facts, now)

    def _unheeded_seconds(self, case: Case) -> float:
        return self._memory.unheeded_seconds(case.victim.uid)

    async def _nearest(self, nominees: Sequence[Nominee], case: Case) -> Sequence[Nominee]:
        """Return those of the first who are nominated where something goes with the victim, and all such that are Kubernetes' own.

        Without this, whoever waits anywhere, of Kubernetes' own above all, would end the protection of every native group. Where nobody
        can say whether something does, it does. All nodes are asked about at once: the API server waits for three seconds.
        """
        own = case.victim.node
        others = [node for node in dict.fromkeys(one.node for one in nominees) if node != own][:_MOST_NODES]
        runs = await asyncio.gather(*(self._pods.runs_on(node, case.victim, case.namespace) for node in others))
        where = {own, *(node for node, has_some in zip(others, runs, strict=True) if has_some is not False)}
        found = [one for one in nominees if one.node in where]
        # Kubernetes' own come last where others are more probable, and not to be hidden by them.
        return [one for place, one in enumerate(found) if place < _MOST_SUSPECTS or one.is_exempt]

    async def _suspect(self, nominee: Nominee, around: Around) -> Suspect:
        namespace = nominee.pod.metadata.namespace or ""
        facts = await self._cases.facts_of(nominee.pod, namespace)
        native = await self._pods.native_group(nominee.pod, namespace)
        preemptor = snapshot_builder.preemptor_of(nominee.pod, facts, native=native)
        guest = preemptor.guest
        # One of a group preempts by its group's priority.
        guest = replace(guest, priority=pod_group.priority_of(guest.priority, native))
        return Suspect(nominee.uid, nominee.node, replace(preemptor, guest=guest), facts.namespace.is_sensitive, around)

    async def _scene(self, case: Case, tenant: Tenant, around: Around) -> Scene:
        known = around.scene()
        if known is not None:
            return known
        # Whose node it is matters to services only.
        node = await self._pods.node(tenant.node) if tenant.is_service else None
        rooms = {} if node is None else {tenant.node: snapshot_builder.room_of(node)}
        return Scene(now=self._now(), rooms=rooms, settings=case.facts.settings)

    async def _is_busy(self, suspect: Suspect, case: Case) -> bool:
        if await self._may_wait(suspect):
            return True
        victims = await suspect.around.victims()
        # A native group that goes as a whole is of one set, wherever it runs.
        going = [victim for victim in victims if victim.view.annotations.get(keys.PREEMPTOR) == suspect.uid]
        here = [victim for victim in going if victim.node == suspect.node]
        same = {_group_of(victim) for victim in ((*here, case.victim) if case.vacancy.is_anywhere else here)} - {None}
        others = [victim for victim in victims if _group_of(victim) not in same]
        return guard.is_busy(suspect.uid, suspect.node, [(seen(victim), victim.node) for victim in others])

    async def _may_wait(self, suspect: Suspect) -> bool:
        """True where a gang's pod has room coming elsewhere: a scheduler that got no answer of the extender does not know that."""
        scene = suspect.around.scene()
        preemptor = None if self._stage is None or scene is None else self._stage.preemptor(suspect.uid)
        # Beside whom a pod may be, only its scheduler knows.
        if scene is None or preemptor is None or preemptor.group is None or preemptor.depends_on_pods:
            return False
        alone = replace(preemptor, rest=())
        found = await asyncio.to_thread(selection.decide, alone, scene, [suspect.node])
        if found.ground is Ground.UNFINISHED:
            return preemptor.nominated_node != suspect.node
        return Obstacle.WILL_HAVE_ROOM in found.obstacles.values()


def _group_of(pod: Victim) -> tuple[str, str] | None:
    """Return the native group that a pod names."""
    group = group_name_of(pod.spec.schedulingGroup)
    return (pod.metadata.namespace or "", group) if group else None
