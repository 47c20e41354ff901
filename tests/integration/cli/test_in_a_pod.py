"""`reprieve` in a pod: a kubeconfig counts for the connection, not only for the namespace."""

import asyncio
import os
import sys
from pathlib import Path

from reprieve_testing.servers.stub_api import stub_api

PROGRAM = Path(sys.executable).with_name("reprieve")
DEFAULT = "/api/v1/namespaces/default/pods"


async def test_kubeconfig_counts_before_the_pods_own_account(tmp_path: Path) -> None:
    async with stub_api(tmp_path, collections={DEFAULT: {}}) as (stub, _):
        stub.lists_released.set()
        pod = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
        environment = {**os.environ, **pod, "KUBECONFIG": str(tmp_path / "kubeconfig")}
        async with asyncio.timeout(60):
            process = await asyncio.create_subprocess_exec(
                PROGRAM, "watch", "--once", env=environment, stderr=asyncio.subprocess.PIPE
            )
            _, errors = await process.communicate()
        assert (process.returncode, errors.decode()) == (0, "no victims\n")
        assert stub.calls[DEFAULT] == 1
