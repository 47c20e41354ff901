"""With `victimOrder: priority`, the victims are the pinned ones.

Seeded random clusters, with gangs, budgets, preferences and pods that are leaving. To change the
choice, delete the golden file, run this test twice, and read the difference.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.gangs.disruption import DisruptionMode
from reprieve_policy.preemption import selection
from reprieve_policy.preemption.cost import CostInputs
from reprieve_policy.preemption.selection.snapshot import (
    GangInfo,
    GangKey,
    HostPortInfo,
    NodeInfo,
    Preemptor,
    ScheduledPod,
    Snapshot,
)
from reprieve_testing.objects.builders import NOW, after
from reprieve_testing.objects.snapshots import (
    a_budget,
    a_node_info,
    a_pod_demand,
    a_preemptor,
    a_scheduled_pod,
    amounts,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "victims-by-priority.txt"
SEED, SNAPSHOTS = 20261123, 400
GANGS = [GangKey("team", name) for name in ("one", "two", "three")]
OWN = GangKey("team", "own")
PORT = frozenset({HostPortInfo("0.0.0.0", "TCP", 80)})
LEAVING: list[dict[str, Any]] = [
    {"is_leaving": True},
    {"is_leaving": True, "notified": False, "is_being_deleted": True},
    {"is_leaving": True, "notified": False, "is_held_by_budget": True},
]


class Generator:
    """Makes snapshots; the same seed makes the same ones."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def pairs(self, count: int) -> Iterator[tuple[Preemptor, Snapshot]]:
        for _ in range(count):
            yield self._preemptor(), self._snapshot()

    def _snapshot(self) -> Snapshot:
        random = self._random
        states_preferences = random.random() < 0.5
        node_infos = [
            self._node_info(f"n{number}", states_preferences=states_preferences)
            for number in range(random.randint(1, 4))
        ]
        pods = [pod for node_info in node_infos for pod in node_info.pods]
        modes = (
            (DisruptionMode.ALL, 0),
            (DisruptionMode.SINGLE, 0),
            (DisruptionMode.SINGLE, 2),
        )
        gangs = {}
        for key in GANGS:
            mode, minimum = random.choice(modes)
            members = tuple(pod for pod in pods if pod.gang == key)
            gangs[key] = GangInfo(
                key=key, disruption_mode=mode, min_available=minimum, members=members
            )
        allowed = random.choice([None, None, 0, 1])
        return Snapshot(
            now=NOW,
            nodes={node_info.name: node_info for node_info in node_infos},
            budgets={} if allowed is None else {"team": [a_budget("a", allowed=allowed)]},
            gangs=gangs,
            settings=self._settings(),
        )

    def _settings(self) -> PolicySettings:
        return PolicySettings(
            max_victims=self._random.choice([1, 2, 3, 9]),
            preemptor_worth_seconds=self._random.choice([None, None, None, 20_000]),
            victim_order="priority",
        )

    def _node_info(self, name: str, *, states_preferences: bool) -> NodeInfo:
        random = self._random
        pods = [
            self._pod(f"{name}-{number}", states_preferences=states_preferences)
            for number in range(random.randint(1, 13))
        ]
        cpu = sum(pod.amounts["cpu"] for pod in pods) / 10**9
        node_info = a_node_info(name, *pods, cpu=cpu or 1)
        allocatable = {**node_info.allocatable, **amounts(memory=sum(range(len(pods))))}
        # No pod leaves a node to which another is nominated: what that means is not a question of
        # order.
        is_quiet = all(pod.release is None and pod.gang is None for pod in pods)
        nominated = (
            [a_pod_demand("nominated", priority=random.choice([0, 2000]), cpu=1)]
            if is_quiet and random.random() < 0.2
            else []
        )
        return replace(node_info, allocatable=allocatable, nominated_pods=nominated)

    def _pod(self, name: str, *, states_preferences: bool) -> ScheduledPod:
        random = self._random
        pod = a_scheduled_pod(
            name,
            priority=random.choice([-7, 0, 5, 5, 500, 2000]),
            started=-random.choice([1, 60, 3600, 3600, 86_400]),
            labels={"app": random.choice("ab")},
            gang=random.choice([None] * 6 + [*GANGS]),
            is_non_preemptible=random.random() < 0.05,
            ports=PORT if random.random() < 0.1 else frozenset(),
            **random.choice([{}] * 90 + LEAVING),
        )
        cpu, memory = random.choice([0, 1, 1, 2, 3]), random.randint(0, 3)
        pod = replace(pod, amounts=amounts(cpu=cpu, memory=memory))
        if not states_preferences:
            return replace(pod, cost_inputs=CostInputs(devices=cpu))
        saves = random.random() < 0.5
        inputs = CostInputs(
            devices=cpu,
            checkpoint_seconds=random.choice([30.0, 600.0]) if saves else 0.0,
            checkpoints_on_eviction=saves,
            stated=random.choice([0, 0, 0, 7]),
        )
        saved_at = after(-30) if random.random() < 0.3 else None
        return replace(
            pod,
            cost_inputs=inputs,
            progress=replace(pod.progress, saved_at=saved_at),
            preemption_class=random.randint(1, 6),
            states_preferences=True,
        )

    def _preemptor(self) -> Preemptor:
        random = self._random
        is_of_gang = random.random() < 0.3
        sizes = [random.randint(1, 3) for _ in range(random.randint(0, 2))] if is_of_gang else []
        preemptor = a_preemptor(
            gang=OWN if is_of_gang else None,
            pending_members=[
                a_pod_demand(f"member-{number}", cpu=cpu) for number, cpu in enumerate(sizes)
            ],
            preemption_class=random.choice([4, 7, 9]),
            devices=1.0,
        )
        demand = replace(
            preemptor.demand,
            amounts=amounts(cpu=random.randint(1, 5), memory=random.randint(0, 2)),
            ports=PORT if random.random() < 0.1 else frozenset(),
        )
        return replace(preemptor, demand=demand)


def lines() -> Iterator[str]:
    for number, (preemptor, snapshot) in enumerate(Generator(SEED).pairs(SNAPSHOTS)):
        decision = selection.decide(preemptor, snapshot, snapshot.nodes)
        for candidate in decision.candidates:
            names = [
                " ".join(pod.name for pod in pods)
                for pods in (
                    candidate.victims,
                    candidate.gang_members_elsewhere,
                    candidate.other_victims,
                )
            ]
            figures = (
                f"{candidate.victim_count} units, {candidate.pdb_violations} violations, "
                f"{candidate.cost_hours:.9g} hours"
            )
            yield f"{number} {candidate.node}: {' | '.join(names)}: {figures}"
        for node, status in sorted(decision.node_statuses.items()):
            yield f"{number} {node}: {status}"


def test_the_victims_are_the_pinned_ones() -> None:
    found = list(lines())
    if not GOLDEN.exists():
        GOLDEN.write_text("\n".join(found) + "\n", encoding="utf-8")
    assert found == GOLDEN.read_text(encoding="utf-8").splitlines()


def test_the_snapshots_are_about_all_that_could_differ() -> None:
    text = GOLDEN.read_text(encoding="utf-8")
    for subject in (
        "may-have-room",
        "will-have-room",
        "too-many-victims",
        "too-expensive",
        "too-small",
        "gang-not-placed",
    ):
        assert f": {subject}\n" in text
    candidates = [line for line in text.splitlines() if "units" in line]
    assert len(candidates) > SNAPSHOTS / 2
    assert any(", 1 violations" in line for line in candidates)
    assert any(" | n" in line for line in candidates)
