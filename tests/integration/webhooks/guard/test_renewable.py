"""How long a pod's owner can have a preemption refused: one ceiling from the first refusal.

The owner makes the pod the pod of one decoy Job after another, or changes it all the time.
"""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from reprieve_policy import keys
from reprieve_policy.config.settings import PolicySettings
from reprieve_policy.kube.values import timestamp
from reprieve_policy.preemption import first_refusal
from reprieve_testing.guard.fixture import (
    HINT,
    TEAM,
    GuardFixture,
    a_victim,
    code_of,
    guard_fixture,
)

JOBS = "/apis/batch/v1/namespaces/team-a/jobs"
CEILING = timedelta(seconds=PolicySettings().ceiling_seconds)


def ago(seconds: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds)


def a_decoy(number: int) -> Any:
    """Return a Job that ends in a minute, and began only now."""
    return {
        "metadata": {"name": f"decoy-{number}", "uid": f"uid-of-decoy-{number}"},
        "spec": {"activeDeadlineSeconds": 60},
        "status": {"startTime": timestamp.render(ago(1))},
    }


def owned_by(number: int, *, refused_since: datetime | None = None) -> Any:
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": f"decoy-{number}",
        "uid": f"uid-of-decoy-{number}",
        "controller": True,
    }
    annotations = dict(HINT)
    if refused_since is not None:
        change = first_refusal.build_change("uid-of-train", refused_since)
        annotations[change.key] = change.value
    return a_victim(ownerReferences=[owner], annotations=annotations)


def recorded(here: GuardFixture) -> list[Any]:
    """Return what was written of first refusals."""
    return [
        patch["metadata"]
        for _, patch in here.stub.patches
        if keys.REFUSED_SINCE in patch["metadata"].get("annotations", {})
    ]


@pytest_asyncio.fixture
async def here(tmp_path: Path) -> AsyncIterator[GuardFixture]:
    async with guard_fixture(tmp_path, owned_by(0)) as found:
        found.stub.collections[JOBS] = {f"decoy-{number}": a_decoy(number) for number in range(4)}
        await found.nominate()
        yield found


async def test_the_first_refusal_of_a_pod_is_recorded_once_by_uid(here: GuardFixture) -> None:
    response = await here.delete(owned_by(0))
    assert code_of(response) == 429
    assert "almost complete" in response["status"]["message"]
    (written,) = recorded(here)
    # No version: an owner who writes to the pod all the time cannot prevent it.
    assert written.keys() == {"uid", "annotations"}
    since = first_refusal.read(written["annotations"], "uid-of-train")
    assert since is not None
    await here.delete(owned_by(1, refused_since=since))
    assert len(recorded(here)) == 1


async def test_a_refusal_is_recorded_by_the_api_servers_clock(here: GuardFixture) -> None:
    """A node whose clock is an hour ahead would else protect the pod for an hour more."""
    here.guard._reader._api.server_time._wall = lambda: time.time() + 3600
    await here.delete(owned_by(0))
    (written,) = recorded(here)
    since = first_refusal.read(written["annotations"], "uid-of-train")
    assert since is not None
    assert since < ago(-600)


async def test_ever_new_jobs_protect_a_pod_for_one_ceiling(here: GuardFixture) -> None:
    soon = ago(CEILING.total_seconds() - 30)
    for number in range(4):
        response = await here.delete(owned_by(number, refused_since=soon))
        assert "almost complete" in response["status"]["message"]
    for number in range(4):
        response = await here.delete(owned_by(number, refused_since=soon - timedelta(seconds=31)))
        assert "asked to save a checkpoint first" in response["status"]["message"]
    assert "train" in here.marked()


async def test_the_refusal_of_another_pod_counts_for_none(here: GuardFixture) -> None:
    copied = owned_by(0)
    change = first_refusal.build_change("uid-of-the-pod-before", ago(CEILING.total_seconds() + 1))
    copied["metadata"]["annotations"][change.key] = change.value
    response = await here.delete(copied)
    assert "almost complete" in response["status"]["message"]
    assert len(recorded(here)) == 1


async def test_nothing_is_recorded_on_a_dry_run_for_an_eviction_or_without_a_refusal(
    here: GuardFixture,
) -> None:
    assert (await here.delete(owned_by(0), dryRun=True))["allowed"] is False
    await here.evict()
    await here.delete(a_victim())
    assert recorded(here) == []


async def test_a_pod_of_a_permanent_protection_is_refused_as_before(here: GuardFixture) -> None:
    never = a_victim(labels={keys.PREEMPTION_CLASS: "10", keys.PREEMPTIBLE: "false"})
    response = await here.delete(never)
    assert "non-preemptible" in response["status"]["message"]
    assert recorded(here) == []


@pytest.mark.parametrize("status", [403, 404, 409, 422, 500])
async def test_a_pod_is_protected_if_its_refusal_cannot_be_recorded_now(
    here: GuardFixture, status: int
) -> None:
    here.stub.refuses = {f"{TEAM}/train": status}
    response = await here.delete(owned_by(0))
    assert "almost complete" in response["status"]["message"]


