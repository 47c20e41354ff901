"""The operator's metrics port: a certificate of its own or an admin's, and `/ui` if turned on.

One program shows both, because each start takes a second of a processor.
"""

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509

from reprieve_testing.cluster.handle import free_port
from reprieve_testing.servers.stub_api import (
    API_SERVER,
    DEADLINE_SECONDS,
    StubToken,
    stub_api,
)
from reprieve_testing.servers.webhook_program import (
    ENVIRONMENT,
    any_certificate,
    write_certificate,
)

OWN_NAME, ADMINS_NAME = "reprieve-operator.reprieve-system.svc", "localhost"
USER = "system:serviceaccount:team:viewer"
Status = tuple[int, str]


@asynccontextmanager
async def operator(directory: Path, *flags: str) -> AsyncIterator[int]:
    """Run the program; yield its metrics port once that is open."""
    port = free_port()
    words = (
        *("--kubeconfig", str(directory / "kubeconfig"), "--identity", "operator-a"),
        *("--listen-address", "127.0.0.1", "--listen-port", str(free_port())),
        *("--metrics-port", str(port), *flags),
    )
    program = Path(sys.executable).with_name("reprieve-operator")
    process = await asyncio.create_subprocess_exec(program, *words, env=ENVIRONMENT)
    try:
        await until_open(port)
        yield port
    finally:
        process.kill()
        await process.wait()


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


def names_in_certificate(port: int) -> list[str]:
    shown = ssl.get_server_certificate(("127.0.0.1", port), timeout=DEADLINE_SECONDS)
    extensions = x509.load_pem_x509_certificate(shown.encode()).extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return names.get_values_for_type(x509.DNSName)


async def get(port: int, path: str, token: str | None = None) -> Status:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    connector = aiohttp.TCPConnector(ssl=any_certificate())
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.get(f"https://127.0.0.1:{port}{path}", headers=headers) as reply,
    ):
        return reply.status, await reply.text()


@pytest.mark.parametrize("is_admins", [True, False])
async def test_the_port_has_a_certificate_needs_a_token_and_has_the_page_if_turned_on(
    tmp_path: Path, *, is_admins: bool
) -> None:
    """The page is turned on where the certificate is an admin's."""
    write_certificate(tmp_path)
    flags = ("--metrics-cert-dir", str(tmp_path), "--ui=true") if is_admins else ()
    async with (
        stub_api(tmp_path, granted={USER}) as (stub, _),
        operator(tmp_path, *flags) as port,
    ):
        stub.tokens = {"good": StubToken([API_SERVER], USER)}
        names = await asyncio.to_thread(names_in_certificate, port)
        without_token, _ = await get(port, "/metrics")
        status, text = await get(port, "/ui", "good")
        data_status, data = await get(port, "/ui/data", "good")
    assert names == [ADMINS_NAME if is_admins else OWN_NAME]
    assert without_token == 401
    assert (status, data_status) == ((200, 200) if is_admins else (404, 404))
    assert ("<title>Reprieve</title>" in text) is is_admins
    # The stub has no Lease, so that no replica leads.
    assert ('"is_leading":false,"identity":"operator-a"' in data) is is_admins
