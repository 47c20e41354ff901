"""Collects the history of a round: the audit log, the workloads' records, Events, ledgers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from reprieve_runtime.client.api import Api
from reprieve_testing.chaos import records
from reprieve_testing.chaos.chaos_namespace import ChaosNamespace
from reprieve_testing.chaos.invariants import History, VictimExpectation
from reprieve_testing.chaos.scripted_victims import WorkloadServer, utc_now

from .faults import FaultInjector
from .insisting import insist
from .outages import merged, without_leader
from .promises import EventRecord, RoundHistory
from .victims import CEILING_SECONDS, PlannedVictim


@dataclass(frozen=True)
class HistoryReader:
    """Reads the records of one namespace."""

    api: Api
    namespace: ChaosNamespace
    workloads: WorkloadServer
    faults: FaultInjector
    audit_log: Path

    async def read(self, victims: Sequence[PlannedVictim]) -> RoundHistory:
        """Return all records about these victims."""
        pods = await insist(self.namespace.pods)
        log, namespace = self.audit_log, self.namespace.namespace
        names = {f"{namespace}/{victim.name}" for victim in victims}
        every = [
            write
            for write in await asyncio.to_thread(records.read_writes, log, namespace, "")
            if write.pod in names
        ]
        ours = [write for write in every if write.user.endswith(records.OPERATOR)]
        others = [
            write
            for write in every
            if write.is_deletion and not write.user.endswith(records.OPERATOR)
        ]
        until, uids = utc_now(), {victim.scripted.uid for victim in victims}
        outages = without_leader(self.faults.calls.renewals, self.faults.operator_windows, until)
        history = History(
            victims=[self._expectation(victim, every) for victim in victims],
            writes=ours,
            hints=[hint for hint in self.workloads.hints if hint.uid in uids],
            answers=[answer for answer in self.workloads.answers if answer.uid in uids],
            outages=outages,
        )
        return RoundHistory(
            history=history,
            removals_by_others=others,
            guard_outages=merged(self.faults.guard_windows),
            unmarked_at={
                f"{namespace}/{victim.name}": victim.unmarked_at
                for victim in victims
                if victim.unmarked_at is not None
            },
            owners={
                f"{namespace}/{victim.name}": await self._annotations_of_owner(victim.name)
                for victim in victims
                if victim.scripted.has_owner
            },
            left={f"{namespace}/{name}": pod for name, pod in pods.items()},
            events=await self._events(uids),
            ceiling=timedelta(seconds=CEILING_SECONDS),
        )

    def _expectation(
        self, victim: PlannedVictim, every: Sequence[records.Write]
    ) -> VictimExpectation:
        pod = f"{self.namespace.namespace}/{victim.name}"
        own = [write for write in every if write.pod == pod and write.has_succeeded]
        marks = [write.at for write in own if write.user.endswith(records.WEBHOOKS)]
        deletions = [write for write in own if write.is_deletion]
        is_others = bool(deletions) and not deletions[0].user.endswith(records.OPERATOR)
        assert victim.begun_at is not None
        return victim.expectation(
            pod,
            marked_at=marks[0] if marks else victim.begun_at,
            removed_at=deletions[0].done if is_others else None,
        )

    async def _annotations_of_owner(self, name: str) -> dict[str, str]:
        owner = await insist(self.namespace.owner, name)
        found: dict[str, str] = owner["metadata"].get("annotations") or {}
        return found

    async def _events(self, uids: set[str]) -> list[EventRecord]:
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace.namespace}/events"
        listed = await insist(self.api.get, path, dict)
        return [
            EventRecord(item["regarding"]["uid"], item["reason"])
            for item in listed["items"]
            if item["regarding"].get("uid") in uids
        ]
