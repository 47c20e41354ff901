"""What a replacement inherits."""

import json
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprieve_policy import keys
from reprieve_policy.kube.objects import OwnerReference, controller_of
from reprieve_policy.lifecycle import ledger
from reprieve_policy.lifecycle.eviction import Checkpoint, Eviction
from reprieve_policy.lifecycle.ledger import MAX_BYTES, SHARED_SLOT, Ledger, LedgerEntry
from reprieve_testing.objects.builders import NOW, PodBuilder, a_pod, after, an_eviction

SAVED = Checkpoint(saved_at=after(60), step=4200, path="/ckpt/4200")
CREATED_AT = datetime.fromisoformat("2026-11-21T09:00:00+00:00")


def evicted(number: int, checkpoint: Checkpoint | None = None) -> Eviction:
    return replace(an_eviction().build(), eviction_id=f"uid-{number}", checkpoint=checkpoint)


def record(known: Ledger, slot: str, eviction: Eviction, pod: PodBuilder | None = None) -> Ledger:
    return ledger.record(known, slot, eviction, (pod or a_pod()).build().metadata, after(100))


SLOTS = {
    "a pod of a StatefulSet has its name": (a_pod().named("db-0").owned_by("StatefulSet"), "db-0"),
    "a pod of an Indexed Job has its index": (
        a_pod().owned_by("Job").annotated(keys.COMPLETION_INDEX, "7"),
        "7",
    ),
    "the index may stand in the label": (
        a_pod().owned_by("Job").labelled(keys.COMPLETION_INDEX, "7"),
        "7",
    ),
    "a pod of an ordinary Job shares": (a_pod().owned_by("Job"), SHARED_SLOT),
    "an index that no controller wrote counts for nothing": (
        a_pod().owned_by("Job").annotated(keys.COMPLETION_INDEX, "x" * 200_000),
        SHARED_SLOT,
    ),
    "a pod of another project's Job shares, whatever its index": (
        a_pod()
        .owned_by("Job", api_version="batch.volcano.sh/v1alpha1")
        .annotated(keys.COMPLETION_INDEX, "7"),
        SHARED_SLOT,
    ),
    "a pod of another project's StatefulSet shares, whatever its name": (
        a_pod().named("db-0").owned_by("StatefulSet", api_version="apps.kruise.io/v1beta1"),
        SHARED_SLOT,
    ),
    "a pod of a ReplicaSet shares a slot, whatever its annotations": (
        a_pod().owned_by("ReplicaSet").annotated(keys.COMPLETION_INDEX, "7"),
        SHARED_SLOT,
    ),
}


@pytest.mark.parametrize(("pod", "slot"), SLOTS.values(), ids=SLOTS)
def test_slots(pod: PodBuilder, slot: str) -> None:
    metadata = pod.build().metadata
    owner = controller_of(metadata)
    assert owner is not None
    assert ledger.slot_of(metadata, owner, owner) == slot


WHOLE = OwnerReference(
    apiVersion="jobset.x-k8s.io/v1alpha2", kind="JobSet", name="set", uid="u", controller=True
)
SLOTS_OF_ROOT_OWNERS = {
    "a pod of an Indexed Job has the Job's name and its index": (
        a_pod().owned_by("Job", "set-workers-0").annotated(keys.COMPLETION_INDEX, "7"),
        "set-workers-0/7",
    ),
    "pods of an ordinary Job share its name": (
        a_pod().owned_by("Job", "set-workers-0"),
        "set-workers-0/",
    ),
    "a pod of a StatefulSet has its name, which is unique": (
        a_pod().named("lws-0-1").owned_by("StatefulSet", "lws-0"),
        "lws-0-1",
    ),
}


@pytest.mark.parametrize(("pod", "slot"), SLOTS_OF_ROOT_OWNERS.values(), ids=SLOTS_OF_ROOT_OWNERS)
def test_slots_in_the_ledger_of_a_root_owner(pod: PodBuilder, slot: str) -> None:
    metadata = pod.build().metadata
    owner = controller_of(metadata)
    assert owner is not None
    assert ledger.slot_of(metadata, owner, WHOLE) == slot


def test_a_nameless_pod_of_a_statefulset_shares() -> None:
    metadata = replace(a_pod().owned_by("StatefulSet").build().metadata, name=None)
    owner = controller_of(metadata)
    assert owner is not None
    assert ledger.slot_of(metadata, owner, owner) == SHARED_SLOT


def test_the_first_eviction_counts_one_since_the_pod_was_created() -> None:
    assert record({}, "0", evicted(1)) == {
        "0": LedgerEntry(preempted_count=1, first_submitted_at=CREATED_AT, eviction_ids=("uid-1",))
    }


