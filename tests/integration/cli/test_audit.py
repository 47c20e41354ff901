"""`reprieve audit` against an API server that refuses its credentials."""

from pathlib import Path

import pytest

from reprieve_cli.cluster.connection import describe_error
from reprieve_cli.commands.audit import Audit
from reprieve_cli.output.formats.report import TableReport
from reprieve_runtime.client.api import ApiError
from reprieve_testing.servers.stub_api import stub_api


async def test_expired_credentials_end_the_audit_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with stub_api(tmp_path) as (stub, api):
        stub.lists_released.set()
        stub.is_logged_out = True
        with pytest.raises(ApiError) as raised:
            await Audit(TableReport(), "", is_strict=False).run(api)
        assert sum(stub.calls.values()) == 1
    assert describe_error(raised.value).startswith("the API server refused your credentials (401")
    # Until now: "unreadable: /api/v1/namespaces: Unauthorized" for each of 31 paths.
    assert capsys.readouterr().err == ""
