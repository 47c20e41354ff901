"""A replacement's annotations and environment variables."""

from dataclasses import replace

import pytest

from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.objects import Container, NameOnly, pod_views
from reprieve_policy.lifecycle import replacement_annotations
from reprieve_policy.lifecycle.eviction import Checkpoint
from reprieve_policy.lifecycle.ledger import LedgerEntry as Slot
from reprieve_policy.lifecycle.replacement_annotations import EnvironmentVariable
from reprieve_policy.verdict import ListAddition
from reprieve_testing.objects.builders import NOW, a_pod, after

SETTINGS = PolicySettings()
REQUESTS_VARIABLES = {keys.REQUEUE_ENV: "true"}
SAVED = Checkpoint(saved_at=after(60), step=4200, path="/ckpt/4200")
COUNT = EnvironmentVariable("REPRIEVE_PREEMPTED_COUNT", keys.PREEMPTED_COUNT)
FIRST = EnvironmentVariable("REPRIEVE_FIRST_SUBMITTED_AT", keys.FIRST_SUBMITTED_AT)
RESUME = EnvironmentVariable("REPRIEVE_RESUME_FROM_CHECKPOINT", keys.RESUME_FROM_CHECKPOINT)
TOOK = EnvironmentVariable("REPRIEVE_LAST_CHECKPOINT_TOOK", keys.LAST_CHECKPOINT_TOOK)
LAST = EnvironmentVariable("REPRIEVE_LAST_CHECKPOINT_AT", keys.LAST_CHECKPOINT_AT)

STAMPS: dict[
    str, tuple[Checkpoint | None, int | None, dict[str, str], tuple[EnvironmentVariable, ...]]
] = {
    "without a checkpoint, a replacement gets only the count": (
        None,
        None,
        {keys.PREEMPTED_COUNT: "2", keys.FIRST_SUBMITTED_AT: "2026-11-21T12:00:00Z"},
        (COUNT, FIRST),
    ),
    "with a checkpoint, a replacement gets the path": (
        SAVED,
        None,
        {
            keys.PREEMPTED_COUNT: "2",
            keys.FIRST_SUBMITTED_AT: "2026-11-21T12:00:00Z",
            keys.RESUME_FROM_CHECKPOINT: "/ckpt/4200",
            keys.LAST_CHECKPOINT_AT: "2026-11-21T12:01:00Z",
        },
        (COUNT, FIRST, RESUME, LAST),
    ),
    "with a checkpoint without a path, a replacement gets the word true": (
        replace(SAVED, path=None),
        None,
        {
            keys.PREEMPTED_COUNT: "2",
            keys.FIRST_SUBMITTED_AT: "2026-11-21T12:00:00Z",
            keys.RESUME_FROM_CHECKPOINT: "true",
            keys.LAST_CHECKPOINT_AT: "2026-11-21T12:01:00Z",
        },
        (COUNT, FIRST, RESUME, LAST),
    ),
    "if the operator asked for the checkpoint, it gets the time that the save took": (
        SAVED,
        90,
        {
            keys.PREEMPTED_COUNT: "2",
            keys.FIRST_SUBMITTED_AT: "2026-11-21T12:00:00Z",
            keys.RESUME_FROM_CHECKPOINT: "/ckpt/4200",
            keys.LAST_CHECKPOINT_AT: "2026-11-21T12:01:00Z",
            keys.LAST_CHECKPOINT_TOOK: "1m30s",
        },
        (COUNT, FIRST, RESUME, LAST, TOOK),
    ),
}


def entry(checkpoint: Checkpoint | None, save_seconds: int | None = None) -> Slot:
    return Slot(
        preempted_count=2,
        first_submitted_at=NOW,
        eviction_ids=("uid-2",),
        checkpoint=checkpoint,
        save_seconds=save_seconds,
    )


@pytest.mark.parametrize(
    ("checkpoint", "save_seconds", "annotations", "variables"), STAMPS.values(), ids=STAMPS
)
def test_which_annotations_and_variables_are_built(
    checkpoint: Checkpoint | None,
    save_seconds: int | None,
    annotations: dict[str, str],
    variables: tuple[EnvironmentVariable, ...],
) -> None:
    told = entry(checkpoint, save_seconds)
    assert replacement_annotations.build_annotations(told) == annotations
    assert replacement_annotations.build_variables(told, REQUESTS_VARIABLES, SETTINGS) == variables


def test_a_pod_that_requests_no_variables_gets_annotations_only() -> None:
    (view,) = pod_views(a_pod().build())
    changes = replacement_annotations.decide_changes(entry(None), view, SETTINGS)
    assert {change.key: change.value for change in changes} == STAMPS[
        "without a checkpoint, a replacement gets only the count"
    ][2]


