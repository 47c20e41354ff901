"""The simulated cluster: no work is lost or counted twice, room is held, notice is what it says."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from bench.preemption import trace
from bench.preemption.figures import is_victim
from bench.preemption.records import Record
from bench.preemption.run import End, PodRun
from bench.preemption.simulator import choices, contenders, figures, losses, model, rules
from bench.preemption.simulator.contenders import CONTENDERS, Contender, Rules
from bench.preemption.simulator.figures import Figures
from bench.preemption.simulator.scheduler import DecisionTimes
from bench.preemption.simulator.simulation import Result, Simulation
from bench.preemption.trace import Checkpoints, Job, Tier, Trace

BATCH, GUARANTEED, TRAINING, URGENT, CRITICAL = trace.TIERS
HINTED = Checkpoints(interval_seconds=100.0, save_seconds=2.0, takes_hints=True, on_sigterm=False)
ON_SIGTERM = replace(HINTED, takes_hints=False, on_sigterm=True)
REDESIGN = contenders.REDESIGN
OVERHEAD_SECONDS = (
    model.MARK_SECONDS + model.POLL_SECONDS + model.DELETE_SECONDS + model.GONE_SECONDS
)
"""The most that a requested save costs beside the save itself."""


def a_job(name: str, tier: Tier, *, arrives_at: float = 0.0, **fields: Any) -> Job:
    told: dict[str, Any] = {
        "preemption_class": tier.classes[0],
        "pods": 1,
        "cpus": 8,
        "seconds": 60.0,
        "checkpoints": None,
    }
    return Job(name=name, tier=tier, arrives_at=arrives_at, **{**told, **fields})


def simulated(*jobs: Job, contender: Contender = REDESIGN, nodes: int = 1, **more: Any) -> Result:
    return Simulation(Trace(1, nodes, 200.0, jobs, **more), contender).run()


def records_of(result: Result, job: str) -> list[Record]:
    return [record for record in result.records if record.job == job]


def a_pod(job: Job, *, started_at: float | None = 0.0) -> model.Pod:
    run = PodRun(job, 0, job.name, job.name, created_at=0.0, left=job.seconds)
    if started_at is not None:
        run.start(started_at)
    return model.Pod(run)


# --- nothing is lost or counted twice


@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda contender: contender.key)
def test_all_time_on_nodes_is_kept_or_wasted_and_no_work_is_done_twice(
    contender: Contender,
) -> None:
    drawn = replace(trace.generate(5, 150, 15), restart_seconds=1.0)
    simulation = Simulation(drawn, contender)
    result = simulation.run()
    kept: dict[tuple[str, int], float] = {}
    for record in result.records:
        kept[record.job, record.index] = kept.get((record.job, record.index), 0.0) + record.kept
        assert record.occupied == pytest.approx(record.kept + record.wasted)

    finished = {(each.job, each.index) for each in result.records if each.end == "finished"}
    for job in drawn.jobs:
        for index in range(job.pods):
            done = kept.get((job.name, index), 0.0)
            if (job.name, index) in finished:
                assert done == pytest.approx(job.seconds)
            else:
                assert done <= job.seconds
    for node in simulation.nodes:
        assert node.used == sum(pod.cpus for pod in node.pods) <= node.cpus
        assert node.leaving == sum(pod.cpus for pod in node.pods if pod.is_leaving)


@pytest.mark.parametrize("contender", CONTENDERS, ids=lambda contender: contender.key)
def test_the_same_seed_gives_the_same_figures(contender: Contender) -> None:
    def once() -> Figures:
        return figures.figures_of(Simulation(trace.generate(6, 80, 8), contender).run())

    assert once() == once()


def test_a_restart_is_counted_once() -> None:
    result = simulated(
        a_job("victim", BATCH, seconds=30.0),
        a_job("preemptor", CRITICAL, arrives_at=5.0, seconds=10.0),
        contender=contenders.STOCK,
        restart_seconds=3.0,
    )
    victim, replacement = records_of(result, "victim")

    assert (victim.end, victim.kept) == (End.PREEMPTED.value, 0.0)
    assert (replacement.end, replacement.kept) == (End.FINISHED.value, 30.0)
    assert replacement.wasted == pytest.approx(3.0 + model.GONE_SECONDS)
    assert figures.figures_of(result).wasted_pod_seconds == pytest.approx(victim.wasted + 3.0)
    assert figures.figures_of(result).wasted_device_seconds == pytest.approx(
        8 * (victim.wasted + 3.0)
    )


def test_every_preempted_pod_is_replaced_after_a_back_off() -> None:
    result = simulated(
        a_job("victim", BATCH, seconds=30.0),
        a_job("preemptor", CRITICAL, arrives_at=5.0, seconds=1.0),
        contender=contenders.STOCK,
    )
    victim, replacement = records_of(result, "victim")

    assert victim.ended_at is not None
    assert replacement.created_at == pytest.approx(victim.ended_at + 10.0)
    assert figures.figures_of(result).finished_jobs == 2


# --- room is held


def test_a_nomination_holds_room_against_pods_that_are_not_more_important() -> None:
    node = model.Node(8)
    holder = a_pod(a_job("holder", URGENT, cpus=6))
    model.nominate(holder, node, now=0.0)

    assert node.free_for(holder) == 8
    assert node.free_for(a_pod(a_job("equal", URGENT))) == 2
    assert node.free_for(a_pod(a_job("lower", BATCH))) == 2
    assert node.free_for(a_pod(a_job("higher", CRITICAL))) == 8


@pytest.mark.parametrize("rival", [BATCH, TRAINING, URGENT], ids=lambda tier: tier.name)
def test_room_that_is_held_is_taken_by_no_pod_of_lower_or_equal_priority(rival: Tier) -> None:
    result = simulated(
        a_job("victim", BATCH, checkpoints=HINTED),
        a_job("preemptor", URGENT, arrives_at=20.0, seconds=5.0),
        a_job("rival", rival, arrives_at=21.0, seconds=5.0),
    )
    (preemptor,) = records_of(result, "preemptor")
    first_rival = records_of(result, "rival")[0]

    assert preemptor.started_at is not None
    assert 22.0 < preemptor.started_at < 20.0 + HINTED.save_seconds + 2 * OVERHEAD_SECONDS
    assert first_rival.started_at is not None
    assert preemptor.ended_at is not None
    assert first_rival.started_at > preemptor.ended_at


def test_a_scheduler_that_needs_time_tries_one_pod_after_the_other() -> None:
    jobs = [a_job(name, BATCH, cpus=1) for name in ("first", "second", "third")]
    times = DecisionTimes(attempt_seconds=1.0)
    result = Simulation(Trace(1, 1, 200.0, jobs), REDESIGN, times).run()
    starts = sorted(record.started_at or 0.0 for record in result.records)
    assert [round(start - starts[0], 6) for start in starts] == [0.0, 1.0, 2.0]


def test_only_a_scheduler_with_an_extender_waits_for_it() -> None:
    jobs = [a_job("victim", BATCH), a_job("preemptor", URGENT, arrives_at=20.0, seconds=5.0)]
    times = DecisionTimes(call_seconds=20.0)
    trace_of_two = Trace(1, 1, 200.0, jobs)
    stock, asking = (
        records_of(Simulation(trace_of_two, contender, times).run(), "preemptor")[0]
        for contender in (contenders.STOCK, contenders.LEAST_LOSS_ONLY)
    )
    assert stock.started_at is not None
    assert stock.started_at < 25.0
    assert asking.started_at is not None
    assert asking.started_at > 40.0


def test_a_preemptor_whose_delete_was_refused_sleeps_until_its_victim_goes() -> None:
    jobs = [
        a_job("victim", BATCH, checkpoints=HINTED),
        a_job("other", CRITICAL, seconds=20.5),
        a_job("preemptor", URGENT, arrives_at=20.0, seconds=5.0),
    ]
    refused = simulated(*jobs, contender=contenders.EXTENDER, nodes=2)
    held = simulated(*jobs, contender=REDESIGN, nodes=2)

    # Room on the other node is free half a second later.
    assert records_of(refused, "preemptor")[0].started_at == pytest.approx(22.4, abs=0.5)
    assert records_of(held, "preemptor")[0].started_at == pytest.approx(20.7, abs=0.3)
    assert refused.counts.refusals == 1
    assert held.counts.refusals == 0


def test_a_notice_is_taken_back_when_the_preemptor_is_placed_elsewhere() -> None:
    result = simulated(
        a_job("victim", BATCH, checkpoints=HINTED),
        a_job("other", CRITICAL, seconds=20.5),
        a_job("preemptor", URGENT, arrives_at=20.0, seconds=5.0),
        nodes=2,
    )
    (victim,) = records_of(result, "victim")

    assert result.counts.reprieves == 1
    assert victim.end == End.FINISHED.value
    assert victim.hinted_at is not None


def test_a_preemptor_waits_for_room_to_which_no_other_pod_is_nominated() -> None:
    selects = Simulation(Trace(1, 1, 10.0, []), REDESIGN)
    (node,) = selects.nodes
    victim, waiting = a_pod(a_job("victim", BATCH)), a_pod(a_job("waiting", URGENT))
    node.bind(victim, 0.0)
    model.give_notice(victim, waiting, 0.0, is_asked=True)
    scheduler = selects._scheduler

    assert scheduler._released_node(waiting) is node
    model.nominate(a_pod(a_job("nominee", TRAINING)), node, 0.0)
    assert scheduler._released_node(waiting) is None


def test_pods_that_back_off_are_tried_as_that_ends_and_within_a_second_by_priority() -> None:
    selects = Simulation(Trace(1, 1, 10.0, []), contenders.STOCK)
    scheduler, clock = selects._scheduler, selects.clock
    low, high, new = (a_pod(a_job(tier.name, tier)) for tier in (BATCH, CRITICAL, TRAINING))
    for _ in range(4):
        scheduler._back_off(high)
    scheduler._back_off(low)
    pending = [high, low, new]

    assert sorted(pending, key=scheduler._turn) == [new, low, high]
    scheduler._back_off(new)
    clock.now = 0.5
    assert sorted(pending, key=scheduler._turn) == [new, low, high]
    clock.now = 9.5
    assert sorted(pending, key=scheduler._turn) == [high, new, low]


@pytest.mark.parametrize(
    ("contender", "checkpoints", "ran_for", "waited_for", "is_terminating", "want"),
    [
        (contenders.PATIENT, None, 60.0, 0.0, True, True),
        (contenders.PATIENT, None, 60.0, 2.0, True, False),
        (contenders.PATIENT, None, 60.0, 0.0, False, False),
        (contenders.PATIENT, None, 1.5, 0.0, True, False),
        (contenders.PATIENT, HINTED, 60.0, 0.0, True, False),
        (contenders.BY_DEVICE, None, 60.0, 0.0, True, False),
    ],
)
def test_a_preemptor_is_patient_while_a_pod_terminates_and_its_victims_would_lose_much(
    contender: Contender,
    checkpoints: Checkpoints | None,
    ran_for: float,
    waited_for: float,
    *,
    is_terminating: bool,
    want: bool,
) -> None:
    selects = Simulation(Trace(1, 1, 200.0, []), contender)
    (node,) = selects.nodes
    selects.clock.now = 100.0
    victim = a_pod(a_job("victim", BATCH, checkpoints=checkpoints), started_at=100.0 - ran_for)
    ending, waiting = a_pod(a_job("ending", BATCH)), a_pod(a_job("waiting", URGENT))
    waiting.run.created_at = 100.0 - waited_for
    node.bind(ending, 0.0)
    ending.is_terminating = is_terminating

    assert selects._scheduler._is_patient(waiting, [victim]) is want


def test_a_preemptor_is_nominated_to_room_that_other_victims_are_leaving() -> None:
    selects = Simulation(Trace(1, 1, 10.0, []), REDESIGN)
    (node,) = selects.nodes
    victim, placed, waiting = (
        a_pod(a_job(name, tier)) for name, tier in (("v", BATCH), ("p", URGENT), ("w", URGENT))
    )
    node.bind(victim, 0.0)
    model.give_notice(victim, placed, 0.0, is_asked=True)
    placed.victims = [victim]

    assert selects._scheduler._preempt(waiting).value == "room is coming"
    assert waiting.nominated_to is node
    # Its first preemptor is placed elsewhere: the notice stands, as another pod waits for the room.
    selects._victims.placed(placed)
    assert victim.is_leaving


# --- notice


def test_a_victim_that_saves_loses_the_save_and_its_overhead_at_most() -> None:
    result = simulated(
        a_job("victim", BATCH, checkpoints=HINTED),
        a_job("preemptor", URGENT, arrives_at=30.0, seconds=5.0),
    )
    victim = records_of(result, "victim")[0]

    assert victim.kept == pytest.approx(30.2, abs=0.3)
    assert HINTED.save_seconds < victim.wasted <= HINTED.save_seconds + OVERHEAD_SECONDS


def test_no_victim_that_saved_lost_more_than_its_save_and_the_wait_for_its_end() -> None:
    drawn = trace.generate(7, 300, 30)
    saves = {job.name: job.checkpoints.save_seconds for job in drawn.jobs if job.checkpoints}
    saved = [
        record
        for record in Simulation(drawn, contenders.BOUND).run().records
        if is_victim(record) and record.hinted_at is not None
    ]

    assert saved
    for record in saved:
        assert record.wasted <= 2 * saves[record.job] + OVERHEAD_SECONDS


def test_a_victim_that_has_hardly_begun_goes_at_once() -> None:
    result = simulated(
        a_job("victim", BATCH, checkpoints=HINTED),
        a_job("preemptor", URGENT, arrives_at=1.0, seconds=5.0),
    )
    victim = records_of(result, "victim")[0]

    assert (victim.hinted_at, result.counts.notices) == (None, 0)
    assert victim.wasted < HINTED.save_seconds


@pytest.mark.parametrize(
    ("contender", "kept"), [(REDESIGN, 30.0), (contenders.BY_KEY["hints-only"], 0.0)]
)
def test_a_victim_that_saves_on_sigterm_needs_a_grace_period_that_is_long_enough(
    contender: Contender, kept: float
) -> None:
    result = simulated(
        a_job("victim", BATCH, checkpoints=ON_SIGTERM),
        a_job("preemptor", URGENT, arrives_at=30.0, seconds=5.0),
        contender=contender,
    )

    assert records_of(result, "victim")[0].kept == pytest.approx(kept, abs=0.3)


def test_victims_go_together_when_the_slowest_has_saved() -> None:
    jobs = [
        a_job("saves", BATCH, cpus=4, checkpoints=HINTED),
        a_job("saves-not", BATCH, cpus=4),
        a_job("preemptor", URGENT, arrives_at=20.0, seconds=5.0),
    ]
    apart = simulated(*jobs, contender=replace(REDESIGN, goes_together=False))
    together = simulated(*jobs)

    def ends(result: Result) -> list[float]:
        return [records_of(result, name)[0].terminated_at or 0.0 for name in ("saves", "saves-not")]

    assert ends(apart)[0] - ends(apart)[1] > HINTED.save_seconds
    assert ends(together)[0] == ends(together)[1] == ends(apart)[0]


# --- the choice


@pytest.mark.parametrize("seed", range(20))
def test_the_cheapest_set_is_found(seed: int) -> None:
    random = Random(seed)
    pods = [a_pod(a_job(f"job-{i}", BATCH, cpus=random.choice([1, 2, 4]))) for i in range(7)]
    costs = {pod: float(random.randrange(10)) for pod in pods}
    need, most = random.randrange(1, 9), random.choice([2, 3, None])

    sets = [
        each
        for size in range(1, (most or len(pods)) + 1)
        for each in itertools.combinations(pods, size)
        if sum(pod.cpus for pod in each) >= need
    ]
    best = min(
        ((sum(costs[pod] for pod in each), len(each)) for each in sets),
        default=None,
    )
    found = choices.cheapest(pods, need, costs.__getitem__, most)

    assert (found and (sum(costs[pod] for pod in found), len(found))) == best


def test_stock_takes_the_least_important_and_least_loss_takes_the_youngest() -> None:
    jobs = [
        a_job("old-batch", BATCH, seconds=100.0),
        a_job("young-training", TRAINING, arrives_at=29.0, seconds=100.0),
        a_job("preemptor", CRITICAL, arrives_at=30.0, seconds=5.0),
    ]

    def victim(contender: Contender) -> str:
        result = simulated(*jobs, contender=contender, nodes=2)
        return next(record.job for record in result.records if is_victim(record))

    assert victim(contenders.STOCK) == "old-batch"
    assert victim(contenders.BY_KEY["priority-first"]) == "old-batch"
    assert victim(REDESIGN) == "young-training"


def test_what_is_only_declared_counts_from_the_start() -> None:
    saves = replace(HINTED, interval_seconds=10.0, save_seconds=2.5)
    pod = a_pod(a_job("periodic", BATCH, checkpoints=replace(saves, takes_hints=False)))
    reported = losses.Losses(REDESIGN)
    declared = losses.Losses(contenders.BY_KEY["declared-only"])

    assert reported.expected(pod, 25.0) == pytest.approx(5.0 + model.GONE_SECONDS)
    assert declared.expected(pod, 25.0) == pytest.approx(25.0)
    hinted = a_pod(a_job("hinted", BATCH, checkpoints=saves))
    assert declared.save_seconds(hinted) == 3
    assert reported.save_seconds(hinted) == 2.5


def test_classes_and_tolerations_protect() -> None:
    def allows(preemptor: Job, victim: Job, now: float) -> bool:
        pod = a_pod(victim)
        return rules.may_preempt(Rules.CLASSES, a_pod(preemptor), pod, now)

    urgent, critical = a_job("urgent", URGENT), a_job("critical", CRITICAL)
    guaranteed = a_job("guaranteed", GUARANTEED)
    assert not allows(urgent, guaranteed, 19.0)
    assert allows(urgent, guaranteed, 21.0)
    assert allows(critical, guaranteed, 19.0)
    assert not allows(urgent, urgent, 0.0)
    assert not allows(a_job("training", TRAINING, preemption_class=1), a_job("b", BATCH), 0.0)
    assert not allows(critical, a_job("training", TRAINING, preemption_class=7), 0.0)
    assert allows(
        critical, a_job("training", TRAINING, preemption_class=7, checkpoints=HINTED), 0.0
    )


def test_a_pod_that_never_starts_is_counted_as_one_that_waits_for_ever() -> None:
    result = simulated(
        a_job("first", CRITICAL, seconds=1000.0),
        a_job("never", URGENT, arrives_at=1.0),
    )
    found = figures.figures_of(result)

    assert found.start_p50 < 1.0
    assert math.isinf(found.start_p99)
    assert "never" in figures.table([found], {REDESIGN.key: REDESIGN.title})
