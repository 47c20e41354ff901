"""Certificates are issued and renewed by the API server's clock, not by that of this machine."""

from pathlib import Path

from reprieve_certs.rotator import Rotator
from reprieve_testing.servers.stub_api import stub_api
from reprieve_webhooks.main import Program, serving_names
from reprieve_webhooks.settings import Settings


async def test_replicas_whose_clocks_differ_issue_certificates_by_one(tmp_path: Path) -> None:
    settings = Settings()
    async with stub_api(tmp_path) as (_, api):
        program = Program(settings, serving_names(settings), api)
        time = api.server_time
        time.response_received("Sat, 20 Nov 2032 12:00:00 GMT", time.request_started())
        assert isinstance(program.certificates, Rotator)
        assert program.certificates._clock().year == 2032