async def test_a_pod_whose_refusal_can_never_be_recorded_is_protected_for_one_ceiling(
    here: GuardFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy of another project refuses every update of the pod."""
    here.stub.refuses = {f"{TEAM}/train": 403}
    await refuse_at(here, ago(CEILING.total_seconds() + 1), monkeypatch)
    assert (await here.delete(owned_by(1)))["allowed"]


async def test_a_refusal_that_is_recorded_late_counts_from_the_first(
    here: GuardFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.stub.refuses = {f"{TEAM}/train": 403}
    first = ago(60).replace(microsecond=0)
    await refuse_at(here, first, monkeypatch)
    here.stub.refuses.clear()
    assert code_of(await here.delete(owned_by(1))) == 429
    written = recorded(here)[-1]["annotations"]
    assert first_refusal.read(written, "uid-of-train") == first


async def refuse_at(here: GuardFixture, now: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the pod's preemption refused at this time."""
    with monkeypatch.context() as at_that_time:
        at_that_time.setattr(here.guard._refusal_recorder, "_now", lambda: now)
        assert code_of(await here.delete(owned_by(0))) == 429


@pytest.mark.parametrize("status", [413, 422])
async def test_a_pod_without_room_for_the_record_is_not_protected(
    here: GuardFixture, status: int
) -> None:
    here.stub.refuses = {f"{TEAM}/train": status}
    here.stub.refusal = "metadata.annotations: Too long: may not be more than 262144 bytes"
    assert (await here.delete(owned_by(0)))["allowed"]


async def test_a_pod_that_changes_faster_than_it_can_be_marked_goes_after_the_ceiling(
    here: GuardFixture,
) -> None:
    here.stub.refuses = {f"{TEAM}/train": 409}
    assert (await here.delete(a_victim()))["allowed"] is False
    assert len(recorded(here)) == 1
    late = first_refusal.build_change("uid-of-train", ago(CEILING.total_seconds() + 1))
    assert (await here.delete(a_victim(annotations=HINT | {late.key: late.value})))["allowed"]


class ConflictOnce(dict[str, int]):
    """Refuses the first patch of a pod, which has become this one, and `then` the others."""

    def __init__(self, here: GuardFixture, changed: Any, *, then: int = 200) -> None:
        super().__init__({f"{TEAM}/train": 409})
        self._here, self._changed, self._then = here, changed, then

    def get(self, path: str, otherwise: Any = None) -> Any:
        self._here.stub.collections[TEAM] = {"train": self._changed}
        return self.pop(path, self._then if path == f"{TEAM}/train" else otherwise)


def refused_long_ago_and_changing(here: GuardFixture) -> Any:
    """Return a pod that was refused a ceiling ago, and has changed when it is marked first."""
    late = first_refusal.build_change("uid-of-train", ago(CEILING.total_seconds() + 1))
    pod = a_victim(annotations=HINT | {late.key: late.value})
    here.stub.collections[TEAM] = {"train": pod}
    here.stub.refuses = ConflictOnce(here, pod)
    return pod


async def test_a_pod_that_is_evicted_is_marked_though_it_changes_all_the_time(
    here: GuardFixture,
) -> None:
    refused_long_ago_and_changing(here)
    assert code_of(await here.evict()) == 429
    first, second = (patch["metadata"] for _, patch in here.stub.patches)
    assert first["labels"] == second["labels"] == {keys.SOFT_EVICTION: "evict"}
    assert first.keys() - second.keys() == {"resourceVersion"}
    assert second["uid"] == "uid-of-train"


async def test_a_pod_that_was_refused_long_ago_is_marked_though_it_changes_twice(
    here: GuardFixture,
) -> None:
    """It has been refused on another ground, and is protected no more: it gets notice."""
    pod = refused_long_ago_and_changing(here)
    response = await here.delete(pod)
    assert "asked to save a checkpoint first" in response["status"]["message"]
    second = here.stub.patches[-1][1]["metadata"]
    assert second["labels"] == {keys.SOFT_EVICTION: "marked"}
    assert "resourceVersion" not in second


@pytest.mark.parametrize("status", [429, 500])
async def test_a_pod_that_has_changed_and_cannot_be_marked_stays(
    here: GuardFixture, status: int
) -> None:
    here.stub.collections[TEAM] = {"train": a_victim()}
    here.stub.refuses = ConflictOnce(here, a_victim(), then=status)
    assert code_of(await here.evict()) == 429
    here.stub.refuses = ConflictOnce(here, a_victim(), then=status)
    assert code_of(await here.delete(a_victim())) == 429


async def test_of_two_evictions_at_once_the_second_finds_the_pod_marked(here: GuardFixture) -> None:
    here.stub.collections[TEAM] = {"train": a_victim()}
    here.stub.refuses = ConflictOnce(here, a_victim(labels={keys.SOFT_EVICTION: "evict"}))
    assert code_of(await here.evict()) == 429
    assert len(here.stub.patches) == 1
