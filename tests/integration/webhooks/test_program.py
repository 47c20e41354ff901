"""`reprieve-webhooks` as a process without an API server: probes, shutdown."""

import asyncio
import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest

from reprieve_certs import issue
from reprieve_policy import keys
from reprieve_testing.cluster.handle import free_port
from reprieve_testing.objects.builders import NOW
from reprieve_testing.servers.reviews import a_pod, a_review
from reprieve_testing.servers.stub_api import stub_api

PROGRAM = Path(sys.executable).with_name("reprieve-webhooks")
DEADLINE_SECONDS = 60.0


@dataclass
class Running:
    """The process, and a client that takes any certificate, as a kubelet's probe does."""

    process: asyncio.subprocess.Process
    session: aiohttp.ClientSession
    url: str
    metrics_url: str
    log: list[dict[str, object]] = field(default_factory=list)

    async def get(self, path: str) -> tuple[int, str]:
        url = self.metrics_url if path == "/metrics" else self.url + path
        async with self.session.get(url) as reply:
            return reply.status, await reply.text()

    async def wait_for_log(self, message: str) -> dict[str, object]:
        """Read the log until it says `message`; every line of it is JSON."""
        assert self.process.stderr is not None
        async with asyncio.timeout(DEADLINE_SECONDS):
            while line := await self.process.stderr.readline():
                self.log.append(json.loads(line))
                if self.log[-1]["message"] == message:
                    return self.log[-1]
        raise AssertionError(f"ended without {message!r}: {self.log}")


async def start(*flags: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(PROGRAM, *flags, stdout=pipe, stderr=pipe, env={})


@asynccontextmanager
async def running(directory: Path, *flags: str) -> AsyncIterator[Running]:
    """Run it with the kubeconfig in `directory`; without one, its API server is away."""
    kubeconfig = directory / "kubeconfig"
    if not kubeconfig.exists():
        cluster, user = {"server": "http://127.0.0.1:1"}, {"token": "not-for-logs"}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        named = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
        kubeconfig.write_text(json.dumps(named | {"contexts": [context], "current-context": "x"}))
    port, metrics_port = free_port(), free_port()
    process = await start(
        *(
            "--kubeconfig",
            str(kubeconfig),
            "--listen-address",
            "127.0.0.1",
            "--listen-port",
            str(port),
            "--metrics-port",
            str(metrics_port),
            *flags,
        )
    )
    insecure = ssl.create_default_context()
    insecure.check_hostname, insecure.verify_mode = False, ssl.CERT_NONE
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=insecure)) as session:
            metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"
            program = Running(process, session, f"https://127.0.0.1:{port}", metrics_url)
            await program.wait_for_log("listening")
            yield program
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_without_an_api_server_it_lives_says_what_it_waits_for_and_guesses_nothing(
    tmp_path: Path,
):
    async with running(tmp_path) as program:
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
        assert "not-for-logs" not in json.dumps(program.log)


async def test_with_the_extender_readiness_waits_for_its_watches_too(tmp_path: Path):
    """Without this, a new replica would leave every scheduler to its own choice while it lists."""
    async with running(tmp_path, "--extender=true") as program:
        _, text = await program.get("/readyz")
        assert text.endswith(", nominated-pods, pods, nodes, poddisruptionbudgets, podgroups\n")
        _, metrics = await program.get("/metrics")
        for name in ("nominated-pods", "pods", "nodes", "poddisruptionbudgets"):
            assert f'reprieve_facts_age_seconds{{collection="{name}"}} +Inf' in metrics


async def test_term_drains_and_ends_with_0(tmp_path: Path):
    async with running(tmp_path, "--drain-seconds", "3") as program:
        program.process.send_signal(signal.SIGTERM)
        await program.wait_for_log("draining")
        assert await program.get("/readyz") == (503, "not ready: draining\n")
        assert await program.get("/healthz") == (200, "ok\n")
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await program.process.wait() == 0


async def test_a_second_signal_does_not_wait_for_the_drain(tmp_path: Path):
    async with running(tmp_path, "--drain-seconds", "600") as program:
        program.process.send_signal(signal.SIGTERM)
        await program.wait_for_log("draining")
        program.process.send_signal(signal.SIGINT)
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert await program.process.wait() == 0


async def test_the_program_is_ready_once_its_first_answer_is_correct(tmp_path: Path):
    sensitive = {"metadata": {"name": "team-a", "annotations": {keys.WORKLOAD_TYPE: "sensitive"}}}
    ca = issue.issue_ca(NOW)
    pair = issue.issue_serving(ca, issue.ServingNames(("localhost",)), NOW)
    (tmp_path / "tls.crt").write_bytes(pair.certificate_pem)
    (tmp_path / "tls.key").write_bytes(pair.key_pem)
    collections = {"/api/v1/namespaces": {"team-a": sensitive}}
    async with (
        stub_api(tmp_path, collections=collections) as (stub, _),
        running(
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
    ca = issue.issue_ca(NOW)
    pair = issue.issue_serving(ca, issue.ServingNames(("localhost",)), NOW)
    (tmp_path / "tls.crt").write_bytes(pair.certificate_pem)
    (tmp_path / "tls.key").write_bytes(pair.key_pem)
    async with running(tmp_path, "--cert-dir", str(tmp_path)) as program:
        await program.wait_for_log("serving certificate loaded")

        assert "certificates" not in (await program.get("/readyz"))[1]
