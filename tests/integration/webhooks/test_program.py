"""`reprieve-webhooks` as a process without an API server: probes, shutdown."""

import asyncio
import json
import signal
from pathlib import Path

import pytest

from reprieve_policy import keys
from reprieve_testing.servers.reviews import a_pod, a_review
from reprieve_testing.servers.stub_api import stub_api
from reprieve_testing.servers.webhook_program import (
    DEADLINE_SECONDS,
    RunningWebhooks,
    running_webhooks,
    write_certificate,
)


async def test_without_an_api_server_it_lives_says_what_it_waits_for_and_guesses_nothing(
    tmp_path: Path,
):
    async with running_webhooks(tmp_path, "--metrics-authentication", "token") as program:
        assert await program.get("/healthz") == (200, "ok\n")
        status, text = await program.get("/readyz")

        assert status == 503
        known = "namespaces, priorityclasses, policy, lease, elasticquotas"
        owners = "jobs, statefulsets, replicasets, jobsets, leaderworkersets"
        assert text == f"not ready: certificates, {known}, {owners}, nominated-pods\n"
        failure = await program.wait_for_log("could not renew or inject certificates")
        assert failure["level"] == "warning"

        async with program.session.post(program.url + "/mutate", json=a_review(a_pod())) as reply:
            assert reply.status == 503
        response = await program.wait_for_log("review failed: a read of the API server failed")

        assert response["uid"] == a_review(None)["request"]["uid"]
        await _check_that_no_token_gets_metrics(program)
        assert "not-for-logs" not in json.dumps(program.log)


async def _check_that_no_token_gets_metrics(program: RunningWebhooks) -> None:
    """Ask over HTTPS: without the API server, no token can be checked."""
    url = program.metrics_url.replace("http:", "https:")
    async with program.session.get(url) as reply:
        assert reply.status == 401
    headers = {"Authorization": "Bearer a-token"}
    async with program.session.get(url, headers=headers) as reply:
        assert reply.status == 503


async def test_with_the_extender_readiness_waits_for_its_watches_too(tmp_path: Path):
    """Without this, a new replica would leave every scheduler to its own choice while it lists."""
    async with running_webhooks(tmp_path, "--extender=true") as program:
        _, text = await program.get("/readyz")
        assert text.endswith(", nominated-pods, pods, nodes, poddisruptionbudgets, podgroups\n")
        _, metrics = await program.get("/metrics")
        for name in ("nominated-pods", "pods", "nodes", "poddisruptionbudgets"):
            assert f'reprieve_facts_age_seconds{{collection="{name}"}} +Inf' in metrics


async def test_after_its_drain_the_program_ends_with_0(tmp_path: Path):
    async with running_webhooks(tmp_path, "--drain-seconds", "0.2") as program:
        program.process.send_signal(signal.SIGTERM)
        await program.wait_for_log("draining")
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await program.process.wait() == 0


async def test_term_drains_and_a_second_signal_does_not_wait_for_the_drain(tmp_path: Path):
    async with running_webhooks(tmp_path, "--drain-seconds", "600") as program:
        program.process.send_signal(signal.SIGTERM)
        await program.wait_for_log("draining")
        assert await program.get("/readyz") == (503, "not ready: draining\n")
        assert await program.get("/healthz") == (200, "ok\n")
        program.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await program.process.wait() == 0


async def test_the_program_is_ready_once_its_first_answer_is_correct(tmp_path: Path):
    sensitive = {"metadata": {"name": "team-a", "annotations": {keys.WORKLOAD_TYPE: "sensitive"}}}
    write_certificate(tmp_path)
    collections = {"/api/v1/namespaces": {"team-a": sensitive}}
    async with (
        stub_api(tmp_path, collections=collections) as (stub, _),
        running_webhooks(
            tmp_path, "--cert-dir", str(tmp_path), "--lookup-timeout-seconds", "0.2"
        ) as program,
    ):
        review = a_review(a_pod(labels={keys.PREEMPTION_CLASS: "3"}))
        assert (await program.get("/readyz"))[0] == 503
        async with program.session.post(program.url + "/validate", json=review) as early:
            assert early.status == 503
        stub.lists_released.set()
        await program.wait_for_log("ready")

        assert await program.get("/readyz") == (200, "ok\n")
        async with program.session.post(program.url + "/validate", json=review) as first:
            response = (await first.json())["response"]
    assert response["status"]["message"].endswith("classes allowed in this namespace: 10")


@pytest.mark.slow  # the test above also serves certificates of a directory
async def test_certificates_of_a_directory_are_served_and_need_no_secret(tmp_path: Path):
    write_certificate(tmp_path)
    async with running_webhooks(tmp_path, "--cert-dir", str(tmp_path)) as program:
        await program.wait_for_log("serving certificate loaded")

        assert "certificates" not in (await program.get("/readyz"))[1]
