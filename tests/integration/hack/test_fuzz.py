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
from reprieve_testing.reviews import running_server, trusting

ROOT = Path(__file__).parents[3]
REVIEWS = 5000
DEADLINE_SECONDS = 300.0  # some 10 are usual


async def test_whatever_is_sent_is_answered_rightly_and_leaves_nothing_behind():
    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'hack'}:{ROOT / 'tests'}"}
    words = ("-m", "fuzz", "--seed", "1", "--budget", str(REVIEWS))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=pipe, stderr=pipe, env=environment
    )
    async with asyncio.timeout(DEADLINE_SECONDS):
        summary, progress = await process.communicate()

    assert process.returncode == 0, (summary + progress).decode()
    assert b"fuzz: seed 1: 5,0" in summary


async def test_a_wrong_answer_is_found_and_found_again_by_its_number():
    everything_passes = Facts(namespace=NamespacePolicy(enforcement=OFF))
    async with running_server(everything_passes, max_review_bytes=2**20) as server:
        judge = Oracle(corpus.CLUSTER, max_review_bytes=2**20)
        target = Target(server.port, trusting(server.ca))
        campaign = Campaign(1, target, judge, lambda counts: counts.reviews > 2000)
        with pytest.raises(Finding, match="instead of") as found:
            await campaign.run(lambda _: None)
        with pytest.raises(Finding) as again:
            await campaign.send(found.value.number)

    assert found.value.sent.startswith(b"POST /")
    assert again.value.sent == found.value.sent
