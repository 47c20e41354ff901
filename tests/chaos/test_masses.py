"""Many victims at once: a namespace is deleted under them; five hundred are marked in a second."""

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from reprieve_testing.chaos.chaos_namespace import ChaosNamespace, until
from reprieve_testing.chaos.chaos_runner import ChaosRunner
from reprieve_testing.chaos.edges import SAVING, PodAction, Trigger
from reprieve_testing.chaos.proxy import ApiProxy
from reprieve_testing.chaos.scripted_victims import ScriptedVictim, mixed_victims, utc_now
from reprieve_testing.cluster.handle import ClusterHandle

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

MASS_SECONDS = 180
"""For 500 lives, some 2,000 writes, on two cores that also simulate the workloads and nodes, and
run other tests: how fast it goes is a benchmark's matter (`make bench-victims`)."""


async def test_a_namespace_that_is_deleted_under_a_hundred_victims_is_gone_soon(
    cluster: ClusterHandle, chaos_runner: ChaosRunner, namespace: ChaosNamespace
) -> None:
    operator = await chaos_runner.start_leader()
    await chaos_runner.create_victims(
        ScriptedVictim(f"v-{index}", scripted_answer=SAVING) for index in range(100)
    )
    await chaos_runner.mark()

    async def held() -> bool:
        return all(pod["metadata"].get("finalizers") for pod in (await namespace.pods()).values())

    await until("all are held", held, 180)
    for victim in chaos_runner.victims.values():
        # The namespace controller deletes them: a deletion by the operator of a pod that still
        # saves would break a promise.
        victim.trigger, victim.ended_at = Trigger(action=PodAction.DELETE), utc_now()
    cluster.kubectl.read("delete", "namespace", namespace.namespace, "--wait=false")

    async def gone() -> bool:
        return cluster.kubectl.find("namespace", namespace.namespace) is None

    await until("the namespace is gone", gone, 180)
    await chaos_runner.check()
    assert operator.process.poll() is None


async def test_five_hundred_victims_can_be_marked_at_once(
    chaos_runner: ChaosRunner, proxy: ApiProxy, say: Callable[[str], None]
) -> None:
    # The pace of a real cluster: the operator polls 125 workloads that never answer all the time.
    await chaos_runner.start_leader(poll_interval_seconds=5)
    await chaos_runner.create_victims(
        replace(victim, slack_seconds=MASS_SECONDS) for victim in mixed_victims("v", 500)
    )
    # They reach the operator together, however long this machine takes to write five hundred marks.
    proxy.watches_allowed.clear()
    proxy.cut_watches()
    began = time.monotonic()
    await chaos_runner.mark()
    took = time.monotonic() - began
    proxy.watches_allowed.set()
    for victim in chaos_runner.victims.values():
        if victim.scripted_answer == SAVING:
            victim.finish_soon()
    await chaos_runner.wait_over()
    say(f"500 victims: marked in {took:.1f} s, all gone after {time.monotonic() - began:.1f} s")
    await chaos_runner.check()