def test_a_pod_that_was_a_replacement_keeps_its_first_submission() -> None:
    pod = a_pod().annotated(keys.FIRST_SUBMITTED_AT, "2026-11-20T08:00:00Z")
    entry = record({}, "0", evicted(1), pod)["0"]
    assert entry.first_submitted_at == datetime.fromisoformat("2026-11-20T08:00:00+00:00")


def test_a_pod_without_a_creation_time_counts_as_submitted_now() -> None:
    metadata = replace(a_pod().build().metadata, creationTimestamp=None)
    assert ledger.record({}, "0", evicted(1), metadata, NOW)["0"].first_submitted_at == NOW


def test_each_eviction_counts_and_the_first_submission_stays() -> None:
    known = record(
        record({}, "0", evicted(1)),
        "0",
        evicted(2),
        a_pod().annotated(keys.FIRST_SUBMITTED_AT, "0"),
    )
    assert known["0"].preempted_count == 2
    assert known["0"].first_submitted_at == CREATED_AT


def test_an_eviction_counts_once_however_often_it_is_recorded() -> None:
    once = record({}, "0", evicted(1))
    assert record(once, "0", evicted(1)) is once


RETRACTED = {
    "the only eviction": ([1], 1, None),
    "the last of several evictions": ([1, 2], 2, (1, ("uid-1",))),
    "an earlier one of several evictions": ([1, 2], 1, (1, ("uid-2",))),
    "an eviction that was never counted changes nothing": ([1], 2, (1, ("uid-1",))),
    "an empty ledger": ([], 1, None),
}


@pytest.mark.parametrize(("counted", "number", "want"), RETRACTED.values(), ids=RETRACTED)
def test_an_eviction_that_was_taken_back_does_not_count(
    counted: list[int], number: int, want: tuple[int, tuple[str, ...]] | None
) -> None:
    known = record({}, "7", evicted(9))
    for each in counted:
        known = record(known, SHARED_SLOT, evicted(each))
    left = ledger.retract(known, SHARED_SLOT, evicted(number))
    entry = left.get(SHARED_SLOT)
    assert (None if entry is None else (entry.preempted_count, entry.eviction_ids)) == want
    assert left["7"] == known["7"]
    assert ledger.retract(left, SHARED_SLOT, evicted(number)) is left


@pytest.mark.parametrize("slot", [SHARED_SLOT, "set-workers-0/"])
def test_evictions_of_pods_that_share_a_slot_count_once_each_in_any_order(slot: str) -> None:
    known: Ledger = {}
    for number in (1, 2, 3, 1, 2, 3, 2):
        known = record(known, slot, evicted(number))
    assert known[slot].preempted_count == 3


def test_a_failed_checkpoint_does_not_take_back_an_earlier_one() -> None:
    known = record(record({}, "0", evicted(1, SAVED)), "0", evicted(2))
    assert known["0"].checkpoint == SAVED


def test_a_newer_checkpoint_replaces_the_earlier_one() -> None:
    newer = replace(SAVED, step=5000)
    known = record(record({}, "0", evicted(1, SAVED)), "0", evicted(2, newer))
    assert known["0"].checkpoint == newer


def test_an_older_checkpoint_of_a_later_eviction_does_not_replace_a_newer_one() -> None:
    """Pods of one owner need not leave in the order in which they saved."""
    older = replace(SAVED, saved_at=after(-5 * 3600), step=100)
    known = record(record({}, "", evicted(1, SAVED)), "", evicted(2, older))
    assert known[""].checkpoint == SAVED
    assert known[""].preempted_count == 2


def test_in_a_slot_with_one_pod_at_a_time_the_later_eviction_counts() -> None:
    ahead = replace(SAVED, saved_at=after(300 * 86400))
    known = record(record({}, "0", evicted(1, ahead)), "0", evicted(2, SAVED))
    assert known["0"].checkpoint == SAVED


SAVE_TIMES = {
    "a save takes from its request until the workload has saved": (10, 60, 50),
    "a part of a second counts as one": (10, 60.2, 51),
    "a save that ends with its request takes a second": (60, 60, 1),
    "so does one that ends before it, by the workload's clock": (90, 60, 1),
    "a save that takes longer than can be read back counts as the longest": (
        0,
        2.0**32,
        2**31 - 1,
    ),
}


@pytest.mark.parametrize(("hinted", "saved", "want"), SAVE_TIMES.values(), ids=SAVE_TIMES)
def test_how_long_the_last_save_took_is_recorded(hinted: float, saved: float, want: int) -> None:
    known = record({}, "0", saved_in(hinted, saved))
    assert known["0"].save_seconds == want
    assert ledger.parse(ledger.render(known)) == known


