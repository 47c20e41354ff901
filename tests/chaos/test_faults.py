"""Other faults under a running operator: the API server, etcd, its Lease, its watch, a pause."""

import asyncio
import signal
import time
from functools import partial

import pytest

from reprieve_policy.lifecycle.eviction import Phase
from reprieve_testing.chaos.chaos_namespace import ChaosNamespace, until
from reprieve_testing.chaos.chaos_runner import ChaosRunner
from reprieve_testing.chaos.edges import SAVING, SHORT, PodAction, Trigger
from reprieve_testing.chaos.proxy import ApiProxy
from reprieve_testing.chaos.scripted_victims import ScriptedVictim, mixed_victims, utc_now
from reprieve_testing.cluster.handle import ClusterHandle, Program

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

VICTIMS = 40
PAUSE_SECONDS = 30.0


async def in_flight(chaos_runner: ChaosRunner, count: int = VICTIMS) -> list[ScriptedVictim]:
    """Mark many pods; return them once all that want notice are notified.

    None of those that need long is over by then.
    """
    victims = mixed_victims("v", count)
    await chaos_runner.create_victims(victims)
    await chaos_runner.mark()

    async def told() -> bool:
        return all(victim.heard_eviction_id for victim in victims if victim.has_hint)

    await until("all were told", told, 180)
    return victims


async def deadlines_pass() -> None:
    """Return when the deadlines of those that never answer have come."""
    latest = time.monotonic() + SHORT
    await until("the deadlines", lambda: is_past(latest), SHORT + 5)


def leads(program: Program) -> bool:
    return program.metric("reprieve_leader") == 1


@pytest.mark.parametrize("component", ["kube-apiserver", "etcd"])
async def test_victims_survive_the_kill_of_a_control_plane_component(
    cluster: ClusterHandle, chaos_runner: ChaosRunner, component: str
) -> None:
    await chaos_runner.start_leader()
    await in_flight(chaos_runner)
    async with chaos_runner.outage():
        await asyncio.to_thread(cluster.kill_component, component)
        await deadlines_pass()
        await asyncio.to_thread(cluster.start_component, component)
    await chaos_runner.namespace.sync_kubelets()
    await chaos_runner.finish()


async def test_two_operators_survive_a_lease_that_is_deleted_or_stolen(
    chaos_runner: ChaosRunner, namespace: ChaosNamespace
) -> None:
    operators = [await chaos_runner.start_leader(identity=name) for name in ("first", "second")]
    victims = mixed_victims("v", VICTIMS)
    await chaos_runner.create_victims(victims)
    for index in range(4):
        await chaos_runner.mark(victims[index::4])
        async with chaos_runner.outage():
            await (namespace.steal_lease(for_seconds=2) if index % 2 else namespace.delete_lease())
    await chaos_runner.finish()
    await until("one leads", lambda: one_leads(operators), 180)


async def test_victims_survive_a_watch_that_is_cut_repeatedly(
    chaos_runner: ChaosRunner, proxy: ApiProxy
) -> None:
    await chaos_runner.start_leader()
    victims = mixed_victims("v", VICTIMS)
    await chaos_runner.create_victims(victims)
    for index in range(8):
        await chaos_runner.mark(victims[index::8])
        await until("there are watches to cut", partial(cut, proxy), 180)
    await chaos_runner.finish()


async def test_changes_during_a_watch_outage_are_found_after_the_version_has_expired(
    cluster: ClusterHandle, chaos_runner: ChaosRunner, namespace: ChaosNamespace, proxy: ApiProxy
) -> None:
    # Without so long a lease, a slow start of the API server would end the term, and the next term
    # lists all objects again.
    long = {"lease_duration_seconds": 120, "renew_deadline_seconds": 100.0}
    operator = await chaos_runner.start_leader(
        sweep_interval_seconds=300, resync_interval_seconds=300, **long
    )
    before = await in_flight(chaos_runner)
    proxy.watches_allowed.clear()
    proxy.cut_watches()
    spared = [victim for victim in before if victim.scripted_answer == SAVING][:3]
    for victim in spared:
        victim.trigger = Trigger(action=PodAction.UNMARK)
        victim.ended_at = utc_now()
        await namespace.unmark(victim.name)
    await asyncio.to_thread(cluster.compact_etcd)
    async with chaos_runner.outage():
        # Without this, the API server would remember older versions than etcd does.
        await asyncio.to_thread(cluster.kill_component, "kube-apiserver")
        await asyncio.to_thread(cluster.start_component, "kube-apiserver")
    await chaos_runner.namespace.sync_kubelets()
    proxy.watches_allowed.set()
    await chaos_runner.finish()
    assert proxy.gone > 0, "no watch was answered with 410"
    assert [victim.name for victim in spared if victim.phase is not Phase.CANCELLED] == []
    assert operator.process.poll() is None


async def test_victims_survive_a_leader_that_is_paused_for_half_a_minute(
    chaos_runner: ChaosRunner,
) -> None:
    usual = {
        "lease_duration_seconds": 15,
        "renew_deadline_seconds": 10.0,
        "retry_period_seconds": 2.0,
    }
    first = await chaos_runner.start_leader(identity="first", **usual)
    victims = await in_flight(chaos_runner)
    second = chaos_runner.start(identity="second", **usual)
    since, stopped_at = utc_now(), time.monotonic()
    first.signal(signal.SIGSTOP)
    await until("the other leads", lambda: led_by(chaos_runner, "second"), 180)
    chaos_runner.add_outage(since)
    for victim in victims[: VICTIMS // 2]:
        victim.finish_soon()
    await until("half a minute", lambda: is_past(stopped_at + PAUSE_SECONDS), PAUSE_SECONDS + 5)
    first.signal(signal.SIGCONT)
    await chaos_runner.finish()
    await until("one leads", lambda: one_leads([first, second]), 180)


async def led_by(chaos_runner: ChaosRunner, name: str) -> bool:
    return chaos_runner.leader == name


async def is_past(moment: float) -> bool:
    return time.monotonic() > moment


async def cut(proxy: ApiProxy) -> bool:
    return proxy.cut_watches() > 0


async def one_leads(programs: list[Program]) -> bool:
    return sum([await asyncio.to_thread(leads, program) for program in programs]) == 1
