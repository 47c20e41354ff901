"""The whole agent as a process: it reports what the workload saved, over TLS, to the real server.

The API server is one that the test plays.
"""

import asyncio
import base64
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client import CollectorRegistry

from reprieve_agent import main
from reprieve_certs import issue
from reprieve_policy import keys
from reprieve_policy.kube.values import timestamp
from reprieve_testing.servers.reviews import RunningServer, running_server
from reprieve_testing.servers.stub_api import StubApi, StubToken, stub_api, until
from reprieve_webhooks.checkpoints.metrics import ReportMetrics
from reprieve_webhooks.checkpoints.route import MAX_BYTES, PATH, routes
from reprieve_webhooks.checkpoints.service import CheckpointReports
from reprieve_webhooks.http.request_body import RequestBodyReader

PROGRAM = (str(Path(sys.executable).with_name("reprieve-agent")),)
IMPATIENT = """
from reprieve_agent import main, report_client
main.POLL_SECONDS = 0.05
report_client._TIMEOUT_SECONDS = {timeout_seconds}
raise SystemExit(main.main())
"""
ADDRESS = "127.107.3.1"
"""An address of loopback on which nothing else listens."""
PODS = "/api/v1/namespaces/team-a/pods"
SECRET = "token.that-no-log.shows"
DEADLINE_SECONDS = 60.0
AGE = timedelta(minutes=30)


@dataclass
class RunningAgent:
    """The agent, and its folder."""

    process: asyncio.subprocess.Process
    request: Path

    def save(self, ago: timedelta = AGE) -> datetime:
        """Touch the file as a workload does that saved so long ago; return when that was."""
        # Moved there with its time: the agent may look at any moment.
        saved = self.request.with_name("elsewhere")
        saved.touch()
        at = datetime.now(UTC) - ago
        os.utime(saved, (at.timestamp(), at.timestamp()))
        saved.replace(self.request.with_name("request.saved"))
        return at

    def loaded(self) -> str:
        """Return the libraries that the agent has loaded."""
        return Path(f"/proc/{self.process.pid}/maps").read_text()

    async def log(self) -> Any:
        """Return the next line of the log."""
        assert self.process.stderr is not None
        async with asyncio.timeout(DEADLINE_SECONDS):
            return json.loads(await self.process.stderr.readline())

    async def is_idle(self) -> bool:
        """True if the agent answers at once."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(DEADLINE_SECONDS)) as session,
            session.get(f"http://{ADDRESS}:{main.PORT}/") as reply,
        ):
            return bool(await reply.json() == {"state": "idle"})


def impatient(timeout_seconds: float = DEADLINE_SECONDS) -> Sequence[str]:
    """Return the same program, which looks at its file more often.

    It has TLS in its memory, which the program itself has not.
    """
    return (sys.executable, "-c", IMPATIENT.format(timeout_seconds=timeout_seconds))


@asynccontextmanager
async def an_agent(
    directory: Path, url: str, ca: bytes, program: Sequence[str]
) -> AsyncIterator[RunningAgent]:
    folder, token = directory / "run", directory / "token"
    folder.mkdir()
    token.write_text(SECRET + "\n")
    variables = {
        "REPRIEVE_REPORT_URL": url,
        "REPRIEVE_REPORT_CA": base64.b64encode(ca).decode(),
        "REPRIEVE_REPORT_TOKEN_FILE": str(token),
    }
    request = folder / "request"
    process = await asyncio.create_subprocess_exec(
        *program,
        *("--request", str(request), "--address", ADDRESS),
        stderr=asyncio.subprocess.PIPE,
        env=variables,
    )
    agent = RunningAgent(process, request)
    try:
        assert (await agent.log())["message"] == "listening"
        yield agent
        assert process.returncode is None
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


@asynccontextmanager
async def webhooks(directory: Path) -> AsyncIterator[tuple[RunningServer, StubApi]]:
    extra = {
        "authentication.kubernetes.io/pod-name": ["train-0"],
        "authentication.kubernetes.io/pod-uid": ["uid-0"],
    }
    token = StubToken(["reprieve.dev"], "system:serviceaccount:team-a:default", extra)
    pod = {"metadata": {"name": "train-0", "uid": "uid-0", "resourceVersion": "7"}}
    async with stub_api(
        directory, collections={PODS: {"train-0": pod}}, tokens={SECRET: token}
    ) as (stub, api):
        reports = CheckpointReports(api, timeout_seconds=5.0)
        bodies = RequestBodyReader("report", max_bytes=MAX_BYTES, timeout_seconds=5.0)
        table = routes(reports, bodies, ReportMetrics(CollectorRegistry()))
        async with running_server(further_routes=table) as server:
            yield server, stub


async def test_a_save_is_written_to_the_pod(tmp_path: Path) -> None:
    async with (
        webhooks(tmp_path) as (server, stub),
        an_agent(tmp_path, server.url + PATH, server.ca.certificate_pem, PROGRAM) as agent,
    ):
        saved_at = agent.save()
        await until(lambda: len(stub.patches) == 1)
        ((path, patch),) = stub.patches
        assert path == f"{PODS}/train-0"
        known = timestamp.parse(patch["metadata"]["annotations"][keys.LAST_CHECKPOINT_AT])
        assert known is not None
        assert abs(known - saved_at) < timedelta(seconds=60)
        assert known <= datetime.now(UTC) - AGE
        # The process that makes the call is another one: TLS takes no memory of the agent.
        assert "libssl" not in agent.loaded()
        assert await agent.is_idle()


async def test_a_peer_with_a_certificate_of_another_ca_gets_no_token(tmp_path: Path) -> None:
    other = issue.issue_ca(datetime.now(UTC)).certificate_pem
    async with (
        webhooks(tmp_path) as (server, stub),
        an_agent(tmp_path, server.url + PATH, other, impatient()) as agent,
    ):
        agent.save()
        line = await agent.log()
        assert line["message"] == "could not report a save"
        assert "certificate verify failed" in line["error"]
        assert not stub.calls
        assert await agent.is_idle()


async def test_a_peer_that_never_answers_delays_no_request_and_no_token_is_logged(
    tmp_path: Path,
) -> None:
    connected = asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    ca = issue.issue_ca(datetime.now(UTC)).certificate_pem
    url, program = f"https://127.0.0.1:{port}/", impatient(timeout_seconds=0.5)
    async with silent, an_agent(tmp_path, url, ca, program) as agent:
        agent.save()
        async with asyncio.timeout(DEADLINE_SECONDS):
            await connected.wait()
        assert await agent.is_idle()
        line = await agent.log()
        assert (line["message"], SECRET in str(line)) == ("could not report a save", False)
        assert "timed out" in line["error"]


async def test_values_that_cannot_be_used_do_not_end_the_agent(tmp_path: Path) -> None:
    async with an_agent(tmp_path, "http://127.0.0.1/", b"no certificate", impatient()) as agent:
        agent.save()
        line = await agent.log()
        assert line["error"] == "ValueError: the URL must begin with https://"
        assert await agent.is_idle()