def saved_in(hinted: float, saved: float, number: int = 1) -> Eviction:
    checkpoint = Checkpoint(saved_at=after(saved))
    return replace(evicted(number, checkpoint), hinted_at=after(hinted))


def test_a_pod_that_saved_nothing_or_was_not_asked_leaves_no_time() -> None:
    assert record({}, "0", replace(evicted(1), hinted_at=NOW))["0"].save_seconds is None
    assert record({}, "0", evicted(1, SAVED))["0"].save_seconds is None


def test_the_time_of_the_last_save_stays_until_the_next_save() -> None:
    once = record({}, "0", saved_in(0, 60))
    assert record(once, "0", evicted(2))["0"].save_seconds == 60
    assert record(once, "0", saved_in(0, 90, number=2))["0"].save_seconds == 90


def test_an_eviction_that_was_taken_back_leaves_the_time_of_its_save() -> None:
    known = record(record({}, "0", saved_in(0, 60)), "0", evicted(2))
    assert ledger.retract(known, "0", evicted(2))["0"].save_seconds == 60


def test_an_owner_saved_last_when_any_of_its_pods_did() -> None:
    known = record({}, "0", evicted(1, SAVED))
    known = record(known, "1", evicted(2, replace(SAVED, saved_at=after(30))))
    known = record(known, "2", evicted(3))
    assert ledger.last_saved_at(known) == SAVED.saved_at
    assert ledger.last_saved_at(record({}, "0", evicted(1))) is None


def test_slots_do_not_touch_each_other() -> None:
    known = record(record({}, "0", evicted(1)), "1", evicted(2))
    assert {slot: entry.preempted_count for slot, entry in known.items()} == {"0": 1, "1": 1}


def test_the_ledger_stays_bounded_and_keeps_the_newest() -> None:
    longest = replace(SAVED, path='"' * 512)
    entry = LedgerEntry(
        preempted_count=1, first_submitted_at=NOW, eviction_ids=("uid-0",), checkpoint=longest
    )
    full = {f"slot-{number}": entry for number in range(1000)}
    known = record(full, "slot-7", evicted(1))
    assert len(ledger.render(known).encode()) <= MAX_BYTES
    assert list(known)[-2:] == ["slot-999", "slot-7"]
    assert len(known) > 80


def test_the_evictions_remembered_in_the_shared_slot_are_bounded() -> None:
    known: Ledger = {}
    for number in range(70):
        known = record(known, SHARED_SLOT, evicted(number))
    assert known[SHARED_SLOT].eviction_ids == tuple(f"uid-{number}" for number in range(6, 70))


def test_a_slot_of_its_own_remembers_one_eviction() -> None:
    assert record(record({}, "0", evicted(1)), "0", evicted(2))["0"].eviction_ids == ("uid-2",)


def test_a_count_never_leaves_the_range_that_is_read_back() -> None:
    most = {"0": LedgerEntry(preempted_count=2**31 - 1, first_submitted_at=NOW, eviction_ids=())}
    known = record(most, "0", evicted(1))
    assert known["0"].preempted_count == 2**31 - 1
    assert ledger.parse(ledger.render(known)) == known


def test_a_ledger_is_read_back() -> None:
    known = record(
        record({}, "0", evicted(1, SAVED)),
        SHARED_SLOT,
        evicted(2, replace(SAVED, step=None, path=None)),
    )
    assert ledger.parse(ledger.render(known)) == known


GOOD = {"count": 1, "first": "2026-11-21T12:00:00Z", "ids": ["uid-1"]}

UNREADABLE_SLOTS = {
    "no object": "count",
    "no count": {**GOOD, "count": None},
    "a boolean as count": {**GOOD, "count": True},
    "a count of none": {**GOOD, "count": 0},
    "a count out of range": {**GOOD, "count": 2**31},
    "no first submission": {**GOOD, "first": "yesterday"},
}


@pytest.mark.parametrize("value", UNREADABLE_SLOTS.values(), ids=UNREADABLE_SLOTS)
def test_one_bad_slot_loses_no_other_count(value: object) -> None:
    text = json.dumps({"v": 1, "slots": {"bad": value, "good": GOOD}})
    assert set(ledger.parse(text)) == {"good"}


def test_a_slot_that_cannot_be_written_back_is_left_out() -> None:
    assert ledger.parse(json.dumps({"slots": {"\ud800": GOOD, "x" * 513: GOOD}})) == {}


