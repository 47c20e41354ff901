"""`reprieve-webhooks` as a process, and a client that takes any certificate, as a kubelet does."""

import asyncio
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from reprieve_certs import issue
from reprieve_testing.cluster.handle import free_port
from reprieve_testing.objects.builders import NOW

PROGRAM = Path(sys.executable).with_name("reprieve-webhooks")
DEADLINE_SECONDS = 60.0
ENVIRONMENT = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
"""Of a program whose peers have authorities of their own: the system's take 50 ms to read."""


@dataclass
class RunningWebhooks:
    """The process and its client."""

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

    def peak_memory_bytes(self) -> int:
        """Return the most memory that the process has had so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        (line,) = [line for line in status.splitlines() if line.startswith("VmHWM:")]
        return int(line.split()[1]) * 1024


def any_certificate() -> ssl.SSLContext:
    """Return a client's context that verifies nothing."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def write_certificate(directory: Path) -> None:
    """Write a pair for `--cert-dir`, so that the program needs no Secret."""
    pair = issue.issue_serving(issue.issue_ca(NOW), issue.ServingNames(("localhost",)), NOW)
    (directory / "tls.crt").write_bytes(pair.certificate_pem)
    (directory / "tls.key").write_bytes(pair.key_pem)


@asynccontextmanager
async def running_webhooks(directory: Path, *flags: str) -> AsyncIterator[RunningWebhooks]:
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
    settings = {
        "--kubeconfig": str(kubeconfig),
        "--listen-address": "127.0.0.1",
        "--listen-port": str(port),
        "--metrics-port": str(metrics_port),
        "--metrics-authentication": "none",
    }
    pipe = asyncio.subprocess.PIPE
    words = [word for setting in settings.items() for word in setting]
    process = await asyncio.create_subprocess_exec(
        PROGRAM, *words, *flags, stdout=pipe, stderr=pipe, env=ENVIRONMENT
    )
    connector = aiohttp.TCPConnector(ssl=any_certificate())
    try:
        async with aiohttp.ClientSession(connector=connector) as session:
            program = RunningWebhooks(
                process,
                session,
                f"https://127.0.0.1:{port}",
                f"http://127.0.0.1:{metrics_port}/metrics",
            )
            await program.wait_for_log("listening")
            yield program
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
