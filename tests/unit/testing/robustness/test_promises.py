"""Each check of a robustness run can fail: a history that keeps all promises, and its breaches."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_policy.lifecycle import ledger
from reprieve_policy.lifecycle.eviction import Phase
from reprieve_policy.lifecycle.ledger import LedgerEntry
from reprieve_testing.chaos.invariants import History, Outage
from reprieve_testing.chaos.records import Write
from reprieve_testing.chaos.sample_history import (
    DELETED,
    HINT,
    HINTED,
    POD,
    SAVED,
    TERMINATING,
    VICTIM,
    write,
)
from reprieve_testing.objects.builders import after
from reprieve_testing.robustness import outages, promises, report
from reprieve_testing.robustness.outages import LeaseRenewal
from reprieve_testing.robustness.plan import Fault, generate
from reprieve_testing.robustness.promises import EventRecord, RoundHistory
from reprieve_testing.robustness.run import RobustnessOutcome


def by_drain(seconds: float, **changes: Any) -> Write:
    return write(seconds, "create", subresource="eviction", user="admin", uid="", **changes)


WRITES = [write(1, "patch", HINTED), write(20, "patch", TERMINATING), DELETED]
ENTRY = LedgerEntry(preempted_count=1, first_submitted_at=after(-100), eviction_ids=("u-1",))
HISTORY = History(victims=[VICTIM], writes=WRITES, hints=[HINT], answers=[SAVED])
GOOD = RoundHistory(
    history=HISTORY,
    owners={POD: {keys.LEDGER: ledger.render({"": ENTRY})}},
    events=[EventRecord("u", "CheckpointSaved"), EventRecord("u", "CheckpointRequested")],
)
STAYS = RoundHistory(
    history=replace(
        HISTORY,
        victims=[replace(VICTIM, must_be_deleted=False, ended_at=after(10))],
        writes=[
            write(1, "patch", HINTED),
            write(11, "patch", replace(HINTED, phase=Phase.CANCELLED)),
        ],
        answers=[],
    ),
    unmarked_at={POD: after(10)},
    left={POD: {"metadata": {"namespace": "team", "name": "victim"}}},
)
ALL_THE_TIME = [Outage(after(-10), after(100))]


def good(*, history: Any = None, **changes: Any) -> RoundHistory:
    return replace(GOOD, history=replace(HISTORY, **(history or {})), **changes)


@dataclass(frozen=True)
class Planted:
    history: RoundHistory
    want: list[str] = field(default_factory=list)


UNTOLD = {"hints": [], "writes": [write(40, "patch", TERMINATING), write(40.2, "delete")]}
"""It was deleted after it answered, so that only the missing hint is wrong."""

LATE = [write(1, "patch", HINTED), write(90, "patch", TERMINATING), write(90.1, "delete")]

CASES = {
    "a victim that saved and was deleted once": Planted(GOOD),
    "a victim that was cancelled and stays": Planted(STAYS),
    "deleted before an acknowledgement": Planted(
        good(history={"answers": [replace(SAVED, at=after(30))]}),
        ["no_delete_before_acknowledgement_or_deadline"],
    ),
    "deleted twice": Planted(
        good(history={"writes": [*WRITES, write(21, "delete")]}), ["one_delete_each"]
    ),
    "deleted beyond the ceiling": Planted(
        good(history={"writes": LATE}),
        ["every_victim_ends_in_time"],
    ),
    "beyond the ceiling because no operator led": Planted(
        good(
            history={
                "writes": LATE,
                "outages": [Outage(after(2), after(40))],
            }
        )
    ),
    "hinted twice": Planted(
        good(history={"hints": [HINT, HINT]}), ["no_hint_twice_for_one_attempt"]
    ),
    "never deleted": Planted(
        good(
            history={"writes": [WRITES[0]], "answers": []},
            owners={},
            events=[],
            left={POD: {"metadata": {}}},
        ),
        ["one_delete_each", "every_victim_ends_in_time"],
    ),
    "deleted untold while an operator led": Planted(
        good(history=UNTOLD), ["no_victim_is_untold_while_an_operator_leads"]
    ),
    "deleted untold before its time was over, while an operator led all the time": Planted(
        good(
            history={
                "hints": [],
                "answers": [],
                "writes": [
                    write(1, "patch", replace(HINTED, deadline=after(8))),
                    write(8, "patch", TERMINATING),
                    write(8.2, "delete"),
                ],
            },
            owners={},
            events=[],
        ),
        ["no_victim_is_untold_while_an_operator_leads"],
    ),
    "deleted untold within the time that a new operator has for it": Planted(
        good(history=UNTOLD | {"outages": [Outage(after(0), after(30))]})
    ),
    "deleted untold by a request that was not answered": Planted(
        good(
            history=UNTOLD
            | {
                "writes": [
                    write(40, "patch", TERMINATING),
                    write(40.2, "delete", status=0, uid=""),
                ]
            }
        ),
        ["no_victim_is_untold_while_an_operator_leads"],
    ),
    "a deadline beyond the ceiling": Planted(
        good(ceiling=timedelta(seconds=40)), ["no_deadline_is_beyond_the_ceiling"]
    ),
    "a deadline at the ceiling": Planted(good(ceiling=timedelta(seconds=60))),
    "deleted untold because no operator led": Planted(
        good(history=UNTOLD | {"outages": ALL_THE_TIME})
    ),
    "evicted by a drain before it saved": Planted(
        good(removals_by_others=[by_drain(10)]),
        ["no_removal_by_others_before_an_acknowledgement"],
    ),
    "evicted by a drain while the guard was away": Planted(
        good(removals_by_others=[by_drain(10)], guard_outages=[Outage(after(9), after(11))])
    ),
    "evicted by a drain whose review the guard did not survive": Planted(
        good(
            removals_by_others=[by_drain(8.9, done=after(9.1))],
            guard_outages=[Outage(after(9), after(11))],
        )
    ),
    "evicted by a drain just before the guard went": Planted(
        good(
            removals_by_others=[by_drain(8.9, done=after(8.95))],
            guard_outages=[Outage(after(9), after(11))],
        ),
        ["no_removal_by_others_before_an_acknowledgement"],
    ),
    "evicted by a drain while the operator was lost": Planted(
        good(
            history={"outages": [Outage(after(-60), after(60))]}, removals_by_others=[by_drain(10)]
        )
    ),
    "evicted by a drain while an operator was replaced": Planted(
        good(history={"outages": [Outage(after(2), after(40))]}, removals_by_others=[by_drain(10)]),
        ["no_removal_by_others_before_an_acknowledgement"],
    ),
    "evicted by a drain after it saved": Planted(good(removals_by_others=[by_drain(19.5)])),
    "a drain that was refused": Planted(good(removals_by_others=[by_drain(10, status=429)])),
    "a drain after the operator deleted it": Planted(
        good(
            history={
                "answers": [replace(SAVED, state="saving")],
                "writes": [WRITES[0], write(60, "patch", TERMINATING), write(60.5, "delete")],
            },
            owners={},
            events=[],
            removals_by_others=[by_drain(61)],
        )
    ),
    "gone without a request": Planted(
        good(
            history={
                "victims": [replace(VICTIM, must_be_deleted=False, ended_at=after(5))],
                "writes": [WRITES[0]],
            },
        ),
        ["no_victim_is_lost"],
    ),
    "its end decided after its mark was removed": Planted(
        good(unmarked_at={POD: after(19)}), ["nothing_ends_after_its_mark_is_removed"]
    ),
    "its end decided before its mark was removed": Planted(good(unmarked_at={POD: after(20.1)})),
    "missing in the ledger of its owner": Planted(
        good(owners={POD: {}}), ["every_ledger_has_its_victims"]
    ),
    "counted twice in the ledger of its owner": Planted(
        good(owners={POD: {keys.LEDGER: ledger.render({"": replace(ENTRY, preempted_count=2)})}}),
        ["every_ledger_has_its_victims"],
    ),
    "an Event that says saved, and no workload that did": Planted(
        good(events=[EventRecord("another", "CheckpointSaved")]), ["events_tell_what_happened"]
    ),
    "our finalizer left": Planted(
        good(
            left={
                POD: {
                    "metadata": {
                        "namespace": "team",
                        "name": "victim",
                        "finalizers": [keys.CLEANUP_FINALIZER],
                    }
                }
            }
        ),
        ["no_finalizer_left"],
    ),
    "a write without a uid": Planted(
        good(history={"writes": [*WRITES[:2], replace(DELETED, uid="")]}),
        ["one_delete_each", "every_victim_ends_in_time", "every_write_names_its_pod"],
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_each_promise_is_seen_to_be_broken(case: Planted):
    found = promises.broken_promises(case.history)
    assert [sentence.partition(":")[0] for sentence in found] == case.want


def test_every_promise_of_this_module_is_broken_by_a_case():
    broken = {name for case in CASES.values() for name in case.want}
    assert {promise.__name__ for promise in promises.ALL} <= broken


def renewals(*moments: float, holder: str = "first") -> list[LeaseRenewal]:
    return [LeaseRenewal(after(at), holder) for at in moments]


def seconds(found: list[Outage]) -> list[tuple[float, float]]:
    return [
        ((one.since - after(0)).total_seconds(), (one.until - after(0)).total_seconds())
        for one in found
    ]


OUTAGES = {
    "a leader that renews": (renewals(*range(10)), [], 10, []),
    "a gap lasts until victims were taken up again": (renewals(0, 1, 9, 10), [], 11, [(1, 19)]),
    "another leader": (
        [*renewals(0, 1), *renewals(2, 3, holder="second")],
        [],
        4,
        [(1, 12)],
    ),
    "a leader that never came back": (renewals(0, 1), [], 30, [(1, 40)]),
    "a fault lasts until the next renewal": (
        renewals(*range(10)),
        [Outage(after(2.5), after(4.5))],
        10,
        [(2.5, 15)],
    ),
    "what overlaps is one": (
        renewals(0, 1, 9, 10),
        [Outage(after(0.5), after(8.5))],
        11,
        [(0.5, 19)],
    ),
}


@pytest.mark.parametrize("case", OUTAGES.values(), ids=OUTAGES)
def test_an_outage_is_what_the_lease_shows(case: Any):
    found, windows, until, want = case
    assert seconds(outages.without_leader(found, windows, after(until))) == want


def test_a_planned_fault_that_never_took_effect_fails_a_run():
    outcome = RobustnessOutcome(generate(1, 60))
    outcome.injected.update(dict.fromkeys(Fault, 1))
    assert report.failures(outcome) == []
    del outcome.injected[Fault.STEP_CLOCK]
    assert report.failures(outcome) == ["step-clock: planned, but it never took effect"]
    outcome.broken = ["one_delete_each: team/victim: deleted 2 times"]
    assert report.failures(outcome) == outcome.broken
    assert "FAILED" in report.render(outcome)
