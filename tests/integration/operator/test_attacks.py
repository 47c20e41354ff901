"""Clients without credentials do not take the operator's file descriptors.

The program runs as a process that may open 1,024 files, as where the system allows no more.
"""

import asyncio
import resource
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from reprieve_testing.cluster.handle import free_port
from reprieve_testing.servers.attackers import Attackers, many_files
from reprieve_testing.servers.stub_api import DEADLINE_SECONDS, stub_api, until
from reprieve_testing.servers.webhook_program import ENVIRONMENT

LEASES = "/apis/coordination.k8s.io/v1/namespaces/reprieve-system/leases"
FILES = 1024
OWN_FILES = 600
"""What 200 calls to workloads, the connections to the API server and the logs need at most."""
SHOWN_LIMIT = (
    "import resource; from reprieve_runtime.serving.file_limit import raise_file_limit; "
    "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 512)); raise_file_limit(); "
    "print(resource.getrlimit(resource.RLIMIT_NOFILE))"
)


def is_open(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=60):
        return True
    return False


async def until_open(port: int) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await asyncio.to_thread(is_open, port):  # noqa: ASYNC110 - nothing says so
            await asyncio.sleep(0.05)


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


@pytest.mark.heavy  # a process each, and more than a thousand connections
@pytest.mark.parametrize("addresses", [1, 100])
async def test_half_open_requests_leave_the_operator_its_file_descriptors(
    tmp_path: Path, addresses: int
) -> None:
    port = free_port()
    flags = {
        "--kubeconfig": str(tmp_path / "kubeconfig"),
        "--listen-address": "127.0.0.1",
        "--listen-port": str(port),
        "--metrics-port": str(free_port()),
        "--retry-period-seconds": "0.1",
    }
    async with stub_api(tmp_path, collections={LEASES: {}}) as (stub, _):
        stub.lists_released.set()
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("reprieve-operator"),
            *(word for flag in flags.items() for word in flag),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES)),
            env=ENVIRONMENT,
        )
        try:
            await until_open(port)
            with many_files():
                async with Attackers(port, addresses=addresses) as attackers:
                    await attackers.send_half_a_head(1100)
                    # The last of them has been accepted, and the probe is still answered.
                    assert await asyncio.to_thread(is_open, port)
                    files = open_files(process.pid)
                    assert files < FILES - OWN_FILES, f"{files} of {FILES} files are open"
                    calls = sum(stub.calls.values())
                    await until(lambda: sum(stub.calls.values()) > calls + 3)
        finally:
            process.kill()
            await process.wait()


async def test_the_soft_limit_of_files_is_raised_to_the_hard_limit() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SHOWN_LIMIT, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert output.decode().strip() == "(512, 512)"
