"""A short `make fuzz` with a fixed seed, and a check that it finds a wrong answer."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from fuzz import corpus
from fuzz.campaign import Campaign, Finding
from fuzz.connection import Target
from fuzz.oracle import Oracle
from reprieve_policy.config.namespace import OFF, NamespacePolicy
from reprieve_policy.facts import Facts
from reprieve_testing.servers.reviews import running_server, trusting

ROOT = Path(__file__).parents[3]
REVIEWS = [
    pytest.param(300, marks=pytest.mark.heavy),  # starts the webhooks beside the fuzzer
    pytest.param(20_000, marks=pytest.mark.slow),
]
DEADLINE_SECONDS = 900.0  # for the larger one, some 100 are usual


@pytest.mark.parametrize("reviews", REVIEWS)
async def test_every_input_gets_the_right_answer_and_leaves_nothing_behind(reviews: int):
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'hack'}:{ROOT / 'tests'}"}
    words = ("-m", "fuzz", "--seed", "1", "--budget", str(reviews))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=pipe, stderr=pipe, env=environment
    )
    async with asyncio.timeout(DEADLINE_SECONDS):
        summary, progress = await process.communicate()

    assert process.returncode == 0, (summary + progress).decode()
    sent = f"{reviews:,}"[:-2]  # The last ones of a campaign are not counted exactly.
    assert f"fuzz: seed 1: {sent}" in summary.decode()


async def test_a_wrong_answer_is_found_and_reproduced_by_its_number():
    everything_passes = Facts(namespace=NamespacePolicy(enforcement=OFF))
    async with running_server(everything_passes, max_review_bytes=2**20) as server:
        oracle = Oracle(corpus.CLUSTER, max_review_bytes=2**20)
        target = Target(server.port, trusting(server.ca))
        campaign = Campaign(1, target, oracle, lambda counts: counts.reviews > 2000)
        with pytest.raises(Finding, match="instead of") as found:
            await campaign.run(lambda _: None)
        with pytest.raises(Finding) as again:
            await campaign.send(found.value.number)

    assert found.value.sent.startswith(b"POST /")
    assert again.value.sent == found.value.sent
