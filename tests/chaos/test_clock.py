"""The operator's clock is stepped by an hour, either way, while victims wait.

No victim is deleted early, and none stays too long. The clocks of the API server and of the
workloads, by which the promises are checked, are not stepped.
"""

from pathlib import Path

import pytest

from reprieve_testing.chaos import stepped_clock
from reprieve_testing.chaos.chaos_namespace import until
from reprieve_testing.chaos.chaos_runner import ChaosRunner
from reprieve_testing.chaos.edges import SAVING
from reprieve_testing.chaos.scripted_victims import mixed_victims
from reprieve_testing.cluster.handle import ClusterHandle, Program

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

HOUR = 3600
VICTIMS = 24


class Stepped:
    """Starts operators whose clock is off by the seconds in a file."""

    def __init__(self, cluster: ClusterHandle, kubeconfig: Path, file: Path) -> None:
        self._cluster, self._kubeconfig, self._file = cluster, kubeconfig, file
        self.step(0)

    def step(self, seconds: int) -> None:
        stepped_clock.step(self._file, seconds)

    def __call__(self, **settings: object) -> Program:
        usual = {"kubeconfig": self._kubeconfig, "identity": "stepped"}
        prelude = stepped_clock.prelude(self._file)
        program = self._cluster.prepare_operator(prelude, **usual | settings)
        program.release()
        return program


@pytest.mark.parametrize("seconds", [HOUR, -HOUR], ids=["forwards", "backwards"])
async def test_a_clock_step_of_an_hour_moves_no_deadline_even_for_the_next_operator(
    cluster: ClusterHandle,
    chaos_runner: ChaosRunner,
    kubeconfig: Path,
    tmp_path: Path,
    seconds: int,
) -> None:
    chaos_runner.start = stepped = Stepped(cluster, kubeconfig, tmp_path / "offset")
    first = await chaos_runner.start_leader()
    victims = mixed_victims("v", VICTIMS)
    await chaos_runner.create_victims(victims)
    await chaos_runner.mark(victims[: VICTIMS // 2])
    notified = [victim for victim in victims[: VICTIMS // 2] if victim.has_hint]

    async def all_told() -> bool:
        return all(victim.heard_eviction_id for victim in notified)

    await until("all were told", all_told, 180)
    stepped.step(seconds)
    await chaos_runner.mark(victims[VICTIMS // 2 :])
    await chaos_runner.wait_over(victim for victim in victims if victim.scripted_answer != SAVING)
    first.kill(end_lease=False)
    async with chaos_runner.outage():
        chaos_runner.start()
    await chaos_runner.finish()
