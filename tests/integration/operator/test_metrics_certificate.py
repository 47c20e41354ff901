"""The operator shows its metrics over HTTPS: with a certificate of its own, or with an admin's."""

import asyncio
import ssl
import sys
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509

from reprieve_testing.cluster.handle import free_port
from reprieve_testing.servers.stub_api import DEADLINE_SECONDS, stub_api
from reprieve_testing.servers.webhook_program import any_certificate, write_certificate


def certificate_at(port: int) -> x509.Certificate:
    return x509.load_pem_x509_certificate(
        ssl.get_server_certificate(("127.0.0.1", port), timeout=DEADLINE_SECONDS).encode()
    )


async def until_open(port: int) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


@pytest.mark.parametrize("name", ["reprieve-operator.reprieve-system.svc", "localhost"])
async def test_the_metrics_have_a_certificate_and_need_a_token(tmp_path: Path, name: str) -> None:
    port = free_port()
    flags = {
        "--kubeconfig": str(tmp_path / "kubeconfig"),
        "--listen-address": "127.0.0.1",
        "--listen-port": str(free_port()),
        "--metrics-port": str(port),
    }
    if name == "localhost":
        write_certificate(tmp_path)
        flags["--metrics-cert-dir"] = str(tmp_path)
    async with stub_api(tmp_path):
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("reprieve-operator"),
            *(word for flag in flags.items() for word in flag),
            env={},
        )
        try:
            await until_open(port)
            shown = await asyncio.to_thread(certificate_at, port)
            names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            assert names.get_values_for_type(x509.DNSName) == [name]
            connector = aiohttp.TCPConnector(ssl=any_certificate())
            async with (
                aiohttp.ClientSession(connector=connector) as session,
                session.get(f"https://127.0.0.1:{port}/metrics") as reply,
            ):
                assert reply.status == 401
        finally:
            process.kill()
            await process.wait()
