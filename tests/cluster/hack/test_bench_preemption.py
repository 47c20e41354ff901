"""The preemption benchmark plays workloads of real Jobs and counts what a control plane does to
them.
"""

import asyncio
from collections.abc import Iterator

import pytest

from bench.preemption import objects, replay
from bench.preemption.records import ReplayResult
from bench.preemption.trace import TIERS, Checkpoints, Job, Tier, Trace
from reprieve_testing.cluster.handle import ClusterHandle, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

BATCH, _, _, URGENT, CRITICAL = TIERS
NODES = 2
WHOLE_NODE = 8
SAVES = Checkpoints(interval_seconds=1.0, save_seconds=0.5, takes_hints=False, on_sigterm=False)
TAKES_HINTS = Checkpoints(
    interval_seconds=60.0, save_seconds=0.5, takes_hints=True, on_sigterm=False
)


def a_job(
    name: str, tier: Tier, seconds: float, checkpoints: Checkpoints | None, arrives_at: float = 0.0
) -> Job:
    return Job(
        name=name,
        tier=tier,
        preemption_class=1,
        arrives_at=arrives_at,
        pods=1,
        cpus=WHOLE_NODE,
        seconds=seconds,
        checkpoints=checkpoints,
    )


TRACE = Trace(
    seed=0,
    nodes=NODES,
    window_seconds=60.0,
    jobs=[
        a_job("asked", CRITICAL, 20.0, TAKES_HINTS),
        a_job("preempted", BATCH, 8.0, SAVES),
        a_job("preemptor", URGENT, 1.0, None, arrives_at=3.0),
    ],
)


@pytest.fixture
def prepared(cluster: ClusterHandle) -> Iterator[ClusterHandle]:
    made = objects.before_the_jobs()
    cluster.kubectl.apply(*made)
    account = f"serviceaccount/default -n {objects.NAMESPACE}".split()
    wait_for("the service account", lambda: cluster.kubectl.find(*account))
    cluster.set_policy(**objects.POLICY)
    operator = cluster.start_operator()
    operator.wait_leading()
    yield cluster
    operator.stop()
    cluster.kubectl.read("delete", "configmap", "reprieve-policy", "-n", "reprieve-system")
    cluster.kubectl.read("delete", "jobs", "--all", "-n", objects.NAMESPACE, "--timeout=60s")
    for document in made:
        cluster.kubectl.read(
            "delete", document["kind"], document["metadata"]["name"], "--timeout=60s"
        )


async def test_victims_lose_unsaved_work_and_their_replacements_do_the_rest(
    prepared: ClusterHandle,
) -> None:
    def of_job(job: str) -> list[str]:
        selector = ("-l", f"{objects.JOB_NAME}={job}", "--field-selector=status.phase!=Pending")
        items = prepared.kubectl.get("pods", "-n", objects.NAMESPACE, *selector)["items"]
        return [item["metadata"]["name"] for item in items]

    def ask_one() -> None:
        # Before, the preemptor would find its node free.
        wait_for("the preemptor runs", lambda: of_job("preemptor"))
        (name,) = of_job("asked")
        prepared.mark(objects.NAMESPACE, name)

    async def play() -> ReplayResult:
        return await replay.play(TRACE, prepared.cluster.kubeconfig, lambda _: None)

    replayed, _ = await asyncio.gather(play(), asyncio.to_thread(ask_one))
    (preemptor,) = (record for record in replayed.records if record.job == "preemptor")
    asked, resumed = (record for record in replayed.records if record.job == "asked")
    preempted, repeated = (record for record in replayed.records if record.job == "preempted")

    assert preemptor.nominated_at is not None
    assert preemptor.end == resumed.end == repeated.end == "finished"
    assert asked.end == preempted.end == "preempted"
    # No checkpoint was complete in time: it keeps only what it saved because of a request.
    assert asked.hinted_at is not None
    assert asked.kept > 0
    assert asked.wasted >= TAKES_HINTS.save_seconds
    assert preempted.hinted_at is None
    assert preempted.kept == int(preempted.occupied)
    assert resumed.kept == 20.0 - asked.kept
    assert repeated.kept == 8.0 - preempted.kept
    assert resumed.occupied >= resumed.kept
