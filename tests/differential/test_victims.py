"""The same scenes through upstream's scheduler with its PreemptionToleration, and through the stock one with our extender.

Upstream's own is scheduler-plugins v0.34.7, built on demand. Both run at once on one real API server, each on nodes and pods of
its own, and what they delete is watched.
"""

import asyncio
import os
from collections.abc import Iterator

import pytest

from reprieve_testing.cluster import ClusterHandle
from reprieve_testing.differential import generator, rule
from reprieve_testing.differential.arena import Arena
from reprieve_testing.differential.documents import UPSTREAM
from reprieve_testing.differential.published import use_cases
from reprieve_testing.differential.scene import Outcome, Scene

pytestmark = pytest.mark.cluster

NAME = "reprieve-victims"
GENERATED = int(os.environ.get("REPRIEVE_SCENES", "500"))
SEED = int(os.environ.get("REPRIEVE_SEED", "2026"))
SECONDS = 400.0

USE_CASES = tuple(use_cases())
SCENES = (*(case.scene for case in USE_CASES), *generator.scenes(GENERATED, SEED))

Outcomes = dict[tuple[str, str], Outcome]


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Outcomes]:
    """What each of the two makes of each scene."""
    handle = ClusterHandle.up(NAME, kwok_nodes=0)
    try:
        arena = Arena(handle.cluster, SCENES)
        arena.clear()
        asyncio.run(arena.fill())
        yield asyncio.run(arena.run((), seconds=SECONDS))
    finally:
        handle.down()


def test_upstreams_scheduler_does_what_its_published_use_cases_say(outcomes: Outcomes) -> None:
    said = {case.sentence: outcomes[case.scene.name, UPSTREAM.name] for case in USE_CASES}
    assert said == {case.sentence: case.outcome for case in USE_CASES}


def test_upstreams_scheduler_follows_the_rule_as_we_read_it_in_its_sources(outcomes: Outcomes) -> None:
    found = ((scene, outcomes[scene.name, UPSTREAM.name]) for scene in SCENES)
    assert [differing(scene, outcome) for scene, outcome in found if outcome != rule.decide(scene)] == []


def differing(scene: Scene, outcome: Outcome) -> str:
    return f"{outcome} is not {rule.decide(scene)} of {scene}"