def test_a_pod_that_requests_variables_gets_them_in_every_container_without_them() -> None:
    own = Container(env=[NameOnly(name=COUNT.name)])
    pod = (
        a_pod()
        .annotated(keys.REQUEUE_ENV, "true")
        .with_containers(own, initContainers=[Container()])
    )
    (view,) = pod_views(pod.build())
    changes = list(replacement_annotations.decide_changes(entry(None), view, SETTINGS))
    assert [change for change in changes if isinstance(change, ListAddition)] == [
        ListAddition("/spec/initContainers/0/env", COUNT.to_env_entry(), list_exists=False),
        ListAddition("/spec/initContainers/0/env", FIRST.to_env_entry(), list_exists=False),
        ListAddition("/spec/containers/0/env", FIRST.to_env_entry(), list_exists=True),
    ]


WITHOUT_VARIABLES = {
    "no request": {},
    "the pod opts out": {keys.REQUEUE_ENV: "false"},
    "nonsense": {keys.REQUEUE_ENV: "1"},
}


@pytest.mark.parametrize("annotations", WITHOUT_VARIABLES.values(), ids=WITHOUT_VARIABLES)
def test_no_variables_are_added_if(annotations: dict[str, str]) -> None:
    assert replacement_annotations.build_variables(entry(SAVED), annotations, SETTINGS) == ()


def test_a_variable_refers_to_the_annotation_and_copies_nothing() -> None:
    reference = {"fieldRef": {"fieldPath": "metadata.annotations['reprieve.dev/preempted-count']"}}
    assert COUNT.to_env_entry() == {"name": "REPRIEVE_PREEMPTED_COUNT", "valueFrom": reference}


@pytest.mark.parametrize(
    "checkpoint", [None, replace(SAVED, step=None), replace(SAVED, step=None, path=None)]
)
@pytest.mark.parametrize("save_seconds", [None, 1, 90, 2**31 - 1])
def test_a_replacements_annotations_are_read_back(
    checkpoint: Checkpoint | None, save_seconds: int | None
) -> None:
    told = entry(checkpoint, save_seconds)
    assert replacement_annotations.read(replacement_annotations.build_annotations(told)) == replace(
        told, eviction_ids=()
    )


GOOD = {keys.PREEMPTED_COUNT: "2", keys.FIRST_SUBMITTED_AT: "2026-11-21T12:00:00Z"}
NO_STAMPS = {
    "nothing": {},
    "no count": {keys.FIRST_SUBMITTED_AT: "2026-11-21T12:00:00Z"},
    "a count of none": {**GOOD, keys.PREEMPTED_COUNT: "0"},
    "a count out of range": {**GOOD, keys.PREEMPTED_COUNT: "9" * 5000},
    "a count in words": {**GOOD, keys.PREEMPTED_COUNT: "twice"},
    "no first submission": {keys.PREEMPTED_COUNT: "2"},
    "a first submission in words": {**GOOD, keys.FIRST_SUBMITTED_AT: "yesterday"},
}


@pytest.mark.parametrize("annotations", NO_STAMPS.values(), ids=NO_STAMPS)
def test_annotations_that_reprieve_did_not_write_are_ignored(annotations: dict[str, str]) -> None:
    assert replacement_annotations.read(annotations) is None


ODD_CHECKPOINTS: dict[str, tuple[dict[str, str], Checkpoint | None]] = {
    "no time": ({keys.RESUME_FROM_CHECKPOINT: "/ckpt"}, None),
    "no place": ({keys.LAST_CHECKPOINT_AT: "2026-11-21T12:01:00Z"}, None),
    "a place that cannot be written down": (
        {keys.RESUME_FROM_CHECKPOINT: "\n" * 9000, keys.LAST_CHECKPOINT_AT: "2026-11-21T12:01:00Z"},
        Checkpoint(saved_at=after(60)),
    ),
}


@pytest.mark.parametrize(("annotations", "want"), ODD_CHECKPOINTS.values(), ids=ODD_CHECKPOINTS)
def test_the_readable_part_of_a_checkpoint_is_read(
    annotations: dict[str, str], want: Checkpoint | None
) -> None:
    found = replacement_annotations.read({**GOOD, **annotations})
    assert found is not None
    assert found.checkpoint == want


@pytest.mark.parametrize("text", ["", "soon", "90", "-1s", "0s", "99999999999h", "9" * 5000])
def test_an_unreadable_time_of_a_save_is_ignored(text: str) -> None:
    found = replacement_annotations.read({**GOOD, keys.LAST_CHECKPOINT_TOOK: text})
    assert found is not None
    assert found.save_seconds is None
