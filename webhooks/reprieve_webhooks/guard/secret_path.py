"""Where the guard is called: a path that only the API server is told, beside the certificates that it is to trust.

An API server does not say who it is to a webhook, and the guard's answers have effects: without this, whoever reaches the port
and knows the names of pods could have them evicted, by the review of an eviction that nobody asked for. The path is made of the
CA's key, which only the webhooks can read, so that all replicas know it; it stands in their ValidatingWebhookConfiguration, which
admins can read. Until it does, and whenever `kubectl apply` has put the manifests' own path back, the guard is not asked.
"""

import hashlib
import hmac
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from reprieve_certs.bundle import CA_KEY, NEXT_CA_KEY
from reprieve_certs.rotator import SecretStore, TrustAnchors
from reprieve_policy.kube.objects import ObjectMeta
from reprieve_runtime.client.api import JSON_PATCH, Api
from reprieve_runtime.client.paths import object_path

PATH = "/guard"
"""As the manifests have it; served only where somebody else keeps the certificates, and the port to himself."""
_MAX_PATHS = 4
"""Paths served at once: this CA's, the next one's, and those of before, which an API server may still know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Service:
    path: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _GuardClientConfig:
    url: str = ""
    service: _Service | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _GuardWebhook:
    name: str
    clientConfig: _GuardClientConfig = field(default_factory=_GuardClientConfig)  # noqa: N815 - the API's own name


@dataclass(frozen=True, slots=True, kw_only=True)
class _GuardConfiguration:
    metadata: ObjectMeta
    webhooks: Sequence[_GuardWebhook] | None = None


class GuardPathAnchors:
    """`TrustAnchors` that are told the guard's path first."""

    def __init__(
        self,
        anchors: TrustAnchors,
        store: SecretStore,
        api: Api,
        configuration: str,
        serve: Callable[[Sequence[str]], None],
    ) -> None:
        self._anchors, self._store, self._api, self._serve = anchors, store, api, serve
        self._configuration = object_path("validatingwebhookconfigurations", None, configuration)
        self._served: list[str] = []

    async def read(self) -> Sequence[bytes]:
        """Return every client's trusted certificates, as PEM."""
        return await self._anchors.read()

    async def inject(self, trusted_pem: bytes) -> None:
        """Serve the path, tell it, and then whom to trust."""
        data = (await self._store.read()).data
        known = [path_of(data[key]) for key in (CA_KEY, NEXT_CA_KEY) if data.get(key)]
        self._served = list(dict.fromkeys([*known, *self._served]))[:_MAX_PATHS]
        self._serve(self._served)
        if known:
            await self._patch_configuration(known[0])
        await self._anchors.inject(trusted_pem)

    async def _patch_configuration(self, path: str) -> None:
        found = await self._api.get(self._configuration, _GuardConfiguration)
        patch = [
            step
            for index, one in enumerate(found.webhooks or ())
            for step in _patch_operations(index, one, path)
        ]
        if patch:
            await self._api.patch(
                self._configuration, patch, _GuardConfiguration, content_type=JSON_PATCH
            )


def path_of(key_pem: bytes) -> str:
    """Return the path that goes with a CA's key, which it does not tell."""
    return f"{PATH}/{hmac.digest(key_pem, b'reprieve guard', hashlib.sha256).hex()[:32]}"


def _patch_operations(index: int, webhook: _GuardWebhook, path: str) -> list[dict[str, str]]:
    """Return the steps that have one webhook call the guard at `path`; none where it does, or does not call the guard."""
    where, config = f"/webhooks/{index}/clientConfig", webhook.clientConfig
    field_of, before = (
        (f"{where}/service/path", config.service.path)
        if config.service
        else (f"{where}/url", config.url)
    )
    base, is_there, rest = before.partition(PATH)
    wanted = f"{base}{path}"
    if not is_there or (rest and not rest.startswith("/")) or before == wanted:
        return []
    # The test refuses the whole patch if webhooks were added or removed since they were read.
    name = {"op": "test", "path": f"/webhooks/{index}/name", "value": webhook.name}
    return [name, {"op": "replace", "path": field_of, "value": wanted}]
