"""The main job, chapter by chapter, as `make demo` shows it. The chapters themselves assert the
promises.
"""

import shutil
from collections.abc import Iterator

import pytest

from mainjob import installation, runner
from mainjob.deployments import build_image
from mainjob.installation import Installation
from mainjob.narrator import Narrator
from mainjob.runner import Chapter
from realcluster.progress import Progress
from realcluster.real_nodes import node
from reprieve_testing.cluster.handle import cleared
from reprieve_testing.cluster.patient_api_server import wait_longer_for_reviews

CLUSTER = "reprieve-main"
WITHOUT_WORKLOAD = [chapter for chapter in runner.CHAPTERS if not chapter.has_workload]
WITH_WORKLOAD = [chapter for chapter in runner.CHAPTERS if chapter.has_workload]

pytestmark = pytest.mark.cluster


def name(chapter: Chapter) -> str:
    return chapter.run.__module__.rpartition(".")[2]


@pytest.fixture(scope="module")
def simulated() -> Iterator[Installation]:
    with cleared(f"{CLUSTER}-simulated") as cluster:
        yield installation.bring_up(cluster, Progress(), prefer_real=False)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """The Deployments on a real node, from the image."""
    if obstacle := node.can_run():
        pytest.skip(f"no real node can run here: {obstacle}")
    if shutil.which("apt-get") is None:
        pytest.skip("the image is built from Debian's packages, and this machine has no apt-get")
    image = build_image(tmp_path_factory.mktemp("image"), Progress())
    assert image is not None
    with cleared(CLUSTER):
        here = installation.bring_up(CLUSTER, Progress(), image=image)
        wait_longer_for_reviews(here.kubectl)
        yield here


@pytest.mark.parametrize("chapter", WITHOUT_WORKLOAD, ids=name)
def test_the_admission_chapter_keeps_its_promise(simulated: Installation, chapter: Chapter) -> None:
    assert chapter.run(simulated, Narrator())


@pytest.mark.parametrize("chapter", WITH_WORKLOAD, ids=name)
def test_each_chapter_with_local_processes_keeps_its_promise(
    simulated: Installation, chapter: Chapter
) -> None:
    assert chapter.run(simulated, Narrator())


@pytest.mark.slow
@pytest.mark.real_node
@pytest.mark.parametrize("chapter", runner.CHAPTERS, ids=name)
def test_each_chapter_with_the_deployments_on_a_real_node_keeps_its_promise(
    real: Installation, chapter: Chapter
) -> None:
    assert chapter.run(real, Narrator())
