"""A preemption's cost follows from the pods' times, in the same way for every contender."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.preemption import contenders, counters, figures, objects, plots, trace
from bench.preemption.figures import PreemptionTurn
from bench.preemption.records import PodRecords, Record, ReplayResult
from bench.preemption.run import Action, End, PodRun
from bench.preemption.trace import Checkpoints, Job, Tier, Trace
from bench.victims.audit import PodChange
from realcluster.binaries import pins
from realcluster.simulated_nodes import kwok
from reprieve_policy import keys
from reprieve_policy.checkpointing import checkpoint_plan
from reprieve_policy.config import settings, toleration
from reprieve_policy.kube.values import timestamp
from reprieve_policy.verdict import Violation
from reprieve_webhooks.extender import metrics

BATCH, URGENT = trace.TIERS[0], trace.TIERS[3]
HINTED = Checkpoints(interval_seconds=10.0, save_seconds=2.0, takes_hints=True, on_sigterm=False)


def a_job(
    name: str = "job-0",
    *,
    tier: Tier = BATCH,
    checkpoints: Checkpoints | None = HINTED,
    **fields: Any,
) -> Job:
    told: dict[str, Any] = {
        "preemption_class": 1,
        "arrives_at": 0.0,
        "pods": 1,
        "cpus": 2,
        "seconds": 60.0,
    }
    return Job(name=name, tier=tier, checkpoints=checkpoints, **{**told, **fields})


def a_run(checkpoints: Checkpoints | None = HINTED, *, started_at: float = 100.0) -> PodRun:
    run = PodRun(
        a_job(checkpoints=checkpoints), 0, "job-0-0-abcde", "uid-1", created_at=99.0, left=60.0
    )
    run.start(started_at)
    return run


def a_pod(job: str = "job-0", uid: str = "uid-1", **fields: Any) -> dict[str, Any]:
    labels = {objects.JOB_NAME: job, objects.JOB_INDEX: "0"}
    metadata = {
        "name": f"{job}-0-abcde",
        "uid": uid,
        "labels": labels,
        **fields.pop("metadata", {}),
    }
    return {"metadata": metadata, "status": {"phase": "Running", "podIP": "127.20.0.1", **fields}}


RECORD = Record(
    job="job-0",
    index=0,
    tier="batch",
    kind="hinted",
    cpus=2,
    is_urgent=False,
    created_at=0.0,
    nominated_at=None,
    started_at=1.0,
    hinted_at=None,
    terminated_at=None,
    ended_at=61.0,
    end="finished",
    occupied=60.0,
    kept=60.0,
    wasted=0.0,
    restarting=0.0,
)
TURN = PreemptionTurn(
    contender="stock scheduler",
    seed=1,
    records=[],
    wanted={"batch": 1},
    seconds=90.0,
    horizon_seconds=100.0,
    late_seconds=0.001,
    deletions=0,
    refusals=0,
    counted={},
)


def a_record(**fields: Any) -> Record:
    return replace(RECORD, **fields)


def a_victim(wasted: float = 8.0, **fields: Any) -> Record:
    return a_record(
        terminated_at=30.0, ended_at=31.0, end="preempted", occupied=30.0, wasted=wasted, **fields
    )


def a_turn(*records: Record, **fields: Any) -> PreemptionTurn:
    return replace(TURN, records=records, **fields)


def test_the_same_seed_is_the_same_trace_and_another_seed_is_another() -> None:
    assert trace.generate(7, 100, 10) == trace.generate(7, 100, 10)
    assert trace.generate(7, 100, 10) != trace.generate(8, 100, 10)


@pytest.mark.parametrize(("jobs", "nodes"), [(2000, 200), (60, 6), (300, 40)])
def test_the_nodes_are_loaded_whatever_was_drawn(jobs: int, nodes: int) -> None:
    drawn = trace.generate(3, jobs, nodes)
    requested = sum(job.pods * job.cpus * job.seconds for job in drawn.jobs)
    capacity = nodes * trace.NODE_CPUS * drawn.window_seconds

    # No job takes less than a second, which makes a small trace a little more than that.
    assert trace.LOAD * 0.999 <= requested / capacity < trace.LOAD * 1.1
    assert int(kwok.CAPACITY["cpu"]) == trace.NODE_CPUS


def test_a_trace_follows_its_distributions() -> None:
    drawn = trace.generate(1, 2000, 200)
    tiers = Counter(job.tier.name for job in drawn.jobs)
    kinds = Counter(job.kind for job in drawn.jobs)

    assert sum(tier.share for tier in trace.TIERS) == pytest.approx(1.0)
    for tier in trace.TIERS:
        assert tiers[tier.name] / 2000 == pytest.approx(tier.share, abs=0.03)
    assert [kinds[kind] / 2000 for kind in trace.KINDS] == pytest.approx([0.2, 0.3, 0.5], abs=0.03)
    assert [job.arrives_at for job in drawn.jobs] == sorted(job.arrives_at for job in drawn.jobs)
    assert drawn.window_seconds == pytest.approx(240)


def test_nothing_urgent_arrives_before_the_nodes_are_full() -> None:
    drawn = trace.generate(1, 500, 50)

    assert (
        min(job.arrives_at for job in drawn.jobs if job.tier.is_urgent)
        >= 0.2 * drawn.window_seconds
    )
    assert max(job.arrives_at for job in drawn.jobs) <= drawn.window_seconds


def test_a_runs_answers_are_readable_by_the_policy() -> None:
    template = objects.job(a_job(preemption_class=3), port=4711)["spec"]["template"]
    plan = checkpoint_plan.read_leniently(
        template["metadata"]["annotations"], settings.PolicySettings()
    )

    assert plan.hint == checkpoint_plan.HttpHint(port=4711, path="/checkpoint")
    assert template["metadata"]["labels"][keys.PREEMPTION_CLASS] == "3"
    assert template["spec"]["containers"][0]["ports"] == [{"containerPort": 4711}]
    assert template["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}


def test_the_budgets_select_the_pods_that_are_protected_for_a_time() -> None:
    selectors = [budget["spec"]["selector"]["matchLabels"] for budget in objects.budgets()]
    for tier in trace.TIERS:
        labels = objects.job(replace(a_job(), tier=tier), port=1)["spec"]["template"]["metadata"][
            "labels"
        ]
        is_selected = any(selector.items() <= labels.items() for selector in selectors)
        assert is_selected == (tier.toleration_seconds > 0)


@pytest.mark.parametrize("checkpoints", [None, replace(HINTED, takes_hints=False)])
def test_a_job_without_hints_declares_this(checkpoints: Checkpoints | None) -> None:
    template = objects.job(a_job(checkpoints=checkpoints), port=4711)["spec"]["template"]

    assert not checkpoint_plan.read_leniently(
        template["metadata"]["annotations"], settings.PolicySettings()
    ).gives_notice


def test_a_job_that_saves_on_sigterm_declares_this_and_how_long_a_save_takes() -> None:
    saves = Checkpoints(10.0, 3.2, takes_hints=False, on_sigterm=True)
    template = objects.job(a_job(checkpoints=saves), port=4711)["spec"]["template"]
    annotations = template["metadata"]["annotations"]
    plan = checkpoint_plan.read_leniently(annotations, settings.PolicySettings())

    assert (plan.saves_on_sigterm, plan.save_seconds) == (True, 4)


@pytest.mark.parametrize(
    ("checkpoints", "seconds"),
    [(None, 2), (HINTED, 2), (Checkpoints(10.0, 3.2, takes_hints=False, on_sigterm=True), 5)],
    ids=["saves never", "saves when hinted", "saves on SIGTERM"],
)
def test_kwok_ends_a_pod_only_after_its_longest_grace_period(
    checkpoints: Checkpoints | None, seconds: int
) -> None:
    template = objects.job(a_job(checkpoints=checkpoints), port=4711)["spec"]["template"]
    stage = yaml.safe_load((kwok.STAGES / "pod-terminate.yaml").read_text())
    annotation = "pod-delete.stage.kwok.x-k8s.io/delay"

    assert template["metadata"]["annotations"][annotation] == f"{seconds}s"
    assert annotation in stage["spec"]["delay"]["durationFrom"]["expressionFrom"]


def test_a_tier_tolerates_as_its_priority_class_does() -> None:
    documents = {each["metadata"]["name"]: each for each in objects.before_the_jobs()}
    guaranteed = documents["bench-guaranteed"]
    found = toleration.parse(guaranteed["metadata"]["annotations"], guaranteed["value"])

    assert not isinstance(found, Violation)
    assert found is not None
    assert (found.minimum_preemptable_priority, found.seconds) == (10_000, 20)
    assert documents["bench-batch"]["metadata"]["annotations"] == {}


def test_the_lowest_tiers_look_for_no_victims() -> None:
    policies = {
        each["metadata"]["name"]: each["preemptionPolicy"]
        for each in objects.before_the_jobs()
        if each["kind"] == "PriorityClass"
    }
    never = {name for name, policy in policies.items() if policy == "Never"}
    assert never == {"bench-batch", "bench-guaranteed"}


def test_the_policy_can_be_read_and_is_the_default_with_a_minute_as_a_second() -> None:
    found, default = settings.parse(objects.POLICY), settings.PolicySettings()

    assert isinstance(found, settings.PolicySettings)
    for name in (
        "checkpoint_timeout_seconds",
        "max_deferral_seconds",
        "ceiling_seconds",
        "near_completion_seconds",
    ):
        assert getattr(found, name) * trace.SIMULATED_SECONDS == getattr(default, name)


def test_an_undisturbed_pod_works_to_its_end() -> None:
    run = a_run()

    assert run.next() == (160.0, Action.EXIT)
    assert run.exit() == 0
    assert run.next() is None
    run.close(160.1, succeeded=True)
    assert (run.end, run.kept(200.0), run.wasted(200.0)) == (End.FINISHED, 60.0, pytest.approx(0.1))


def test_a_pod_that_saves_nothing_loses_all() -> None:
    run = a_run(None)
    run.terminate(125.0)

    assert run.next() == (125.0, Action.EXIT)
    assert run.exit() == 143
    run.close(125.0, succeeded=False)
    assert (run.end, run.kept(200.0), run.wasted(200.0)) == (End.PREEMPTED, 0.0, 25.0)


def test_a_pod_that_saves_on_time_loses_what_came_after() -> None:
    run = a_run(replace(HINTED, takes_hints=False))
    run.terminate(125.0)
    run.close(125.0, succeeded=False)

    assert (run.kept(200.0), run.wasted(200.0)) == (20.0, 5.0)


def test_a_pod_that_was_hinted_loses_the_time_of_its_save_only() -> None:
    run = a_run()
    run.hint("request-1", 125.0)
    assert (run.next(), run.says()) == ((127.0, Action.SAVED), "saving")
    run.save(127.0)
    assert (run.next(), run.says()) == ((162.0, Action.EXIT), "saved")
    run.terminate(128.0)
    assert run.next() == (128.0, Action.EXIT)
    run.close(128.0, succeeded=False)

    assert (run.hinted_at, run.kept(200.0), run.wasted(200.0)) == (125.0, 25.0, 3.0)


def test_the_same_request_is_saved_once() -> None:
    run = a_run()
    run.hint("request-1", 125.0)
    run.save(127.0)
    run.hint("request-1", 130.0)
    assert run.says() == "saved"
    run.hint("request-2", 135.0)
    assert (run.says(), run.next()) == ("saving", (137.0, Action.SAVED))


@pytest.mark.parametrize(
    ("save_seconds", "due", "kept"),
    [(0.8, (125.8, Action.SAVED), 25.0), (1.2, (126.0, Action.EXIT), 20.0)],
    ids=["in time", "cut off"],
)
def test_a_save_on_sigterm_counts_if_the_grace_is_long_enough(
    save_seconds: float, due: Any, kept: float
) -> None:
    run = a_run(Checkpoints(10.0, save_seconds, takes_hints=False, on_sigterm=True))
    run.terminate(125.0)
    assert run.next() == due
    if due[1] is Action.SAVED:
        run.save(125.8)
    assert run.exit() == (143 if due[1] is Action.SAVED else 137)
    run.close(126.0, succeeded=False)

    assert run.kept(200.0) == kept


def test_a_pod_that_publishes_its_saves_does_so_at_its_interval_until_it_ends() -> None:
    run = PodRun(a_job(), 0, "n", "uid-1", created_at=99.0, left=25.0, publishes=True)
    run.start(100.0)
    assert run.next() == (110.0, Action.CHECKPOINT)
    run.checkpoint()
    run.hint("request-1", 115.0)
    assert run.next() == (117.0, Action.SAVED)
    run.save(117.0)

    # The requested save took two seconds, in which no work was done.
    assert run.next() == (122.0, Action.CHECKPOINT)
    run.checkpoint()
    assert run.next() == (127.0, Action.EXIT)


@pytest.mark.parametrize(
    ("checkpoints", "publishes"), [(HINTED, False), (None, True)], ids=["not asked to", "no saves"]
)
def test_other_pods_publish_nothing(checkpoints: Checkpoints | None, *, publishes: bool) -> None:
    run = PodRun(
        a_job(checkpoints=checkpoints), 0, "n", "u", created_at=0.0, left=60.0, publishes=publishes
    )
    run.start(100.0)

    assert run.next() == (160.0, Action.EXIT)


def test_what_a_workload_publishes_is_read_by_the_policy() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    patch = objects.saved("uid-1", at)

    assert patch["metadata"]["uid"] == "uid-1"
    assert timestamp.parse(patch["metadata"]["annotations"][keys.LAST_CHECKPOINT_AT]) == at


def test_a_longer_grace_period_is_enough_for_a_longer_save() -> None:
    run = a_run(Checkpoints(10.0, 1.2, takes_hints=False, on_sigterm=True))
    run.grace_seconds = 2.0
    run.terminate(125.0)

    assert run.next() == (126.2, Action.SAVED)


def test_a_replacement_restores_its_work_before_it_works() -> None:
    run = PodRun(a_job(), 0, "n", "uid-1", created_at=99.0, left=60.0, restart_seconds=5.0)
    run.start(100.0)

    assert run.next() == (165.0, Action.EXIT)
    assert [run.work_by(at) for at in (102.0, 105.0, 107.0)] == [0.0, 0.0, 2.0]
    run.hint("request-1", 101.0)
    run.save(103.0)
    assert run.next() == (165.0, Action.EXIT)
    run.terminate(125.0)
    run.close(125.0, succeeded=False)
    assert (run.kept(200.0), run.wasted(200.0)) == (20.0, 5.0)


def test_a_save_that_a_hint_began_continues_under_sigterm() -> None:
    run = a_run()
    run.hint("request-1", 125.0)
    run.terminate(126.5)

    assert run.next() == (127.0, Action.SAVED)


def test_a_pod_that_never_ran_loses_nothing_and_ends_at_once() -> None:
    run = PodRun(a_job(), 0, "job-0-0-abcde", "uid-1", created_at=99.0, left=60.0)
    run.hint("request-1", 100.0)
    assert run.next() is None
    run.terminate(101.0)
    assert (run.next(), run.says()) == ((101.0, Action.EXIT), "idle")
    run.close(102.0, succeeded=False)

    assert (run.end, run.wasted(103.0)) == (End.PREEMPTED, 0.0)


def test_a_replacement_does_what_is_left() -> None:
    pod_records = PodRecords(Trace(1, 1, 60.0, [a_job()]))
    pod_records.see("ADDED", a_pod(), 0.0)
    pod_records.see("MODIFIED", a_pod(metadata={"deletionTimestamp": "soon"}), 25.0)
    pod_records.see("DELETED", a_pod(phase="Failed", metadata={"deletionTimestamp": "soon"}), 25.0)
    run = pod_records.see("ADDED", a_pod(uid="uid-2"), 30.0)

    assert run is not None
    assert run.next() == (70.0, Action.EXIT)
    assert not pod_records.is_all_done
    pod_records.see("MODIFIED", a_pod(uid="uid-2", phase="Succeeded"), 70.0)
    assert pod_records.is_all_done
    assert pod_records.counts() == "1 of 1 finished, 0 run, 1 victims"


@pytest.mark.parametrize(
    ("metadata", "grace_seconds"),
    [({"deletionGracePeriodSeconds": 4}, 4), ({}, trace.GRACE_SECONDS)],
    ids=["told", "not told"],
)
def test_the_grace_period_is_that_of_the_first_delete(
    metadata: dict[str, Any], grace_seconds: float
) -> None:
    pod_records = PodRecords(Trace(1, 1, 60.0, [a_job()]))
    deleted = {"deletionTimestamp": "soon"}
    run = pod_records.see("ADDED", a_pod(metadata={**deleted, **metadata}), 0.0)
    pod_records.see("MODIFIED", a_pod(metadata={**deleted, "deletionGracePeriodSeconds": 0}), 1.0)

    assert run is not None
    assert run.grace_seconds == grace_seconds


def test_only_a_replacement_of_a_pod_that_ran_restores_work() -> None:
    pod_records = PodRecords(Trace(1, 1, 60.0, [a_job()], restart_seconds=3.0))
    pod_records.see("ADDED", a_pod(phase="Pending"), 0.0)
    pod_records.see("DELETED", a_pod(phase="Failed"), 1.0)
    pod_records.see("ADDED", a_pod(uid="uid-2"), 2.0)
    pod_records.see("DELETED", a_pod(uid="uid-2", phase="Failed"), 7.0)
    pod_records.see("ADDED", a_pod(uid="uid-3"), 8.0)
    restarting = [record.restarting for record in pod_records.records(began_at=0.0, now=60.0)]

    assert restarting == [0.0, 0.0, 3.0]


def test_an_address_is_that_of_the_last_pod_that_got_it() -> None:
    pod_records = PodRecords(Trace(1, 1, 60.0, [a_job()]))
    pod_records.see("ADDED", a_pod(), 0.0)
    later = pod_records.see("ADDED", a_pod(uid="uid-2"), 1.0)

    assert pod_records.at("127.20.0.1") is later
    assert pod_records.at("127.20.0.2") is None


def test_foreign_pods_are_ignored() -> None:
    pod_records = PodRecords(Trace(1, 1, 60.0, [a_job()]))

    assert pod_records.see("ADDED", {"metadata": {"uid": "uid-9"}, "status": {}}, 0.0) is None
    assert pod_records.see("ADDED", a_pod(job="somebody-elses"), 0.0) is None


def test_records_count_from_the_begin_of_the_trace() -> None:
    pod_records = PodRecords(Trace(1, 1, 60.0, [a_job(tier=URGENT)]))
    pod_records.see("ADDED", a_pod(phase="Pending"), 10.0)
    pod_records.see("MODIFIED", a_pod(phase="Pending", nominatedNodeName="kwok-0"), 10.5)
    pod_records.see("MODIFIED", a_pod(), 12.0)
    (record,) = pod_records.records(began_at=8.0, now=20.0)

    assert (record.created_at, record.nominated_at, record.started_at) == (2.0, 2.5, 4.0)
    assert (record.end, record.occupied, record.is_urgent) == (None, 8.0, True)


def test_victims_are_those_that_were_deleted_before_their_work_was_done() -> None:
    assert figures.is_victim(a_victim())
    assert not figures.is_victim(a_record(terminated_at=60.0))
    assert not figures.is_victim(a_record())


def test_a_row_is_of_the_preemptors_and_of_the_victims() -> None:
    urgent = {"tier": "urgent", "is_urgent": True}
    records = [
        a_record(**urgent, nominated_at=0.1, started_at=4.0),
        a_record(**urgent, nominated_at=0.1, started_at=2.0, job="job-1"),
        a_record(**urgent, nominated_at=0.1, started_at=None, job="job-2"),
        a_record(**urgent, started_at=0.5, job="job-3"),
        *(
            a_victim(3.0, job="job-4"),
            a_victim(5.0, kind="none", job="job-5"),
            a_record(job="job-6"),
        ),
    ]
    (row,) = figures.summarise([a_turn(*records, wanted={"urgent": 4, "batch": 4})])

    assert (row.preemptors, row.placed, row.starts) == (3, 2, [2.0, 4.0])
    assert (row.urgent_starts, row.urgent_unplaced) == ([0.5, 2.0, 4.0], 1)
    assert (row.victims, row.victims_a_placement, row.wasted_seconds) == (2, 1.0, 8.0)
    assert row.wasted == {"none": 5.0, "periodic": 0, "hinted": 3.0}
    assert row.unplaced == {"urgent": 1, "batch": 1}
    assert (row.finished, row.wanted) == (5, 8)


def test_the_traces_of_a_contender_are_counted_together() -> None:
    turns = [
        a_turn(a_victim()),
        a_turn(a_record(), contender="Reprieve"),
        a_turn(a_victim(), seed=2),
    ]
    stock, ours = figures.summarise(turns)

    assert (stock.contender, stock.victims, stock.wanted) == ("stock scheduler", 2, 2)
    assert (ours.contender, ours.victims) == ("Reprieve", 0)
    assert math.isnan(ours.victims_a_placement)


def test_the_table_is_aligned() -> None:
    turns = [
        a_turn(a_victim(job="a"), a_record(job="b", nominated_at=0.5), wanted={"batch": 2}),
        a_turn(a_record(), contender="b"),
    ]

    assert figures.table(figures.summarise(turns)).splitlines() == [
        (
            "contender        preemptors  placed  start p50 s   p90   p99  victims  a placement  "
            "wasted pod-s  a victim  of all  finished"
        ),
        (
            "stock scheduler           1       1         1.00  1.00  1.00        1         "
            "1.00        "
            "     8      8.00    8.9%     50.0%"
        ),
        (
            "b                         0       0                                 0             "
            "        "
            "     0              0.0%    100.0%"
        ),
    ]


def test_figures_without_a_table_are_reported_in_sentences() -> None:
    urgent = [a_record(is_urgent=True, job="a"), a_record(is_urgent=True, job="b", started_at=None)]
    turn = a_turn(
        a_victim(),
        *urgent,
        wanted={"batch": 4},
        deletions=3,
        refusals=1,
        counted={"guard postponed": 1},
    )

    assert figures.sentences(figures.summarise([turn]), [turn]) == [
        "stock scheduler: wasted pod-seconds a victim by how it saves: 8.0 (hinted, 1)",
        (
            "stock scheduler: all urgent pods, preempting or not, start after 1.00 s (p50), 1.00 s "
            "(p99); 1 never"
        ),
        "stock scheduler: 2 of 4 pods were never placed: 2 batch",
        "stock scheduler: the scheduler requested 4 deletions; 1 were refused",
        "stock scheduler: answers of the guard: 1 postponed",
        "a second stands for 60: a wasted pod-second is 0.017 pod-hours of a cluster's life",
    ]


def test_reasons_to_mistrust_a_turn_are_reported() -> None:
    assert figures.doubts([a_turn(a_record())]) == []
    counts = {
        counters.FAILED_OPEN: 3,
        "extender late": 1,
        "extender behind": 1,
        "extender chosen": 9,
    }
    turn = a_turn(a_record(end="failed"), late_seconds=0.25, seconds=100.0, counted=counts)

    assert figures.doubts([turn]) == [
        "stock scheduler, seed 1: the replay was late by 0.25 s (p99): the machine was busy",
        "stock scheduler, seed 1: 1 pods ended without a deletion",
        "stock scheduler, seed 1: 3 reviews that failed open: no webhook was called",
        (
            "stock scheduler, seed 1: 2 calls that the extender did not answer: the "
            "scheduler's own "
            "choice stood"
        ),
        "stock scheduler, seed 1: stopped after 100 s, with work left",
    ]


def test_deletions_are_those_of_the_scheduler() -> None:
    def entry(user: str, verb: str, status: int) -> PodChange:
        return PodChange(user, verb, "", "pod", status, received_at=0.0, answered_at=0.1)

    log = [
        *(
            entry("system:kube-scheduler", "delete", 200),
            entry("system:kube-scheduler", "delete", 429),
        ),
        *(entry("system:kube-scheduler", "patch", 200), entry("operator", "delete", 200)),
    ]
    replayed = ReplayResult([], seconds=60.0, late_seconds=[0.0, 0.2])
    turn = figures.turn_of("stock scheduler", trace.generate(1, 20, 2), replayed, log, {})

    assert (turn.deletions, turn.refusals, turn.late_seconds) == (1, 1, 0.2)
    assert sum(turn.wanted.values()) == trace.generate(1, 20, 2).pods


def test_the_document_holds_each_pod_as_it_was_seen() -> None:
    written = json.loads(
        json.dumps(figures.document([a_turn(a_victim(1 / 3))], conditions={"cores": 2}))
    )

    assert written["turns"][0]["records"][0]["wasted"] == 0.333
    assert written["conditions"] == {"cores": 2}
    assert written["rows"][0]["victims"] == 1


def test_a_curve_ends_below_one_where_preemptors_were_not_placed() -> None:
    assert plots.steps([0.0, 2.0], of=4) == ([0.01, 2.0], [0.25, 0.5])


@pytest.mark.slow  # The import of matplotlib takes longer than all other tests of this file.
def test_plots_are_png_also_where_nothing_was_preempted(tmp_path: Path) -> None:
    rows = figures.summarise([a_turn(a_victim()), a_turn(a_record(), contender="b")])
    drawn = plots.draw(rows, tmp_path)

    assert [file.name for file in drawn] == ["starts.png", "wasted.png", "victims.png"]
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in drawn)


def test_a_contenders_scheduler_can_be_built() -> None:
    assert {contender.scheduler for contender in contenders.CONTENDERS} <= set(pins.BINARIES)


def test_the_shipped_stanza_changes_only_its_server() -> None:
    text = contenders.STANZA.read_text()
    shipped, made = (
        yaml.safe_load(text),
        contenders.with_extender(text, "https://127.0.0.1:9443", Path("/ca.crt")),
    )
    (extender,) = made["extenders"]

    assert extender["urlPrefix"] == "https://127.0.0.1:9443/scheduler"
    assert extender["tlsConfig"]["caFile"] == "/ca.crt"
    extender["urlPrefix"] = shipped["extenders"][0]["urlPrefix"]
    extender["tlsConfig"]["caFile"] = shipped["extenders"][0]["tlsConfig"]["caFile"]
    assert made == shipped


def test_counters_are_read_from_metrics() -> None:
    api_server = """\