UNREADABLE_CHECKPOINTS = {
    "no object": ("yes", None),
    "no time": ({"step": 1}, None),
    "a text as step": ({"at": "2026-11-21T12:01:00Z", "step": "1"}, Checkpoint(saved_at=after(60))),
    "a boolean as step": (
        {"at": "2026-11-21T12:01:00Z", "step": True},
        Checkpoint(saved_at=after(60)),
    ),
    "a number as path": ({"at": "2026-11-21T12:01:00Z", "path": 1}, Checkpoint(saved_at=after(60))),
    "a path that no label holds": (
        {"at": "2026-11-21T12:01:00Z", "path": "x" * 9000},
        Checkpoint(saved_at=after(60)),
    ),
}


@pytest.mark.parametrize(
    ("value", "want"), UNREADABLE_CHECKPOINTS.values(), ids=UNREADABLE_CHECKPOINTS
)
def test_the_readable_part_of_a_checkpoint_is_read(value: object, want: Checkpoint | None) -> None:
    text = json.dumps({"slots": {"0": {**GOOD, "saved": value}}})
    assert ledger.parse(text)["0"].checkpoint == want


TOOK: dict[str, tuple[object, int | None]] = {
    "whole seconds": (90, 90),
    "the longest": (2**31 - 1, 2**31 - 1),
    "nothing": (None, None),
    "a text": ("90", None),
    "a boolean": (True, None),
    "a fraction": (1.5, None),
    "no time": (0, None),
    "less than no time": (-1, None),
    "out of range": (2**31, None),
    "a list": ([90], None),
}


@pytest.mark.parametrize(("value", "want"), TOOK.values(), ids=TOOK)
def test_an_unreadable_time_of_a_save_is_forgotten(value: object, want: int | None) -> None:
    entry = ledger.parse(json.dumps({"slots": {"0": {**GOOD, "took": value}}}))["0"]
    assert entry.save_seconds == want
    assert entry.preempted_count == 1


def test_a_ledger_of_an_earlier_version_has_no_time_of_a_save() -> None:
    text = json.dumps({"v": 1, "slots": {"0": GOOD}})
    assert ledger.parse(text)["0"].save_seconds is None
    assert "took" not in ledger.render(ledger.parse(text))


UNREADABLE_IDS = {"no list": "uid-1", "numbers": [1], "nothing": None, "a line end": ["a\nb"]}


@pytest.mark.parametrize("value", UNREADABLE_IDS.values(), ids=UNREADABLE_IDS)
def test_unreadable_evictions_are_forgotten(value: object) -> None:
    assert (
        ledger.parse(json.dumps({"slots": {"0": {**GOOD, "ids": value}}}))["0"].eviction_ids == ()
    )


GARBAGE = {
    "nothing": "",
    "no JSON": "slots",
    "a list": "[]",
    "no slots": "{}",
    "a list of slots": '{"slots":[]}',
    "JSON of depth 5000": "[" * 5000 + "]" * 5000,
    "an integer of 5000 digits": '{"slots":{"0":' + "9" * 5000 + "}}",
    "more than an object can carry": " " * 262_145,
}


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE)
def test_an_invalid_ledger_is_read_as_empty(text: str) -> None:
    assert ledger.parse(text) == {}


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
SLOT_VALUES = (
    st.dictionaries(st.sampled_from(["count", "first", "ids", "saved", "took"]), SCALARS) | SCALARS
)
LEDGERS = st.dictionaries(st.text(max_size=3), SLOT_VALUES).map(
    lambda slots: json.dumps({"slots": slots})
)


@given(LEDGERS | st.text(st.characters(exclude_categories=())))
def test_an_eviction_can_be_recorded_on_any_existing_annotation(text: str) -> None:
    known = record(ledger.parse(text), "0", evicted(1, SAVED))
    rendered = ledger.render(known)
    assert len(rendered.encode()) <= MAX_BYTES
    assert ledger.parse(rendered) == known


def test_pods_that_are_recorded_together_are_recorded_as_one_by_one() -> None:
    evictions = [evicted(1, SAVED), evicted(2), evicted(2), evicted(3)]
    slots = ["0", "1", "1", SHARED_SLOT]
    metadata = a_pod().build().metadata
    known: Ledger = record({}, "1", evicted(0))
    one_by_one = known
    for slot, eviction in zip(slots, evictions, strict=True):
        one_by_one = record(one_by_one, slot, eviction)
    batch = [(slot, each, metadata) for slot, each in zip(slots, evictions, strict=True)]
    together = ledger.record_all(known, batch, after(100))
    assert list(together.items()) == list(one_by_one.items())
    assert ledger.record_all(together, batch, after(200)) is together
