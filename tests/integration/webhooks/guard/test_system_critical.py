"""System-critical preemptors: no victim is refused to them.

This does not hold for one that only waits to be bound.
"""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from reprieve_policy import keys
from reprieve_policy.lifecycle import eviction
from reprieve_policy.lifecycle.eviction import Eviction, Phase
from reprieve_testing.guard.fixture import (
    HINT,
    MARKED,
    PODS,
    REQUESTED_AT,
    GuardFixture,
    a_victim,
    another_victim,
    guard_fixture,
    seconds_of,
)

REPRIEVED = eviction.render(
    Eviction(
        eviction_id="e",
        phase=Phase.REPRIEVED,
        requested_at=REQUESTED_AT,
        deadline=REQUESTED_AT + timedelta(minutes=5),
    )
)


@pytest_asyncio.fixture
async def here(tmp_path: Path) -> AsyncIterator[GuardFixture]:
    async with guard_fixture(tmp_path, a_victim()) as found:
        yield found


CRITICAL = 2_000_001_000
PROTECTED = {
    "a non-preemptible pod": {"labels": {keys.PREEMPTIBLE: "false"}},
    "a reprieved pod": {"annotations": HINT | {keys.EVICTION: REPRIEVED}},
}


@pytest.mark.parametrize("metadata", PROTECTED.values(), ids=PROTECTED)
async def test_a_system_critical_pod_is_postponed_for(here: GuardFixture, metadata: Any) -> None:
    await here.nominate("mine")
    assert "asked to save" not in (await here.delete(a_victim(**metadata)))["status"]["message"]
    assert here.marks() == []
    response = await here.delete_and_nominate(a_victim(**metadata), "critical", priority=CRITICAL)
    assert "asked to save a checkpoint first" in response["status"]["message"]
    (patch,) = here.marks()
    assert patch["metadata"]["labels"] == {keys.SOFT_EVICTION: "requested"}
    assert patch["metadata"]["annotations"][keys.PREEMPTOR] == "uid-of-critical"


async def test_a_system_critical_pod_may_have_a_second_set(tmp_path: Path) -> None:
    elsewhere = another_victim(
        "elsewhere", labels=MARKED, annotations=HINT | {keys.PREEMPTOR: "uid-of-critical"}
    )
    elsewhere["spec"]["nodeName"] = "node-2"
    async with guard_fixture(tmp_path, a_victim()) as here:
        here.stub.collections[PODS] = {"elsewhere": elsewhere}
        await here.delete_and_nominate(a_victim(), "critical", priority=CRITICAL)
        assert here.marked() == ["train"]


HIDDEN_BY = {
    "a pod nominated a moment ago": (0.1, False),
    "the preemptor of the chosen victim": (60.0, True),
    "the preemptor of the chosen victim, nominated a moment ago": (0.1, True),
}


@pytest.mark.parametrize("metadata", PROTECTED.values(), ids=PROTECTED)
@pytest.mark.parametrize(("ago", "is_chosen"), HIDDEN_BY.values(), ids=HIDDEN_BY)
async def test_a_nominated_system_critical_pod_is_not_hidden_by(
    here: GuardFixture, metadata: Any, ago: float, *, is_chosen: bool
) -> None:
    await here.nominate("critical", CRITICAL)
    await here.nominate("mine", ago=ago)
    if is_chosen:
        here.victim_sets.choose("mine", "train")
    assert (
        "asked to save a checkpoint first"
        in (await here.delete(a_victim(**metadata)))["status"]["message"]
    )
    ((_, patch),) = here.stub.patches
    assert patch["metadata"]["annotations"][keys.PREEMPTOR] == "uid-of-critical"


async def test_a_system_critical_pod_is_not_hidden_by_many_refused_preemptors(
    here: GuardFixture,
) -> None:
    await here.nominate("critical", CRITICAL)
    for number in range(12):
        await here.nominate(f"never-{number}", ago=0.01, preemptionPolicy="Never")
    assert (
        "asked to save a checkpoint first" in (await here.delete(a_victim()))["status"]["message"]
    )
    assert "uid-of-critical" in json.dumps(here.stub.patches)


async def test_a_more_probable_preemptor_comes_before_a_system_critical_one(
    here: GuardFixture,
) -> None:
    await here.nominate("critical", CRITICAL)
    await here.nominate("mine", ago=0.1)
    await here.delete(a_victim())
    assert "uid-of-mine" in json.dumps(here.stub.patches)
    here.clock_seconds += 60
    await here.delete_and_nominate(a_victim(), "later")
    assert "uid-of-later" in json.dumps(here.stub.patches[1:])


BINDING = {"for long": 60.0, "since a moment ago": 0.1}


@pytest.mark.parametrize("ago", BINDING.values(), ids=BINDING)
@pytest.mark.parametrize("metadata", PROTECTED.values(), ids=PROTECTED)
async def test_a_protected_pod_is_not_preempted_for_a_system_critical_pod_that_is_being_bound(
    here: GuardFixture, metadata: Any, ago: float
) -> None:
    await here.nominate("mine")
    await here.nominate("critical", CRITICAL, is_binding=True, ago=ago)
    assert "asked to save" not in (await here.delete(a_victim(**metadata)))["status"]["message"]
    plain = {"labels": {keys.PREEMPTIBLE: "false"}, "annotations": {}}
    assert (await here.delete(a_victim(**plain)))["allowed"] is False
    assert here.marks() == []


@pytest.mark.parametrize("ago", BINDING.values(), ids=BINDING)
async def test_a_pod_that_is_being_bound_is_not_the_preemptor(
    here: GuardFixture, ago: float
) -> None:
    await here.nominate("mine")
    await here.nominate("binds", 2000, is_binding=True, ago=ago)
    # Nor does its nomination show that a scheduler continues while the deletion is under review.
    assert seconds_of(await here.delete(a_victim())) is None
    assert "uid-of-mine" in json.dumps(here.stub.patches)


async def test_a_pod_that_is_nominated_and_bound_meanwhile_is_not_the_preemptor(
    here: GuardFixture,
) -> None:
    await here.nominate("mine")
    assert (
        seconds_of(await here.delete_and_nominate(a_victim(), "binds", 2000, is_binding=True))
        is None
    )
    assert "uid-of-mine" in json.dumps(here.stub.patches)


async def test_a_system_critical_pod_that_is_being_bound_counts_as_no_nomination(
    here: GuardFixture,
) -> None:
    await here.nominate("critical", CRITICAL, is_binding=True)
    assert "asked to save" in (await here.delete(a_victim()))["status"]["message"]
    ((_, patch),) = here.stub.patches
    assert patch["metadata"]["labels"] == {keys.SOFT_EVICTION: "marked"}
    assert patch["metadata"]["annotations"][keys.PREEMPTOR] == ""
