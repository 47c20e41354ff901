"""What the page `/ui` remembers: the steps of victims, and what their ends kept and lost."""

from dataclasses import replace
from datetime import datetime, timedelta

from reprieve_operator import history
from reprieve_operator.clock import Clock
from reprieve_operator.cluster.event_recorder import REASONS
from reprieve_operator.history import History, NamespaceTotals
from reprieve_policy import keys
from reprieve_policy.kube.objects import VersionedMeta
from reprieve_policy.kube.values.timestamp import render
from reprieve_policy.lifecycle.eviction import CheckpointOutcome, Device, Eviction, RecordedCost
from reprieve_testing.objects.builders import NOW, after, an_eviction

STARTED_AT = after(-10 * 3600)
COST = RecordedCost(hours=2.5, device=Device.GPU)


class SetClock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> datetime:
        return self.at

    def history(self) -> History:
        return History(Clock(now=self.now))


def a_pod(uid: str = "u", **annotations: str) -> VersionedMeta:
    named = {key.replace("_", "-"): value for key, value in annotations.items()}
    prefixed = {f"reprieve.dev/{key}": value for key, value in named.items()}
    return VersionedMeta(name="p", namespace="team", uid=uid, annotations=prefixed)


def ended(outcome: CheckpointOutcome) -> Eviction:
    return replace(an_eviction().ended(outcome).build(), cost=COST)


def test_the_steps_of_a_victim_come_in_their_order() -> None:
    clock = SetClock()
    kept = clock.history()
    kept.add_step("team", "p", "u", "CheckpointRequested", "asked")
    clock.at += timedelta(seconds=3)
    kept.add_step("team", "p", "u", "CheckpointSaved", "saved")
    steps = [(step.at, step.reason, step.note) for step in kept.steps_of("u")]
    assert steps == [
        (NOW, "CheckpointRequested", "asked"),
        (NOW + timedelta(seconds=3), "CheckpointSaved", "saved"),
    ]
    assert kept.steps_of("another") == ()


def test_a_saved_victim_has_kept_the_work_since_its_start_or_its_last_save() -> None:
    assert keys.LAST_CHECKPOINT_AT == "reprieve.dev/last-checkpoint-at"
    kept = SetClock().history()
    kept.note_work(a_pod("never-saved"), render(STARTED_AT))
    kept.note_work(a_pod("saved", last_checkpoint_at=render(after(-3600))), render(STARTED_AT))
    # Its own eviction has brought this save: the work until then is what was kept.
    kept.note_work(a_pod("saved", last_checkpoint_at=render(NOW)), render(STARTED_AT))
    for uid in ("never-saved", "saved"):
        kept.add_end(a_pod(uid), ended(CheckpointOutcome.SAVED))
    (totals,) = kept.totals()
    assert (totals.victims, totals.saved, totals.unsaved, totals.cost_hours) == (2, 2, 0, 5.0)
    assert (round(totals.kept_hours, 3), totals.lost_hours) == (11.0, 0.0)


def test_a_victim_without_its_save_has_lost_that_work() -> None:
    kept = SetClock().history()
    kept.note_work(a_pod(), render(after(-7200)))
    kept.add_end(a_pod(), ended(CheckpointOutcome.TIMED_OUT))
    assert kept.totals() == [
        NamespaceTotals("team", victims=1, unsaved=1, lost_hours=2.0, cost_hours=2.5)
    ]


def test_a_victim_that_wanted_no_save_has_kept_and_lost_nothing() -> None:
    kept = SetClock().history()
    kept.note_work(a_pod(), render(after(-7200)))
    kept.add_end(a_pod(), ended(CheckpointOutcome.SKIPPED))
    assert kept.totals() == [NamespaceTotals("team", victims=1, cost_hours=2.5)]


def test_victims_count_for_a_day() -> None:
    clock = SetClock()
    kept = clock.history()
    kept.add_end(a_pod(), ended(CheckpointOutcome.SAVED))
    clock.at += history.WINDOW
    assert [totals.victims for totals in kept.totals()] == [1]
    clock.at += timedelta(seconds=1)
    assert kept.totals() == []


def test_events_about_pods_that_are_no_victims_are_left_out() -> None:
    kept = SetClock().history()
    kept.add_step("team", "p", "u", "CheckpointRequested", "asked")
    for reason in history._OF_OTHER_PODS:
        kept.add_step("team", "other", "other", reason, "it says nothing of a victim")
    assert [each.uid for each in kept.newest_first()] == ["u"]
    assert set(REASONS) >= history._OF_OTHER_PODS


def test_a_new_term_begins_anew() -> None:
    clock = SetClock()
    kept = clock.history()
    kept.add_step("team", "p", "u", "CheckpointRequested", "asked")
    kept.add_end(a_pod(), ended(CheckpointOutcome.SAVED))
    clock.at += timedelta(hours=1)
    kept.begin()
    assert (kept.since, kept.steps_of("u"), kept.totals()) == (clock.at, (), [])


def test_what_is_remembered_is_bounded() -> None:
    kept = SetClock().history()
    for number in range(history._MAX_VICTIMS + 1):
        kept.add_step("team", f"p-{number}", f"u-{number}", "CheckpointRequested", "x" * 2000)
    for _ in range(history._MAX_STEPS + 1):
        kept.add_step("team", "last", "last", "CheckpointRequested", "x")
    assert kept.steps_of("u-0") == kept.steps_of("u-1") == ()
    assert len(kept.steps_of("u-2")[0].note) == history.MAX_NOTE
    assert len(kept.steps_of("last")) == history._MAX_STEPS
    assert [each.uid for each in kept.newest_first()][:2] == ["last", f"u-{history._MAX_VICTIMS}"]
