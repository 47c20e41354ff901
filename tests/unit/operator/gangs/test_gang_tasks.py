"""The calls for gangs: one gang after another, as far as the time of a pass lasts."""

import asyncio
from functools import partial

import pytest

from reprieve_operator.gangs import gang_tasks
from reprieve_operator.gangs.gang_tasks import GangTasks


async def test_releases_go_one_after_another_also_if_the_decision_took_the_time_of_the_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tasks, steps = GangTasks(on_late=lambda: None), list[str]()

    async def release(name: str) -> float:
        steps.append(f"{name} begins")
        for _ in range(20):
            await asyncio.sleep(0)
        steps.append(f"{name} ends")
        return 0.0

    monkeypatch.setattr(gang_tasks, "_WAIT_SECONDS", 0.0)
    tasks.begin_pass()
    monkeypatch.setattr(gang_tasks, "_WAIT_SECONDS", 60.0)
    tasks.restart_time()
    for name in "ab":
        tasks.start(("team", (name,)), partial(release, name))
        await tasks.wait()
    assert steps == ["a begins", "a ends", "b begins", "b ends"]
