"""`reprieve cleanup` removes what Reprieve wrote, and nothing that other clients wrote."""

from typing import Any

import msgspec
import pytest

from reprieve_cli.commands.cleanup import build_job_patch, build_owner_patch, build_pod_patch
from reprieve_policy import keys
from reprieve_policy.kube.jobs import Job
from reprieve_policy.kube.objects import ObjectMeta
from reprieve_policy.lifecycle import suspension
from reprieve_policy.lifecycle.suspension import SuspensionRecord
from reprieve_policy.preemption import guard, reclaim
from reprieve_policy.preemption.guard import RequestKind
from reprieve_testing.objects.builders import NOW, after

KOORDINATOR = keys.KOORDINATOR_SOFT_EVICTION
GUARDED = {
    change.key: change.value
    for change in guard.mark_changes(RequestKind.PREEMPTION, "uid-of-high", NOW)
}
STATE = {
    keys.EVICTION: "{}",
    keys.CHECKPOINT_REQUEST: "{}",
    keys.CHECKPOINT_ANSWER: "{}",
}
SAVED = {keys.LAST_CHECKPOINT_AT: "2026-11-21T12:00:00Z"}
OTHERS = {
    keys.PREEMPTION_CLASS: "3",
    keys.CHECKPOINT: "auto",
    **SAVED,
    keys.PREEMPTED_COUNT: "2",
    "example.com/own": "x",
}


def metadata(**fields: Any) -> ObjectMeta:
    return ObjectMeta(name="n", namespace="team", uid="uid-of-n", **fields)


def gone(*names: str) -> dict[str, None]:
    return dict.fromkeys(names)


PODS: dict[str, tuple[ObjectMeta, dict[str, Any] | None]] = {
    "a pod without Reprieve's keys": (
        metadata(labels=OTHERS, annotations=OTHERS, finalizers=["example.com/own"]),
        None,
    ),
    "a pod without labels and annotations": (metadata(), None),
    "a victim": (
        metadata(labels={keys.SOFT_EVICTION: "hinted", **OTHERS}, annotations={**STATE, **OTHERS}),
        {"labels": gone(keys.SOFT_EVICTION), "annotations": gone(*STATE)},
    ),
    "a pod with the cleanup finalizer": (
        metadata(finalizers=["example.com/own", keys.CLEANUP_FINALIZER]),
        {"$deleteFromPrimitiveList/finalizers": [keys.CLEANUP_FINALIZER]},
    ),
    "the guard's mark": (
        metadata(annotations={KOORDINATOR: GUARDED[KOORDINATOR], keys.PREEMPTOR: "uid-of-high"}),
        {"annotations": gone(keys.PREEMPTOR, KOORDINATOR)},
    ),
    "the mark of `reprieve reclaim`": (
        metadata(
            labels={keys.SOFT_EVICTION: "marked"},
            annotations={KOORDINATOR: reclaim.build_mark(NOW)},
        ),
        {"labels": gone(keys.SOFT_EVICTION), "annotations": gone(KOORDINATOR)},
    ),
    "the mark of another client stays": (
        metadata(
            labels={keys.SOFT_EVICTION: "marked"},
            annotations={KOORDINATOR: '{"initiator":"koord-descheduler"}'},
        ),
        {"labels": gone(keys.SOFT_EVICTION)},
    ),
    "the preemptor": (
        metadata(annotations={keys.PREEMPTOR: ""}),
        {"annotations": gone(keys.PREEMPTOR)},
    ),
}


@pytest.mark.parametrize(("found", "want"), PODS.values(), ids=PODS)
def test_the_patch_of_a_pod_removes_what_reprieve_wrote_and_nothing_else(
    found: ObjectMeta, want: dict[str, Any] | None
) -> None:
    assert build_pod_patch(found) == (
        None if want is None else {"metadata": {"uid": "uid-of-n", **want}}
    )


def test_the_patch_of_a_gated_pod_removes_the_gate() -> None:
    patch = build_pod_patch(metadata(labels={keys.GANG_GATE_LABEL: "waiting"}))
    assert patch == {
        "metadata": {"uid": "uid-of-n", "labels": gone(keys.GANG_GATE_LABEL)},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": keys.GANG_GATE}]},
    }


OWNED: dict[str, tuple[ObjectMeta, dict[str, Any] | None]] = {
    "a pod without Reprieve's keys": (
        metadata(labels={"app": "x"}, annotations={"example.com/own": "x"}),
        None,
    ),
    "a ledger, and when it last saved": (
        metadata(
            labels={keys.LEDGER: "true", "app": "x"},
            annotations={keys.LEDGER: "{}", **SAVED, "example.com/own": "x"},
        ),
        {"labels": gone(keys.LEDGER), "annotations": gone(keys.LEDGER, *SAVED)},
    ),
    "when it last saved, without a ledger": (
        metadata(annotations=SAVED),
        {"annotations": gone(*SAVED)},
    ),
    "a ledger without its label": (
        metadata(annotations={keys.LEDGER: "{}"}),
        {"annotations": gone(keys.LEDGER)},
    ),
}


@pytest.mark.parametrize(("found", "want"), OWNED.values(), ids=OWNED)
def test_the_patch_of_an_owner_removes_what_reprieve_kept_on_it(
    found: ObjectMeta, want: dict[str, Any] | None
) -> None:
    assert build_owner_patch(found) == (
        None if want is None else {"metadata": {"uid": "uid-of-n", **want}}
    )


HOLD = suspension.render(SuspensionRecord(since=NOW, until=after(300), generation=2))
JOBS: dict[str, tuple[dict[str, Any], bool]] = {
    "suspended by Reprieve": ({}, True),
    "another field has changed": ({"generation": 3}, True),
    "a user has resumed it": ({"is_suspended": False}, False),
    "a user has resumed and suspended it": (
        {"generation": 4, "since": "2026-11-21T15:00:00Z"},
        False,
    ),
    "an unreadable record": ({"hold": "true"}, False),
}


@pytest.mark.parametrize(("fields", "is_resumed"), JOBS.values(), ids=JOBS)
def test_a_job_that_reprieve_suspended_is_resumed_unless_a_user_has_changed_that(
    fields: dict[str, Any], *, is_resumed: bool
) -> None:
    patch = build_job_patch(a_job(**fields), after(3600))
    assert patch is not None
    at = {"resourceVersion": "7"} if is_resumed else {}
    cleared = {"labels": gone(keys.SUSPENDED), "annotations": gone(keys.SUSPENDED)}
    assert patch == {
        "metadata": {"uid": "uid-of-n", **cleared, **at},
        **({"spec": {"suspend": False}} if is_resumed else {}),
    }


def a_job(
    *,
    generation: int = 2,
    hold: str = HOLD,
    is_suspended: bool = True,
    since: str = "2026-11-21T12:00:01Z",
) -> Job:
    named = {
        "name": "n",
        "namespace": "team",
        "uid": "uid-of-n",
        "resourceVersion": "7",
        "generation": generation,
    }
    ours = {"labels": {keys.SUSPENDED: "true"}, "annotations": {keys.SUSPENDED: hold}}
    condition = {
        "type": "Suspended",
        "status": "True" if is_suspended else "False",
        "lastTransitionTime": since,
    }
    document = {
        "metadata": named | ours,
        "spec": {"suspend": is_suspended},
        "status": {"conditions": [condition]},
    }
    return msgspec.convert(document, Job)