# HELP apiserver_admission_webhook_fail_open_count [ALPHA] Admission webhook fail open count
apiserver_admission_webhook_fail_open_count{name="pods.reprieve.dev",type="admit"} 2
apiserver_admission_webhook_fail_open_count{name="pods.reprieve.dev",type="validating"} 1
process_start_time_seconds 1.7e+09
"""
    webhooks = """\
reprieve_admission_reviews_total{kind="Pod",outcome="postponed",webhook="guard"} 4.0
reprieve_admission_reviews_total{kind="Pod",outcome="allowed",webhook="mutate"} 9.0
reprieve_extender_calls_total{outcome="late"} 0.0
reprieve_extender_calls_total{outcome="chosen"} 7.0
"""

    assert counters.read(api_server, webhooks) == {
        counters.FAILED_OPEN: 3,
        "guard postponed": 4,
        "extender chosen": 7,
    }
    assert counters.read(api_server, "") == {counters.FAILED_OPEN: 3}


def test_an_extender_falls_back_as_its_own_metrics_say() -> None:
    assert set(counters.FALLBACKS) == {outcome.value for outcome in metrics.FALLBACKS}


def test_counters_of_several_turns_are_added() -> None:
    turns = [
        {"guard postponed": 1, "guard allowed": 2},
        {"guard postponed": 3, "extender chosen": 1},
    ]

    assert counters.shown(turns, counters.GUARD) == "4 postponed, 2 allowed"
    assert counters.shown([], counters.EXTENDER) == ""


def test_counts_from_before_the_trace_are_subtracted() -> None:
    assert counters.since(
        {counters.FAILED_OPEN: 1, "guard allowed": 2}, {counters.FAILED_OPEN: 1, "guard allowed": 5}
    ) == {"guard allowed": 3}
