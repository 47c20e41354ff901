"""Where the guard is called."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest_asyncio

from reprieve_testing.guard.fixture import SCHEDULER, GuardFixture, a_victim, guard_fixture
from reprieve_testing.servers.reviews import a_review
from reprieve_testing.servers.stub_api import stub_api
from reprieve_webhooks.guard.secret_path import GuardPathAnchors, path_of


@pytest_asyncio.fixture
async def here(tmp_path: Path) -> AsyncIterator[GuardFixture]:
    async with guard_fixture(tmp_path, a_victim()) as found:
        yield found


@dataclass
class Stored:
    """A Secret, and the trust that was injected."""

    data: dict[str, bytes]
    injected: list[bytes] = field(default_factory=list)
    version: str = "1"

    async def read(self) -> Any:
        return self

    async def write(self, data: Any, version: str) -> Any:
        raise NotImplementedError

    async def inject(self, trusted_pem: bytes) -> None:
        self.injected.append(trusted_pem)


def a_configuration(*configs: Any) -> Any:
    webhooks = [
        {"name": f"{number}.reprieve.dev", "clientConfig": config}
        for number, config in enumerate(configs)
    ]
    return {"metadata": {"name": "reprieve-webhooks"}, "webhooks": webhooks}


async def test_the_webhook_configuration_gets_a_secret_path_and_other_paths_are_not_served(
    tmp_path: Path,
) -> None:
    where = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    secret = path_of(b"key")
    told = a_configuration(
        {"service": {"path": "/validate"}},
        {"service": {"path": "/guard"}},
        {"url": "https://127.0.0.1:9443/guard"},
        {"url": f"https://127.0.0.1:9443{secret}"},
        {"url": "https://127.0.0.1:9443/guardian"},
    )
    served: list[Sequence[str]] = []
    async with stub_api(tmp_path, collections={where: {"reprieve-webhooks": told}}) as (stub, api):
        store: Any = Stored({"ca.key": b"key"})
        paths = GuardPathAnchors(store, store, api, "reprieve-webhooks", served.append)
        await paths.inject(b"pem")
        ((_, patch),) = stub.patches
        store.data = {"ca.key": b"next", "next-ca.key": b"after"}
        await paths.inject(b"pem")
        store.data = {}
        await paths.inject(b"pem")
    written = {step["path"]: step["value"] for step in patch if step["op"] == "replace"}
    assert written == {
        "/webhooks/1/clientConfig/service/path": secret,
        "/webhooks/2/clientConfig/url": f"https://127.0.0.1:9443{secret}",
    }
    assert len(secret) == len("/guard/") + 32
    # What an API server was told before is answered for a while.
    assert served == [[secret], [path_of(b"next"), path_of(b"after"), secret], served[1]]
    assert store.injected == [b"pem"] * 3


async def test_reviews_at_another_path_are_not_served(here: GuardFixture) -> None:
    here.server.webhooks.serve_guard_at([path_of(b"key")])
    review = json.dumps(
        a_review(None, old=a_victim(), operation="DELETE", userInfo=SCHEDULER)
    ).encode()
    assert (await here.server.send("/guard", review))[0] == 404
    assert (await here.server.send(path_of(b"another"), review))[0] == 404
    assert (await here.server.send(path_of(b"key"), review))[0] == 200
