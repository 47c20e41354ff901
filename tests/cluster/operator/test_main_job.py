"""The main job, chapter by chapter, as `make demo` shows it. The chapters themselves assert the
promises.
"""

from collections.abc import Iterator

import pytest

from mainjob import story, world
from mainjob.narrator import Narrator
from mainjob.story import Chapter
from mainjob.world import World
from realcluster.progress import Progress
from realcluster.real_nodes import node
from reprieve_testing.cluster import cleared

CLUSTER = "reprieve-main"
WITHOUT_WORKLOAD = [chapter for chapter in story.CHAPTERS if not chapter.has_workload]
WITH_WORKLOAD = [chapter for chapter in story.CHAPTERS if chapter.has_workload]

pytestmark = pytest.mark.cluster


def name(chapter: Chapter) -> str:
    return chapter.tell.__module__.rpartition(".")[2]


@pytest.fixture(scope="module")
def simulated() -> Iterator[World]:
    yield from _running(f"{CLUSTER}-simulated", prefer_real=False)


@pytest.fixture(scope="module")
def real() -> Iterator[World]:
    if obstacle := node.can_run():
        pytest.skip(f"no real node can run here: {obstacle}")
    yield from _running(CLUSTER, prefer_real=True)


def _running(cluster: str, *, prefer_real: bool) -> Iterator[World]:
    with cleared(cluster):
        yield world.bring_up(cluster, Progress(), prefer_real=prefer_real)


@pytest.mark.parametrize("chapter", WITHOUT_WORKLOAD, ids=name)
def test_the_admission_chapter_keeps_its_promise(simulated: World, chapter: Chapter) -> None:
    assert chapter.tell(simulated, Narrator())


@pytest.mark.parametrize("chapter", WITH_WORKLOAD, ids=name)
def test_each_chapter_with_local_processes_keeps_its_promise(
    simulated: World, chapter: Chapter
) -> None:
    assert chapter.tell(simulated, Narrator())


@pytest.mark.slow
@pytest.mark.real_node
@pytest.mark.parametrize("chapter", WITH_WORKLOAD, ids=name)
def test_each_chapter_on_a_real_node_keeps_its_promise(real: World, chapter: Chapter) -> None:
    assert chapter.tell(real, Narrator())
