"""What another client writes into our webhook configurations is put back at once."""

import asyncio
import base64
from pathlib import Path
from typing import Any

from reprieve_certs.inject import ConfigurationWatch, WebhookConfigurations
from reprieve_certs.issue import ServingNames
from reprieve_certs.rotator import Rotator, StoredSecret
from reprieve_certs.serving import ServingContext
from reprieve_testing.objects.builders import NOW
from reprieve_testing.servers.stub_api import StubApi, stub_api, until

NAME = "reprieve-webhooks"
COLLECTIONS = tuple(
    f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations"
    for kind in ("mutating", "validating")
)
NEVER = 100_000.0


class Secret:
    def __init__(self) -> None:
        self.stored = StoredSecret({}, "1")

    async def read(self) -> StoredSecret:
        return self.stored

    async def write(self, data: Any, version: str) -> StoredSecret:
        self.stored = StoredSecret(dict(data), version + "1")
        return self.stored


def a_configuration(ca: str, path: str = "/validate") -> Any:
    service = {"namespace": "reprieve-system", "path": path}
    webhook = {"name": "pods.reprieve.dev", "clientConfig": {"service": service, "caBundle": ca}}
    return {"metadata": {"name": NAME, "resourceVersion": "2"}, "webhooks": [webhook]}


def store(stub: StubApi, ca: str) -> None:
    for path in COLLECTIONS:
        stub.collections[path][NAME] = a_configuration(ca)


async def test_a_wrong_ca_bundle_is_put_back_without_waiting_for_the_next_check(
    tmp_path: Path,
) -> None:
    collections: Any = {path: {} for path in COLLECTIONS}
    async with stub_api(tmp_path, collections=collections) as (stub, api):
        stub.lists_released.set()
        store(stub, "")
        secret = Secret()
        rotator = Rotator(
            secret,
            WebhookConfigurations(api, NAME),
            ServingContext(),
            ServingNames(("reprieve-webhooks.reprieve-system.svc",)),
            clock=lambda: NOW,
            count_failure=lambda: None,
        )
        watch = ConfigurationWatch(api, NAME, rotator.wake)
        tasks = [asyncio.create_task(rotator.run(NEVER)), asyncio.create_task(watch.run())]
        try:
            await until(lambda: len(stub.patches) == 2 and stub.open_watches == 2)
            ours = base64.b64encode(secret.stored.data["ca.crt"]).decode()
            store(stub, ours)
            for path in COLLECTIONS:
                stub.send("MODIFIED", a_configuration(ours), only=path)
            wrong = base64.b64encode(b"wrong").decode()
            store(stub, wrong)
            stub.send("MODIFIED", a_configuration(wrong), only=COLLECTIONS[1])
            await until(lambda: len(stub.patches) == 4)
            (path, body) = stub.patches[-1]
            assert path == f"{COLLECTIONS[1]}/{NAME}"
            assert body[-1]["value"] == ours
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_only_a_changed_call_of_a_webhook_counts(tmp_path: Path) -> None:
    changes: list[str] = []
    collections: Any = {path: {NAME: a_configuration("a")} for path in COLLECTIONS}
    async with stub_api(tmp_path, collections=collections) as (stub, api):
        stub.lists_released.set()
        watch = ConfigurationWatch(api, NAME, lambda: changes.append("changed"))
        task = asyncio.create_task(watch.run())
        await until(lambda: stub.open_watches == 2)
        labelled = a_configuration("a")
        labelled["metadata"]["labels"] = {"team": "a"}
        stub.send("MODIFIED", labelled, only=COLLECTIONS[0])
        stub.send("MODIFIED", a_configuration("a", "/other"), only=COLLECTIONS[0])
        stub.send("MODIFIED", a_configuration("b"), only=COLLECTIONS[1])
        await until(lambda: len(changes) == 2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
