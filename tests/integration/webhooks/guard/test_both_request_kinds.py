"""A scheduler and a drain at the same pod or node: neither shows anything of the other."""

from pathlib import Path
from typing import Any

import pytest

from reprieve_policy import keys
from reprieve_testing.guard.fixture import (
    MARKED,
    a_victim,
    another_victim,
    code_of,
    guard_fixture,
    seconds_of,
)

TRIES = {"deleteOptions": {"dryRun": ["All"]}}
EVICTED = {
    "is put off": ({}, {}, {"labels": MARKED}),
    "is allowed": ({"annotations": {}}, {}, {"labels": {keys.PREEMPTIBLE: "false"}}),
    "only tries": ({"annotations": {}}, TRIES, {"labels": {keys.PREEMPTIBLE: "false"}}),
}


@pytest.mark.parametrize(("stored", "body", "preempted"), EVICTED.values(), ids=EVICTED)
async def test_evictions_of_a_pod_do_not_hide_that_a_preemptor_retries_at_once(
    tmp_path: Path, stored: Any, body: Any, preempted: Any
) -> None:
    """Without this, the owner of a pod could make a scheduler retry 50 times a second as long as
    the pod is protected.
    """
    async with guard_fixture(tmp_path, a_victim(**stored)) as here:
        await here.nominate("waits")
        here.guard._refusal_history._monotonic = lambda: here.clock_seconds
        responses = []
        for _ in range(6):
            responses.append(await here.delete(a_victim(**preempted)))
            await here.evict(body=body)
        times = [seconds_of(response) for response in responses]
        is_put_off = preempted["labels"] == MARKED
        assert times == [None] * 5 + [None if is_put_off else 4]
        assert [code_of(response) for response in responses] == [429] * 5 + [
            404 if is_put_off else 429
        ]


async def test_the_pods_of_a_drain_are_not_victims_that_a_preemptor_waits_for(
    tmp_path: Path,
) -> None:
    drained = [another_victim(f"drained-{number}") for number in range(15)]
    async with guard_fixture(tmp_path, *drained) as here:
        for pod in drained:
            assert (await here.evict(pod["metadata"]["name"]))["allowed"] is False
        await here.nominate("mine", ago=0.9)
        kept = a_victim(labels={keys.PREEMPTIBLE: "false"})
        assert seconds_of(await here.delete(kept)) == 4
